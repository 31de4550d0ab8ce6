package spooldir_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/penstock-io/penstock/engine/connector/connectortest"
	"github.com/penstock-io/penstock/engine/connector/spooldir"
	"github.com/penstock-io/penstock/stream"
)

// dataFiles returns the paths of the real logs.
func dataFiles(t testing.TB) []string {
	t.Helper()
	dir := os.Getenv("PENSTOCK_DATA")
	if dir == "" {
		t.Skip("PENSTOCK_DATA does not name the folder of real logs")
	}
	names, err := filepath.Glob(filepath.Join(dir, "*.log"))
	if err != nil || len(names) == 0 {
		t.Fatalf("no logs in %s: %v", dir, err)
	}
	return names
}

// spoolData puts the real logs into a directory and returns the expected data of each, by name.
func spoolData(t testing.TB) (dir string, want map[string][]byte) {
	t.Helper()
	dir, want = t.TempDir(), make(map[string][]byte)
	for _, name := range dataFiles(t) {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		put(t, dir, filepath.Base(name), string(text))
		if !bytes.HasSuffix(text, []byte("\n")) {
			text = append(text, '\n')
		}
		want[filepath.Base(name)] = text
	}
	return dir, want
}

var someLimits = []stream.BatchLimits{{Bytes: 1 << 10}, {Bytes: 64 << 10}, {}, {Records: 7},
	{Bytes: 1 << 20, Records: 1000}}

// TestMissingAfterRestart checks that a start reports a partly delivered file that is gone, and
// reports it once.
func TestMissingAfterRestart(t *testing.T) {
	bubble(t, nil, func(t *testing.T, w *fixture) {
		put(t, w.dir, "a.log", "all of it is delivered\n")
		w.open(false)
		w.pump(5 * time.Second)
		w.close()
		path := put(t, w.dir, "b.log", longText())
		w.limits.Bytes = 1 << 10
		w.open(false)
		if err := w.step(t.Context()); err != nil {
			t.Fatal(err)
		}
		w.close()
		if err := os.Remove(path); err != nil {
			t.Fatal(err)
		}
		next := newFixture(t, w.dir, connectortest.FS(), nil)
		next.store = w.store
		next.open(false)
		next.pump(5 * time.Second)
		put(t, w.dir, "c.log", "new\n")
		next.pump(5 * time.Second)
		next.close()
		log := next.host.Logged()
		if got := strings.Count(log, "is missing, and was not delivered to its end"); got != 1 {
			t.Errorf("reported %d times, want once; the log:\n%s", got, log)
		}
		if got := next.host.Counted("files_vanished"); got != 1 {
			t.Errorf("files_vanished is %d, want 1", got)
		}
	})
}

// TestMissingReportedOncePerRoute checks that each route reports a missing file once, although
// routes open one after another and are restarted.
func TestMissingReportedOncePerRoute(t *testing.T) {
	bubble(t, nil, func(t *testing.T, w *fixture) {
		path := put(t, w.dir, "b.log", longText())
		w.limits.Bytes = 1 << 10
		w.open(false)
		if err := w.step(t.Context()); err != nil {
			t.Fatal(err)
		}
		w.close()
		if err := os.Remove(path); err != nil {
			t.Fatal(err)
		}
		first := newFixture(t, w.dir, connectortest.FS(), nil)
		first.store = w.store
		second := *first
		second.route, second.store = "other", w.store.clone()
		first.open(false)
		first.pump(100 * time.Millisecond)
		for range 3 {
			second.open(false)
			first.pump(5 * time.Second)
			second.pump(5 * time.Second)
			second.close()
		}
		first.close()
		first.open(false)
		first.pump(5 * time.Second)
		first.close()
		if got := first.host.Counted("files_vanished"); got != 2 {
			t.Errorf("files_vanished is %d, want 1 for each route; the log:\n%s", got, first.host.Logged())
		}
	})
}

