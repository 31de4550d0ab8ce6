package cli

import (
	"bytes"
	"context"
	"flag"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/penstock-io/penstock/engine"
	"github.com/penstock-io/penstock/engine/internal/osfs"
	"github.com/penstock-io/penstock/stream"
)

var update = flag.Bool("update", false, "write testdata")

// fakeEngine replaces the engine in tests. It runs until it is drained or canceled. If once is set,
// it ends immediately.
type fakeEngine struct {
	once    bool
	err     error // what Run returns when it was not cancelled
	end     engine.Status
	drained chan struct{}
	drain   sync.Once
	hangs   bool // Drain does not end it
	running chan struct{}
	reloads chan struct{}
	silent  atomic.Bool // Ping is not answered
}

func newFake() *fakeEngine {
	return &fakeEngine{drained: make(chan struct{}), running: make(chan struct{}), reloads: make(chan struct{}, 10)}
}

func (e *fakeEngine) Run(ctx context.Context) error {
	close(e.running)
	if e.once {
		return e.err
	}
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-e.drained:
		return e.err
	}
}

func (e *fakeEngine) Drain() {
	if !e.hangs {
		e.drain.Do(func() { close(e.drained) })
	}
}

func (e *fakeEngine) Reload(context.Context) error {
	e.reloads <- struct{}{}
	return nil
}

func (e *fakeEngine) Ping(ctx context.Context) error {
	if e.silent.Load() {
		<-ctx.Done()
		return context.Cause(ctx)
	}
	return nil
}

func (e *fakeEngine) Status() engine.Status { return e.end }

type pathOptions struct {
	Path     string `yaml:"path" path:"true" required:"true" doc:"where"`
	Password string `yaml:"password" secret:"true"`
}

// idleSource and idleSink are components that are created but never run.
type (
	idleSource struct{ stream.Source }
	idleSink   struct{ stream.Sink }
)

func makeSource(any, stream.Host) (any, error) { return idleSource{}, nil }

func makeSink(any, stream.Host) (any, error) { return idleSink{}, nil }

// newProgram returns a program with a fake engine, test components and test signals.
func newProgram(e *fakeEngine, signals chan os.Signal) *program {
	p := &program{
		started: time.Now(),
		files:   osfs.New(),
		components: []stream.Component{
			{Role: stream.SourceRole, Name: "folder", New: makeSource, Options: func() any { return &pathOptions{} }},
			{Role: stream.SinkRole, Name: "drop", New: makeSink, Options: func() any { return &struct{}{} }},
		},
		notify:   func() (<-chan os.Signal, func()) { return signals, func() {} },
		manager:  func(*slog.Logger) *serviceManager { return nil },
		stopping: time.Second,
	}
	p.assemble = func(_ engine.Config, o engine.Options) (runner, error) {
		e.once = e.once || o.Once && !e.hangs
		return e, nil
	}
	return p
}

// outcome is the result of a command line.
type outcome struct {
	code        int
	out, stderr string
}

func (p *program) try(t *testing.T, args ...string) outcome {
	t.Helper()
	var out, stderr bytes.Buffer
	code := p.execute(t.Context(), args, bytes.NewReader(nil), &out, &stderr)
	return outcome{code, out.String(), stderr.String()}
}

// inFolder changes to a new directory with a valid config.
func inFolder(t *testing.T) {
	t.Helper()
	keepPipes() // package signal must not make its channel within a bubble of synctest
	t.Chdir(t.TempDir())
	for name, source := range map[string]string{"penstock.yaml": "path: spool, password: hunter2",
		"wrong.yaml": "pth: x"} {
		text := "pipelines:\n  access:\n    source: {folder: {" + source + "}}\n    sink: drop\n"
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

// golden compares got with a file in the package's testdata, even if the test has changed its
// directory.
func golden(t *testing.T, path, got string) {
	t.Helper()
	if *update {
		if err := os.MkdirAll(filepath.Dir(path), 0o777); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(got), 0o666); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if got != string(want) {
		t.Errorf("%s: got\n%s\nwant\n%s", filepath.Base(path), got, want)
	}
}

// testdata returns the absolute path of a file in testdata. Call it before the test changes its
// directory.
func testdata(t *testing.T, name string) string {
	t.Helper()
	path, err := filepath.Abs(filepath.Join("testdata", name))
	if err != nil {
		t.Fatal(err)
	}
	return path
}
