package exec_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/penstock-io/penstock/engine"
	"github.com/penstock-io/penstock/engine/connector/exec"
	"github.com/penstock-io/penstock/engine/connector/memory"
	"github.com/penstock-io/penstock/engine/kit/child"
	"github.com/penstock-io/penstock/stream"
	"github.com/penstock-io/penstock/stream/streamtest"
	"github.com/penstock-io/penstock/vfs"
)

// eventually waits until a condition holds, and reports whether it did within patience.
func eventually(holds func() bool) bool {
	end := time.NewTimer(patience)
	defer end.Stop()
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for !holds() {
		select {
		case <-tick.C:
		case <-end.C:
			return false
		}
	}
	return true
}

// pipeline is an engine that reads a command's output into a channel.
type pipeline struct {
	e     *engine.Engine
	ended chan error
	got   chan string // texts of delivered records
}

// begin starts an engine with the source exec that runs a shell script. options are in YAML.
func begin(t *testing.T, script, options string, once bool) *pipeline {
	t.Helper()
	p := &pipeline{ended: make(chan error, 1), got: make(chan string, 100_000)}
	deliver := func(_ context.Context, b *stream.Batch) error {
		for _, i := range b.AppendKept(nil) {
			p.got <- string(b.Text(i))
		}
		return nil
	}
	sink := memory.NewSink(memory.SinkOptions{Deliver: deliver})
	if options != "" {
		options = ", " + options
	}
	text := fmt.Sprintf(`{state: %q, pipelines: {p: {source: {exec: {command: [sh, -c, %q]%s}},
  sink: memory, batch: {linger: 1ms}}}}`, t.TempDir(), script, options)
	cfg, err := engine.Parse([]byte(text), exec.SourceComponent(), sink.Component())
	if err != nil {
		t.Fatal(err)
	}
	log := slog.New(slog.NewTextHandler(t.Output(), nil))
	if p.e, err = engine.New(cfg, engine.Options{Once: once, Log: log}); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	stopped := make(chan struct{})
	go func() {
		p.ended <- p.e.Run(ctx)
		close(stopped)
	}()
	t.Cleanup(func() { cancel(); <-stopped })
	return p
}

// rest returns the remaining records of an engine that has ended.
func (p *pipeline) rest() (out []string) {
	close(p.got)
	for text := range p.got {
		out = append(out, text)
	}
	return out
}

func TestSourceReadsToTheEnd(t *testing.T) {
	var want []string
	for i := range 20_000 {
		want = append(want, strconv.Itoa(i+1))
	}
	want = append(want, "last")
	for options, once := range map[string]bool{
		"": true, "restart: never": false, "restart: on_failure": false,
	} {
		p := begin(t, "seq 20000; printf last; echo to the log >&2", options, once)
		if err := <-p.ended; err != nil {
			t.Errorf("%q: Run = %v", options, err)
		}
		if got := p.rest(); !slices.Equal(got, want) {
			t.Errorf("%q: %d records arrived, want %d in their order", options, len(got), len(want))
		}
	}
}

// TestSourceTimeoutOnce checks that a finite run ends a command that exceeds its timeout.
func TestSourceTimeoutOnce(t *testing.T) {
	p := begin(t, "echo one; sleep 1000", "every: 1h, timeout: 100ms", true)
	err := <-p.ended
	if err == nil || !strings.Contains(err.Error(), "ran longer than timeout: 100ms") {
		t.Errorf("Run = %v, want the exceeded timeout", err)
	}
	if got := p.rest(); !slices.Equal(got, []string{"one"}) {
		t.Errorf("delivered %q, want one", got)
	}
}

// TestSourceFails checks a finite run with a command that fails. The output of the command must be
// delivered. The error of the run must contain the exit status and the standard error.
func TestSourceFails(t *testing.T) {
	p := begin(t, "echo one; echo two; echo the disk is full >&2; exit 7", "", true)
	err := <-p.ended
	exit, ok := errors.AsType[*child.ExitError](err)
	if !ok || exit.Code != 7 || !strings.Contains(err.Error(), "the disk is full") {
		t.Errorf("Run = %v, want status 7 and standard error", err)
	}
	if got := p.rest(); !slices.Equal(got, []string{"one", "two"}) {
		t.Errorf("arrived %q", got)
	}
}

// direct is a source on a test host, without an engine.
type direct struct {
	host   *streamtest.Host
	source *exec.Source
	reader stream.Reader
}