// TestRealLogs checks that each real log is delivered byte for byte, whatever the size of the
// batches.
func TestRealLogs(t *testing.T) {
	dir, want := spoolData(t)
	for _, limits := range someLimits {
		w := newFixture(t, dir, connectortest.FS(),
			func(o *spooldir.Options) { o.Finished = "keep" })
		w.limits = limits
		records := 0
		w.onBatch = func(b *stream.Batch) { records += b.Origins }
		if err := w.once(); err != nil {
			t.Fatal(err)
		}
		lines := 0
		for id, data := range w.store.data {
			name := w.store.marks[id].Part.Name
			if !bytes.Equal(data, want[name]) {
				t.Errorf("limits %+v: %s: %d bytes came out, want %d, the same", limits, name,
					len(data), len(want[name]))
			}
			lines += bytes.Count(want[name], []byte("\n"))
		}
		if len(w.store.data) != len(want) || records != lines {
			t.Errorf("limits %+v: %d files and %d records, want %d and %d", limits,
				len(w.store.data), records, len(want), lines)
		}
	}
}

// covered is one batch of a run.
type covered struct {
	spans []stream.Span
	text  []string // content of each span
}

// readAll resumes from marks and reads to io.EOF.
func readAll(t *testing.T, h *host, dir string, limits stream.BatchLimits,
	marks map[string]stream.Mark) (out []covered) {
	t.Helper()
	src := h.source(options(dir, func(o *spooldir.Options) { o.Finished = "keep" }))
	s := newStore()
	s.marks = marks
	r, err := src.Open(t.Context(), s.options(true))
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	for {
		b := stream.NewBatch(limits)
		err := r.Read(t.Context(), b)
		if err != nil && err != io.EOF {
			t.Fatal(err)
		}
		c, at := covered{spans: b.Spans}, 0
		for _, s := range b.Spans {
			c.text = append(c.text, string(b.Data[at:at+s.Bytes]))
			at += s.Bytes
		}
		if out = append(out, c); err == io.EOF {
			return out
		}
	}
}

// TestResumeAnywhere kills a run after some batches, of which a random part is settled. The next
// run must deliver every unsettled line once, and must end each span where the first run ended a
// span of the same file.
func TestResumeAnywhere(t *testing.T) {
	dir, _ := spoolData(t)
	const seed = 20261121
	rng := rand.New(rand.NewPCG(seed, 0))
	h := newHost(t, connectortest.FS())
	for _, limits := range []stream.BatchLimits{{Bytes: 16 << 10}, {Records: 300}, {Bytes: 100 << 10, Records: 500}} {
		first := readAll(t, h, dir, limits, nil)
		whole, ends := make(map[string]string), make(map[string]bool)
		for _, c := range first {
			for i, s := range c.spans {
				whole[s.Part.ID] += c.text[i]
				ends[fmt.Sprint(s.Part.ID, s.To.Num)] = true
			}
		}
		for round := range 12 {
			kill := rng.IntN(len(first) + 1)
			marks, settled := make(map[string]stream.Mark), make(map[string]map[int64]string)
			for _, c := range first[:kill] {
				keep := rng.IntN(3) > 0
				for i, s := range c.spans {
					settleSpan(marks, s, keep)
					if settled[s.Part.ID] == nil {
						settled[s.Part.ID] = make(map[int64]string)
					}
					if keep {
						settled[s.Part.ID][s.From.Num] = c.text[i]
					}
				}
			}
			where := fmt.Sprintf("seed %d, limits %+v, round %d, killed after %d of %d batches",
				seed, limits, round, kill, len(first))
			for _, c := range readAll(t, h, dir, limits, marks) {
				for i, s := range c.spans {
					if !ends[fmt.Sprint(s.Part.ID, s.To.Num)] {
						t.Fatalf("%s: a batch of %s ends at %d, where none of the first run did",
							where, s.Part.Name, s.To.Num)
					}
					if s.From == s.To {
						continue
					}
					if settled[s.Part.ID] == nil {
						settled[s.Part.ID] = make(map[int64]string)
					}
					if _, twice := settled[s.Part.ID][s.From.Num]; twice {
						t.Fatalf("%s: %s from %d on came twice", where, s.Part.Name, s.From.Num)
					}
					settled[s.Part.ID][s.From.Num] = c.text[i]
				}
			}
			for id, want := range whole {
				if got := inOrder(settled[id]); got != want {
					t.Fatalf("%s: %d bytes of a file came out, want %d, the same", where, len(got), len(want))
				}
			}
		}
	}
}

