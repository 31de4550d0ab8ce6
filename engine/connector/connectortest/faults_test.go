package connectortest_test

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/penstock-io/penstock/engine/connector/connectortest"
	"github.com/penstock-io/penstock/stream"
	"github.com/penstock-io/penstock/stream/streamtest"
)

// faults are connectors with one fault each, and the check of the suite that must find it.
var faults = map[string]struct {
	check string
	run   func(t *testing.T)
}{
	"ranges without records": {"reads ranges again", func(t *testing.T) {
		texts, want := testLines()
		connectortest.Source(t, connectortest.SourceCase{
			New:  func(*testing.T, *streamtest.Host) stream.Source { return rangeless{texts} },
			Want: want,
		})
	}},
	"ledger without recognition": {"keeps a ledger", func(t *testing.T) {
		connectortest.Sink(t, connectortest.SinkCase{
			Start: func(*testing.T) connectortest.Receiver {
				return (&table{forgets: true}).receiver()
			},
		})
	}},
}

const faultVariable = "CONNECTORTEST_FAULT"

// TestFaults checks that the suite finds faults of connectors. Each faulty connector runs in a
// process of its own, because its test must fail.
func TestFaults(t *testing.T) {
	if f, ok := faults[os.Getenv(faultVariable)]; ok {
		f.run(t)
		return
	}
	for name, f := range faults {
		t.Run(name, func(t *testing.T) {
			check := strings.ReplaceAll(f.check, " ", "_")
			run := "-test.run=^TestFaults$/^" + check + "$"
			cmd := exec.CommandContext(t.Context(), os.Args[0], run)
			cmd.Env = append(os.Environ(), faultVariable+"="+name)
			out, err := cmd.CombinedOutput()
			if _, failed := errors.AsType[*exec.ExitError](err); !failed {
				t.Errorf("the suite ended with %v:\n%s", err, out)
			}
			if !strings.Contains(string(out), "--- FAIL: TestFaults/"+check) {
				t.Errorf("want that the check %q fails:\n%s", f.check, out)
			}
		})
	}
}

// rangeless is a source whose readers find no records in ranges that are read again.
type rangeless struct{ lines }

func (s rangeless) Open(ctx context.Context, o stream.OpenOptions) (stream.Reader, error) {
	r, err := s.lines.Open(ctx, o)
	return rangelessReader{r}, err
}

type rangelessReader struct{ stream.Reader }

func (rangelessReader) CanReadRanges(string) bool { return true }

func (rangelessReader) ReadRanges(
	context.Context, *stream.Batch, stream.Partition, []stream.Range,
) error {
	return nil
}

// table is a database table with a ledger. Each sink of its receiver acts as a process that writes
// to the table.
type table struct {
	forgets bool // write a batch again although the ledger has it

	mu     sync.Mutex // guards the fields below
	owner  *tableSink
	rows   []string
	ledger map[string][]stream.Range // by partition, in order
}

func (d *table) receiver() connectortest.Receiver {
	d.ledger = make(map[string][]stream.Range)
	return connectortest.Receiver{
		New: func(_ *testing.T, h *streamtest.Host) stream.Sink {
			s := &tableSink{table: d, fenced: make(chan struct{})}
			h.Go("fence", func(ctx context.Context) error {
				select {
				case <-s.fenced:
					return stream.ErrTakenOver
				case <-ctx.Done():
					return nil
				}
			})
			return s
		},
		Received: func(*testing.T) []string {
			d.mu.Lock()
			defer d.mu.Unlock()
			return slices.Clone(d.rows)
		},
	}
}

// tableSink is one process.
type tableSink struct {
	*table
	fenced chan struct{} // closed when another process has loaded the ledger
}

func (s *tableSink) Open(_ context.Context, o stream.SinkOptions) error {
	o.Lanes([]stream.Lane{{Name: "table", Worker: s}})
	return nil
}

func (s *tableSink) Close() error { return nil }

func (s *tableSink) LedgerName() string { return "the table" }

func (s *tableSink) Load(context.Context) (marks []stream.Mark, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.owner != nil {
		close(s.owner.fenced)
	}
	s.owner = s
	for id, ranges := range s.ledger {
		m := stream.Mark{Part: stream.Partition{ID: id, Name: id}}
		for _, r := range ranges {
			if r.From == m.Watermark {
				m.Watermark = r.To
			} else {
				m.Above = append(m.Above, r)
			}
		}
		marks = append(marks, m)
	}
	return marks, nil
}

