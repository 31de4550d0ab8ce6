package spooldir_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/penstock-io/penstock/engine/connector/spooldir"
	"github.com/penstock-io/penstock/stream"
	"github.com/penstock-io/penstock/stream/streamtest"
	"github.com/penstock-io/penstock/vfs"
)

// host is a stream.Host that works within a synctest bubble.
type host struct{ *streamtest.Quiet }

// newHost returns a host that runs the decompression goroutines, but no watcher.
func newHost(t testing.TB, files vfs.FS) *host {
	return &host{streamtest.NewQuiet(files, t.Output(),
		func(name string) bool { return name == "unpack" })}
}

func (h *host) source(o *spooldir.Options) stream.Source { return must(newSource(h, o)) }

func newSource(h stream.Host, o *spooldir.Options) (stream.Source, error) {
	s, err := spooldir.Source().New(o, h)
	if err != nil {
		return nil, err
	}
	return s.(stream.Source), nil
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

// store is the content of a route's checkpoint. It settles in read order.
type store struct {
	marks map[string]stream.Mark
	names map[string][]string // of each partition, one for each span
	data  map[string][]byte   // delivered data of each
	order []string            // partitions by their first bytes
}

func newStore() *store {
	return &store{marks: make(map[string]stream.Mark), names: make(map[string][]string),
		data: make(map[string][]byte)}
}

// clone returns the part that survives a crash.
func (s *store) clone() *store {
	c := &store{marks: maps.Clone(s.marks), names: maps.Clone(s.names),
		data: make(map[string][]byte), order: slices.Clone(s.order)}
	for id, data := range s.data {
		c.data[id] = slices.Clone(data)
	}
	return c
}

func (s *store) options(once bool) stream.OpenOptions {
	marks := maps.Clone(s.marks)
	return stream.OpenOptions{
		Route: streamtest.Route, Once: once,
		Resume: func(id string) (stream.Mark, bool) { m, ok := marks[id]; return m, ok },
		Known:  maps.Values(marks),
	}
}

// fixture is a test fixture with one route over one directory: a reader, and an engine that settles
// each batch at once.
type fixture struct {
	t       testing.TB
	dir     string
	host    *host
	src     stream.Source
	reader  stream.Reader
	store   *store
	route   string // "": the usual one
	limits  stream.BatchLimits
	finish  bool                        // call Finish for sealed partitions
	pending map[string]stream.Partition // sealed, not finished yet
	refused []error                     // errors of Finish
	dead    []string                    // reasons of dead letters
	batches []string                    // content of each batch
	onBatch func(b *stream.Batch)
}

func newFixture(t testing.TB, dir string, files vfs.FS, change func(*spooldir.Options)) *fixture {
	w := &fixture{
		t: t, dir: dir, host: newHost(t, files), store: newStore(), finish: true,
		pending: make(map[string]stream.Partition),
	}
	w.src = w.host.source(options(dir, change))
	return w
}

func (w *fixture) open(once bool) *fixture {
	w.t.Helper()
	o := w.store.options(once)
	o.Route = cmp.Or(w.route, o.Route)
	r, err := w.src.Open(w.t.Context(), o)
	if err != nil {
		w.t.Fatal(err)
	}
	w.reader = r
	return w
}

func (w *fixture) close() {
	w.t.Helper()
	if err := w.reader.Close(); err != nil {
		w.t.Errorf("Close: %v", err)
	}
}

var errEnough = errors.New("enough")

// pump reads, settles, commits and finishes files for the duration d.
func (w *fixture) pump(d time.Duration) {
	w.t.Helper()
	for end := time.Now().Add(d); ; {
		left := time.Until(end)
		ctx, cancel := context.WithTimeoutCause(w.t.Context(), min(left, 250*time.Millisecond),
			errEnough)
		err := w.step(ctx)
		cancel()
		w.finishAll()
		if err == io.EOF || time.Until(end) <= 0 {
			return
		}
		if err != nil && !errors.Is(err, errEnough) {
			w.t.Fatalf("Read: %v", err)
		}
	}
}

// once reads to io.EOF.
func (w *fixture) once() error {
	w.t.Helper()
	w.open(true)
	defer w.close()
	for {
		err := w.step(w.t.Context())
		w.finishAll()
		if err == io.EOF {
			return nil
		} else if err != nil {
			return err
		}
	}
}

// step reads one batch and settles it.
func (w *fixture) step(ctx context.Context) error {
	b := stream.NewBatch(w.limits)
	err := w.reader.Read(ctx, b)
	if err != nil && err != io.EOF {
		return err
	}
	if err == nil && len(b.Spans) == 0 {
		w.t.Fatal("Read returned nil and nothing")
	}
	if w.onBatch != nil {
		w.onBatch(b)
	}
	w.settle(b)
	return err
}

func (w *fixture) settle(b *stream.Batch) {
	w.t.Helper()
	at := 0
	for _, s := range b.Spans {
		m := w.store.marks[s.Part.ID]
		if m.Watermark != s.From {
			w.t.Fatalf("span %+v of %s follows %v", s.Range, s.Part.Name, m.Watermark)
		}
		if m.Part.Name != s.Part.Name {
			w.store.names[s.Part.ID] = append(w.store.names[s.Part.ID], s.Part.Name)
		}
		if _, ok := w.store.data[s.Part.ID]; !ok {
			w.store.order = append(w.store.order, s.Part.ID)
		}
		w.store.data[s.Part.ID] = append(w.store.data[s.Part.ID], b.Data[at:at+s.Bytes]...)
		at += s.Bytes
		if m.Finished && s.From != s.To {
			m.Finished = false
		}
		m.Part, m.Watermark = *s.Part, s.To
		m.Metadata = w.reader.(stream.PartitionTracker).Metadata(m)
		w.store.marks[s.Part.ID] = m
		if s.Last {
			w.pending[s.Part.ID] = *s.Part
		}
	}
	if at != len(b.Data) {
		w.t.Fatalf("spans count %d bytes of %d", at, len(b.Data))
	}
	for i := range b.Records {
		if b.Records[i].State == stream.Dead {
			w.dead = append(w.dead, b.Reason(i).Error())
		}
	}
	w.batches = append(w.batches, string(b.AppendSpans(nil)))
	var marks []stream.Mark
	for _, s := range b.Spans {
		marks = append(marks, w.store.marks[s.Part.ID])
	}
	if err := w.reader.Commit(w.t.Context(), marks); err != nil {
		w.t.Errorf("Commit: %v", err)
	}
}

func (w *fixture) finishAll() {
	if !w.finish {
		return
	}
	finisher, ok := w.src.(stream.Finisher)
	ok = ok && finisher.Finishes() // otherwise sealed partitions are finished
	for _, id := range slices.Sorted(maps.Keys(w.pending)) {
		if ok {
			if err := finisher.Finish(w.t.Context(), w.pending[id]); err != nil {
				w.refused = append(w.refused, err)
				continue
			}
		}
		delete(w.pending, id)
		m := w.store.marks[id]
		m.Finished = true
		w.store.marks[id] = m
	}
}

// texts returns the last name and the delivered data of each partition, ordered by first delivery.
func (w *fixture) texts() []string {
	var out []string
	for _, id := range w.store.order {
		out = append(out, fmt.Sprintf("%s: %s", w.store.marks[id].Part.Name, w.store.data[id]))
	}
	return out
}

func (w *fixture) want(want ...string) {
	w.t.Helper()
	if got := w.texts(); !slices.Equal(got, want) {
		w.t.Errorf("delivered %q\nwant %q", got, want)
	}
}

// ls returns the names in the directory, without the lock.
func (w *fixture) ls() []string {
	w.t.Helper()
	var out []string
	err := filepath.WalkDir(w.dir, func(path string, d os.DirEntry, err error) error {
		if err == nil && !d.IsDir() && d.Name() != ".penstock.lock" {
			rel, _ := filepath.Rel(w.dir, path)
			out = append(out, rel)
		}
		return err
	})
	if err != nil {
		w.t.Fatal(err)
	}
	return out
}

func (w *fixture) wantFiles(want ...string) {
	w.t.Helper()
	if got := w.ls(); !slices.Equal(got, want) {
		w.t.Errorf("the directory holds %q, want %q", got, want)
	}
}