// settleSpan adds a span to the marks (the progress of each partition). The span counts as settled
// if keep is set, otherwise only as read.
func settleSpan(marks map[string]stream.Mark, s stream.Span, keep bool) {
	m := marks[s.Part.ID]
	m.Part = *s.Part
	switch {
	case !keep || s.From == s.To:
	case m.Watermark == s.From && len(m.Above) == 0:
		m.Watermark = s.To
	case len(m.Above) > 0 && m.Above[len(m.Above)-1].To == s.From:
		m.Above[len(m.Above)-1].To = s.To
	default:
		m.Above = append(m.Above, s.Range)
	}
	marks[s.Part.ID] = m
}

func inOrder(pieces map[int64]string) string {
	var at []int64
	for k := range pieces {
		at = append(at, k)
	}
	slices.Sort(at)
	var b bytes.Buffer
	for _, k := range at {
		b.WriteString(pieces[k])
	}
	return b.String()
}

// TestRangeOfFinishedFile checks that a later run can read a batch of a finished file again,
// although this run has not read the file itself. If another file has the name now, the read must
// fail.
func TestRangeOfFinishedFile(t *testing.T) {
	t.Run("in the directory", func(t *testing.T) {
		testRangeOfFinishedFile(t, "a.log", "a.log.done", nil)
	})
	recursive := func(o *spooldir.Options) { o.Recursive = true }
	t.Run("in a subdirectory", func(t *testing.T) {
		testRangeOfFinishedFile(t, "x/y/a.log", "x/y/a.log.done", recursive)
	})
	moved := t.TempDir()
	t.Run("moved with its subdirectory", func(t *testing.T) {
		testRangeOfFinishedFile(t, "x/y/a.log", filepath.Join(moved, "x/y/a.log"),
			func(o *spooldir.Options) { o.Recursive, o.Finished, o.MoveTo = true, "move", moved })
	})
}

func testRangeOfFinishedFile(t *testing.T, name, finished string, change func(*spooldir.Options)) {
	dir := t.TempDir()
	if !filepath.IsAbs(finished) {
		finished = filepath.Join(dir, finished)
	}
	put(t, dir, name, "one\ntwo\nthree\n")
	w := newFixture(t, dir, connectortest.FS(), change)
	if err := w.once(); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(finished); err != nil {
		t.Fatal(err)
	}
	next := newFixture(t, dir, connectortest.FS(), change)
	next.store = w.store.clone()
	next.open(false)
	defer next.close()
	next.pump(500 * time.Millisecond)
	r, two := next.reader.(stream.RangeReader), stream.Range{}
	two.From.Num, two.To.Num = 4, 8
	read := func() (string, error) {
		b := stream.NewBatch(stream.BatchLimits{})
		for _, m := range w.store.marks {
			if err := r.ReadRanges(t.Context(), b, m.Part, []stream.Range{two}); err != nil {
				return "", err
			}
		}
		return string(b.Data), nil
	}
	if got, err := read(); got != "two\n" || err != nil {
		t.Errorf("the range is %q, %v; want two", got, err)
	}
	if err := os.Remove(finished); err != nil {
		t.Fatal(err)
	}
	put(t, filepath.Dir(finished), filepath.Base(finished), "one\n222\nfour\n")
	if got, err := read(); !errors.Is(err, stream.ErrRangeMissing) {
		t.Errorf("the range of another file is %q, %v", got, err)
	}
}