func (s *tableSink) Deliver(_ context.Context, a stream.Attempt) (stream.Report, error) {
	var rows []string
	b := a.Value
	b.Split()
	for _, i := range b.AppendKept(nil) {
		rows = append(rows, string(b.Text(i)))
	}
	return stream.Report{}, s.commit(b.Spans, rows)
}

func (s *tableSink) Store(_ context.Context, spans []stream.Span) error {
	return s.commit(spans, nil)
}

func (s *tableSink) commit(spans []stream.Span, rows []string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.owner != s {
		return stream.ErrTakenOver
	}
	for _, sp := range spans {
		if slices.Contains(s.ledger[sp.Part.ID], sp.Range) {
			if !s.forgets {
				return nil
			}
			continue
		}
		s.ledger[sp.Part.ID] = append(s.ledger[sp.Part.ID], sp.Range)
	}
	s.rows = append(s.rows, rows...)
	return nil
}

func (s *tableSink) Compact(context.Context, []stream.Mark) error { return nil }

func (s *tableSink) Prune(_ context.Context, ids []string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.owner != s {
		return stream.ErrTakenOver
	}
	for _, id := range ids {
		delete(s.ledger, id)
	}
	return nil
}

// TestSink runs the suite on correct sinks: on one with a ledger, and on one that writes in order
// and repeats batches after a kill.
func TestSink(t *testing.T) {
	t.Run("ledger", func(t *testing.T) {
		connectortest.Sink(t, connectortest.SinkCase{
			Start: func(*testing.T) connectortest.Receiver { return new(table).receiver() },
		})
	})
	t.Run("ordered", func(t *testing.T) {
		connectortest.Sink(t, connectortest.SinkCase{
			Start: func(*testing.T) connectortest.Receiver {
				var rows []string
				return connectortest.Receiver{
					New: func(*testing.T, *streamtest.Host) stream.Sink {
						return newOrderedSink(&rows)
					},
					Received: func(*testing.T) []string { return rows },
				}
			},
		})
	})
}

// orderedSink appends records in the order of the attempts' indexes.
type orderedSink struct {
	rows *[]string

	mu      sync.Mutex // guards the fields below and rows
	changed *sync.Cond
	run     uint32
	next    uint32 // index of the next attempt in this run
	failed  bool   // an attempt of this run has failed
}

func newOrderedSink(rows *[]string) *orderedSink {
	s := &orderedSink{rows: rows}
	s.changed = sync.NewCond(&s.mu)
	return s
}

func (s *orderedSink) Open(_ context.Context, o stream.SinkOptions) error {
	limits := stream.Limits{Ordered: true, InFlight: 4}
	o.Lanes([]stream.Lane{{Name: "ordered", Worker: s, Limits: limits}})
	return nil
}

func (s *orderedSink) Close() error { return nil }

func (s *orderedSink) Deliver(ctx context.Context, a stream.Attempt) (stream.Report, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	defer s.changed.Broadcast()
	if a.Run != s.run {
		s.run, s.next, s.failed = a.Run, 0, false
	}
	defer context.AfterFunc(ctx, s.changed.Broadcast)()
	for a.Index != s.next && !s.failed && ctx.Err() == nil {
		s.changed.Wait()
	}
	if s.next++; s.failed || ctx.Err() != nil {
		s.failed = true
		return stream.Report{}, errors.Join(context.Cause(ctx), errors.New("not in order"))
	}
	b := a.Value
	b.Split()
	for _, i := range b.AppendKept(nil) {
		*s.rows = append(*s.rows, string(b.Text(i)))
	}
	return stream.Report{}, nil
}

// failedTest is a test that records whether it has failed.
type failedTest struct {
	testing.TB
	failed bool
}

func (t *failedTest) Helper() {}

func (t *failedTest) Fatalf(string, ...any) {
	t.failed = true
	runtime.Goexit()
}

// TestSharedDoesNotStart checks that no test gets a shared server that has not started.
func TestSharedDoesNotStart(t *testing.T) {
	recipes := t.TempDir()
	dir := filepath.Join(recipes, "broken")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	script := []byte("#!/bin/sh\nexit 1\n")
	if err := os.WriteFile(filepath.Join(dir, "start.sh"), script, 0o700); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PENSTOCK_RECIPES", recipes)
	t.Setenv("TMPDIR", t.TempDir())
	server := connectortest.Shared{Name: "broken", Program: "sh"}
	for n := range 2 {
		test := &failedTest{TB: t}
		var done sync.WaitGroup
		done.Go(func() { server.Get(test) })
		if done.Wait(); !test.failed {
			t.Errorf("test %d got a server that has not started", n+1)
		}
	}
}
