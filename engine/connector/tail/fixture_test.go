package tail_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/penstock-io/penstock/engine/connector/connectortest"
	"github.com/penstock-io/penstock/engine/connector/tail"
	"github.com/penstock-io/penstock/stream"
	"github.com/penstock-io/penstock/stream/streamtest"
)

// newHost returns a host for a synctest bubble. It runs every goroutine except the watcher.
func newHost() *streamtest.Quiet {
	return streamtest.NewQuiet(connectortest.FS(), nil,
		func(name string) bool { return name != "tail/notify" })
}

// fixture is a test fixture: a process that tails a folder, its checkpoint, and two receivers. When
// the process restarts, one receiver drops the lines after the saved checkpoint, as a sink for
// files or tables does. The other receiver keeps all lines, like an HTTP server.
type fixture struct {
	t      *testing.T
	dir    string
	change func(*tail.Options)
	host   *streamtest.Quiet
	reader stream.Reader // nil while the process is down

	mu      sync.Mutex // guards saved: the source reads it while other routes save
	saved   map[string]stream.Mark
	exact   []string
	sent    map[string]int
	marks   map[string]stream.Mark // settled and not saved yet
	lines   []string               // delivered and not saved yet
	skipped []string               // delivered spans without bytes
	limits  stream.BatchLimits
	lag     time.Duration // how often the checkpoint is saved
	last    time.Time     // when it was last saved
	failed  error
	second  *fixture // another route of the same source; nil: there is none
	route   string
	source  stream.Source
}

// withSecond gives the source one more route, and returns its fixture.
func (w *fixture) withSecond() *fixture {
	w.second = newFixture(w.t, w.dir, w.change)
	w.second.host, w.second.limits, w.second.route = w.host, w.limits, w.route+"+"
	return w.second
}

func newFixture(t *testing.T, dir string, change func(*tail.Options)) *fixture {
	return &fixture{
		t: t, dir: dir, change: change, host: newHost(), saved: make(map[string]stream.Mark),
		sent:  make(map[string]int),
		marks: make(map[string]stream.Mark), lag: time.Second, route: "main",
	}
}

func (w *fixture) options() *tail.Options {
	o := tail.Source().Options().(*tail.Options)
	o.Include = []string{filepath.Join(w.dir, "*.log")}
	if w.change != nil {
		w.change(o)
	}
	for i, g := range o.Include {
		if !filepath.IsAbs(g) {
			o.Include[i] = filepath.Join(w.dir, g)
		}
	}
	return o
}

// start begins a process.
func (w *fixture) start(once bool) {
	w.t.Helper()
	w.setRoutes()
	src, err := tail.Source().New(w.options(), w.host)
	if err != nil {
		w.t.Fatal(err)
	}
	for m := w; m != nil; m = m.second {
		m.open(src.(stream.Source), once)
	}
}

// begin starts a process without opening its routes.
func (w *fixture) begin() {
	w.t.Helper()
	w.setRoutes()
	src, err := tail.Source().New(w.options(), w.host)
	if err != nil {
		w.t.Fatal(err)
	}
	for m := w; m != nil; m = m.second {
		m.source = src.(stream.Source)
	}
}

func (w *fixture) setRoutes() {
	var names []string
	for m := w; m != nil; m = m.second {
		names = append(names, m.route)
	}
	w.host.SetRoutes(names...)
	w.host.SetProgress(func(route string) (stream.OpenOptions, error) {
		for m := w; m != nil; m = m.second {
			if m.route == route {
				return m.progress(), nil
			}
		}
		return stream.OpenOptions{}, fmt.Errorf("there is no route %q", route)
	})
}

// open opens one route of a process.
func (w *fixture) open(src stream.Source, once bool) {
	w.t.Helper()
	w.source = src
	o := w.progress()
	o.Once = once
	var err error
	w.reader, err = src.Open(w.t.Context(), o)
	if err != nil {
		w.t.Fatal(err)
	}
	w.last = time.Now()
}

// progress returns the saved progress of the route.
func (w *fixture) progress() stream.OpenOptions {
	w.mu.Lock()
	defer w.mu.Unlock()
	marks := maps.Clone(w.saved)
	return stream.OpenOptions{
		Route: w.route, Known: maps.Values(marks),
		Resume: func(id string) (stream.Mark, bool) {
			m, ok := marks[id]
			m.Part.ID = id // also if there is none, like the engine
			return m, ok
		},
	}
}

// kill ends the process and drops unsaved lines.
func (w *fixture) kill() {
	w.t.Helper()
	w.close()
	w.host.Stop()
}