func start(t *testing.T, change func(*exec.SourceOptions), command ...string) *direct {
	t.Helper()
	o := exec.DefaultSourceOptions()
	o.Command = command
	change(o)
	d := &direct{host: streamtest.NewHost(t)}
	var err error
	if d.source, err = exec.NewSource(*o, d.host); err != nil {
		t.Fatal(err)
	}
	d.reader, err = d.source.Open(t.Context(), stream.OpenOptions{
		Route:  streamtest.Route,
		Resume: func(string) (stream.Mark, bool) { return stream.Mark{}, false },
	})
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// read returns the next batch.
func (d *direct) read(t *testing.T) *stream.Batch {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	b := stream.NewBatch(stream.BatchLimits{})
	if err := d.reader.Read(ctx, b); err != nil && !errors.Is(err, io.EOF) {
		t.Fatal(err)
	}
	b.Split()
	return b
}

// take reads n records.
func (d *direct) take(t *testing.T, n int) (texts []string) {
	t.Helper()
	for len(texts) < n {
		b := d.read(t)
		for i := range b.Records {
			texts = append(texts, string(b.Text(i)))
		}
	}
	return texts
}

// TestSourceRestarts checks that a command is restarted after it ends, and that runs with a status
// other than 0 are counted as failed.
func TestSourceRestarts(t *testing.T) {
	t.Parallel()
	for status, failed := range map[string]int64{"0": 0, "3": 2} {
		d := start(t, func(*exec.SourceOptions) {}, "sh", "-c", "echo run; exit "+status)
		// a batch may have records of later runs, too
		if got := d.take(t, 3); !slices.Equal(got[:3], []string{"run", "run", "run"}) {
			t.Errorf("read %q", got)
		}
		if runs := d.host.Counted("runs"); runs < 3 {
			t.Errorf("%d runs, want 3 or more", runs)
		}
		if n := d.host.Counted("runs_failed"); n < failed || failed == 0 && n > 0 {
			t.Errorf("%d runs failed, want %d", n, failed)
		}
	}
}

// TestSourceSchedule checks that runs start on schedule, even after a failed run. A run that
// exceeds its timeout must be ended.
func TestSourceSchedule(t *testing.T) {
	t.Parallel()
	begun := time.Now()
	d := start(t, func(o *exec.SourceOptions) { o.Every = 100 * time.Millisecond },
		"sh", "-c", "echo tick; exit 1")
	d.take(t, 4)
	if took := time.Since(begun); took < 300*time.Millisecond {
		t.Errorf("4 runs in %v, want 3 pauses of 100ms", took)
	}
	if n := d.host.Counted("runs_failed"); n < 3 {
		t.Errorf("%d runs failed, want 3 or more", n)
	}
	limited := func(o *exec.SourceOptions) {
		o.Every, o.Timeout = 500*time.Millisecond, 400*time.Millisecond
	}
	d = start(t, limited, "sh", "-c", "echo tick; exec sleep 1000")
	d.take(t, 3)
	began := d.host.Counted("runs")
	n := d.host.Counted("runs_failed")
	if most := d.host.Counted("runs"); n < began-1 || n > most {
		t.Errorf("%d runs failed, want each of %d to %d but the running one", n, began, most)
	}
}

// TestSourceStopsFull checks records that the source has read and cannot submit when it stops. They
// count as lost, including the last one, which has no delimiter.
func TestSourceStopsFull(t *testing.T) {
	h := streamtest.NewQuiet(vfs.OS(), nil, func(string) bool { return false })
	o := exec.DefaultSourceOptions()
	o.Command = []string{"printf", `one\ntwo\nlast`}
	s, err := exec.NewSource(*o, h)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Reserve(t.Context(), int64(o.MaxWaiting)); err != nil {
		t.Fatal(err)
	}
	stopped, stop := context.WithCancel(t.Context())
	stop()
	if err := s.RunForTest(stopped, t.Context()); !errors.Is(err, context.Canceled) {
		t.Errorf("the run ended with %v, want %v", err, context.Canceled)
	}
	if lost := h.Counted("records_lost"); lost != 3 {
		t.Errorf("%d records count as lost, want 3", lost)
	}
	if !strings.Contains(h.Logged(), "records are lost") {
		t.Errorf("the loss is not logged:\n%s", h.Logged())
	}
}

// TestSourceNotReady checks a command that fails at each start. The process must not be ready
// between its first failure and the first run that writes a record.
func TestSourceNotReady(t *testing.T) {
	t.Parallel()
	mended := filepath.Join(t.TempDir(), "mended")
	script := "test -e " + mended + " || { echo struck >&2; exit 3; }; echo ok; exec sleep 1000"
	p := begin(t, script, "", false)
	runs := func(name string) int64 { return p.e.Status().Sources[0].Counters[name] }
	if !eventually(func() bool { return runs("runs_failed") > 0 }) {
		t.Fatal("the command does not run")
	}
	if !eventually(func() bool { return !p.e.Status().Ready }) {
		t.Fatal("the process is ready although the command fails")
	}
	const want = "p: source exec: sh: exit status 3"
	if !eventually(func() bool {
		s := p.e.Status()
		if s.Ready || !strings.Contains(strings.Join(s.Why, " "), want) {
			t.Errorf("after %d runs: ready is %v, because of %q", runs("runs"),
				s.Ready, s.Why)
		}
		return t.Failed() || runs("runs_failed") >= 4
	}) {
		t.Error("the command is not started again")
	}
	if err := os.WriteFile(mended, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if !eventually(func() bool { return p.e.Status().Ready }) {
		t.Errorf("mended, and not ready because of %q", p.e.Status().Why)
	}
	if got := <-p.got; got != "ok" {
		t.Errorf("read %q", got)
	}
}

func TestFollowing(t *testing.T) {
	planned := time.Unix(1000, 0)
	for _, c := range []struct {
		ran    time.Duration
		next   time.Duration
		missed int64
	}{
		{0, time.Minute, 0},
		{59 * time.Second, time.Minute, 0},
		{time.Minute, 2 * time.Minute, 1},
		{150 * time.Second, 3 * time.Minute, 2},
		{-time.Hour, time.Minute, 0}, // the clock was set back
	} {
		next, missed := exec.FollowingForTest(planned, planned.Add(c.ran), time.Minute)
		if next.Sub(planned) != c.next || missed != c.missed {
			t.Errorf("after %v: in %v, %d missed; want in %v, %d", c.ran,
				next.Sub(planned), missed, c.next, c.missed)
		}
	}
}

// TestSourceNDJSON checks that members become fields, and that a line that is not an object is
// dead-lettered.
func TestSourceNDJSON(t *testing.T) {
	d := start(t, func(o *exec.SourceOptions) { o.Format, o.Restart = exec.NDJSON, exec.Never },
		"printf", `%s\n`, `{"n":1,"t":"x"}`, `not json`, `{"n":2}`)
	b := d.read(t)
	if len(b.Records) != 3 || b.Kept() != 2 || b.Records[1].State != stream.Dead {
		t.Errorf("%d records of which %d are kept, want 3 and 2", len(b.Records), b.Kept())
	}
	if !slices.Equal(b.Names, []string{"n", "t"}) {
		t.Errorf("fields %q", b.Names)
	}
}

// TestSourcePushesBack checks that an endless command is read only up to max_waiting.
func TestSourcePushesBack(t *testing.T) {
	const most = 8 << 20
	d := start(t, func(o *exec.SourceOptions) { o.MaxWaiting = most }, "yes")
	if !eventually(func() bool { return d.source.Held() > most-(1<<20) }) {
		t.Errorf("%d bytes are held, want almost %d", d.source.Held(), most)
	}
	d.take(t, 100_000)
	if held := d.source.Held(); held > most {
		t.Errorf("%d bytes are held, at most %d are allowed", held, most)
	}
}

func TestSourceMissingProgram(t *testing.T) {
	d := start(t, func(*exec.SourceOptions) {}, "no-such-program")
	if !eventually(func() bool { return d.host.Counted("runs_failed") >= 2 }) {
		t.Error("the program is not started again")
	}
	start, ok := errors.AsType[*child.StartError](d.host.Faults()[0])
	if !ok || start.Program != "no-such-program" {
		t.Errorf("fault %v", d.host.Faults()[0])
	}
}

func TestSourceOptions(t *testing.T) {
	for options, want := range map[string]string{
		"":                          "exec.command is missing",
		"command: [ls -l]":          "is one word with a space",
		"command: [a], format: csv": `there is no "csv"`,
		"command: [a], every: 1ms":  "exec.every is 1ms, want 100ms to 744h0m0s, or 0",
		"command: [a], timeout: 1s": "exec.timeout is 1s, but only runs with every have a limit",
		"command: [a], every: 1m, restart: never":      "exec.restart is never, but with every",
		"command: [a], max_waiting: 1MiB":              "exec.max_waiting is 1MiB, want 8MiB",
		"command: [a], max_record: 32MiB":              "exec.max_record is 32MiB, want 1B to",
		"command: [a], format: ndjson, delimiter: nul": "exec.delimiter is nul, but ndjson",
	} {
		text := fmt.Sprintf("pipelines: {p: {source: {exec: {%s}}, sink: memory}}", options)
		_, err := engine.Parse([]byte(text), exec.SourceComponent(),
			memory.NewSink(memory.SinkOptions{}).Component())
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", options, err, want)
		}
	}
}