// close closes the readers of all routes, as if the routes had failed.
func (w *fixture) close() {
	w.t.Helper()
	for m := w; m != nil; m = m.second {
		if m.reader == nil {
			continue
		}
		if err := m.reader.Close(); err != nil {
			m.t.Errorf("Close: %v", err)
		}
		m.reader, m.lines = nil, nil
		clear(m.marks)
	}
}

// reopen restarts the routes after close, in the same process.
func (w *fixture) reopen() {
	w.t.Helper()
	for m := w; m != nil; m = m.second {
		m.open(m.source, false)
	}
}

var errEnough = errors.New("enough")

// pump lets the process run for d.
func (w *fixture) pump(d time.Duration) {
	w.t.Helper()
	if m := w.second; m != nil {
		m.lag = w.lag
		done := make(chan struct{})
		go func() {
			defer close(done)
			m.pump(d)
		}()
		defer func() { <-done }()
	}
	for end := time.Now().Add(d); w.failed == nil; {
		left := time.Until(end)
		if left <= 0 {
			return
		}
		ctx, cancel := context.WithTimeoutCause(w.t.Context(), min(left, w.lag), errEnough)
		err := w.step(ctx)
		cancel()
		if time.Since(w.last) >= w.lag {
			w.save()
		}
		if err != nil && !errors.Is(err, errEnough) {
			w.failed = err
		}
	}
}

// step reads one batch, delivers and settles it.
func (w *fixture) step(ctx context.Context) error {
	b := stream.NewBatch(w.limits)
	err := w.reader.Read(ctx, b)
	if err != nil && err != io.EOF {
		return err
	}
	if failed := w.deliver(b); failed != nil {
		return failed
	}
	return err
}

// deliver delivers and settles a batch.
func (w *fixture) deliver(b *stream.Batch) error {
	b.Split()
	for i := range b.Records {
		text := string(b.Text(i))
		w.lines = append(w.lines, text)
		w.sent[text]++
	}
	for _, s := range b.Spans {
		m, ok := w.marks[s.Part.ID]
		if !ok {
			m = w.saved[s.Part.ID]
		}
		if m.Watermark != s.From {
			return fmt.Errorf("span %+v of %s follows %v; the log:\n%s", s.Range, s.Part.Name,
				m.Watermark, w.host.Logged())
		}
		if s.Bytes == 0 && s.From != s.To {
			w.skipped = append(w.skipped, fmt.Sprint(filepath.Base(s.Part.Name), s.Range))
		}
		m.Part, m.Watermark, m.Finished = *s.Part, s.To, s.Last
		w.marks[s.Part.ID] = m
	}
	return nil
}

// save makes settled progress durable, and drops the progress of deleted files, as the engine does.
func (w *fixture) save() {
	w.t.Helper()
	w.last = time.Now()
	w.mu.Lock()
	defer w.mu.Unlock()
	for id, m := range w.marks {
		m.Metadata = w.reader.(stream.PartitionTracker).Metadata(m)
		if len(m.Metadata) > stream.MaxMetadata {
			w.t.Errorf("a note of %d bytes", len(m.Metadata))
		}
		w.saved[id] = m
	}
	if err := w.reader.Commit(w.t.Context(), slices.Collect(maps.Values(w.marks))); err != nil {
		w.t.Errorf("Commit: %v", err)
	}
	clear(w.marks)
	w.exact = append(w.exact, w.lines...)
	w.lines = nil
	for _, id := range w.reader.(stream.PartitionTracker).Deleted() {
		delete(w.saved, id)
	}
}

// want compares the lines at the receiver that drops unsaved lines with the expected lines, in any
// order.
func (w *fixture) want(lines ...string) {
	w.t.Helper()
	got, want := slices.Sorted(slices.Values(w.exact)), slices.Sorted(slices.Values(lines))
	if !slices.Equal(got, want) {
		w.t.Errorf("delivered %s; the log:\n%s", differ(got, want), w.host.Logged())
	}
}

// differ returns the missing and the surplus lines of got, which is sorted.
func differ(got, want []string) string {
	count := make(map[string]int)
	for _, s := range want {
		count[s]++
	}
	for _, s := range got {
		count[s]--
	}
	var missing, more []string
	for _, s := range slices.Sorted(maps.Keys(count)) {
		for range count[s] {
			missing = append(missing, s)
		}
		for range -count[s] {
			more = append(more, s)
		}
	}
	cut := func(list []string) string {
		if len(list) > 6 {
			return fmt.Sprintf("%.60q and %d more", list[:6], len(list)-6)
		}
		return fmt.Sprintf("%.60q", list)
	}
	return fmt.Sprintf("%d lines, want %d: missing %s, too many %s", len(got), len(want),
		cut(missing), cut(more))
}

func write(t testing.TB, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}
