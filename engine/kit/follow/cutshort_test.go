package follow_test

import (
	"context"
	"errors"
	"io"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/penstock-io/penstock/engine/kit/follow"
	"github.com/penstock-io/penstock/stream"
)

// readAll calls Read once with ctx and then with the test's context, until a Read returns nothing
// within d. It returns the lines of the first and of the later calls.
func readAll(t *testing.T, r *follow.Reader, ctx context.Context, d time.Duration) (first, rest []string) {
	t.Helper()
	for {
		b := stream.NewBatch(stream.BatchLimits{})
		err := r.Read(ctx, b)
		if err != nil && len(b.Spans) > 0 {
			t.Errorf("Read returned %v with %d spans in its batch", err, len(b.Spans))
		}
		text := strings.FieldsFunc(string(b.Data), func(c rune) bool { return c == '\n' })
		if first == nil {
			first = append([]string{}, text...)
		} else if rest = append(rest, text...); err != nil {
			return first, rest
		}
		next, cancel := context.WithTimeout(t.Context(), d)
		defer cancel()
		ctx = next
	}
}

// TestReadCutShort checks that every line is delivered exactly once, wherever in Read its ctx ends.
// Read then returns the data taken so far, because the reader is already past it.
func TestReadCutShort(t *testing.T) {
	cut := errors.New("cut short")
	for _, tt := range []struct {
		name   string
		linger time.Duration
		at     string // ctx ends at the first read of this file; "" means after a second
		first  int    // minimum number of lines from the Read that was cut short
	}{
		{"while it lingers", 10 * time.Second, "", 4},
		{"between two files", 0, "b.log", 2},
		{"between two files, with time to linger", 10 * time.Second, "b.log", 2},
		{"in the first file", 0, "a.log", 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				d, _, _ := twoRoutes(t, follow.Growing{})
				d.put(t, "a.log", "1 one\n2 two\n")
				d.put(t, "b.log", "3 three\n4 four\n")
				r := d.set(follow.Growing{}).Open(stream.OpenOptions{Linger: tt.linger})
				defer r.Close()
				ctx, cancel := context.WithCancelCause(t.Context())
				defer cancel(nil)
				if tt.at == "" {
					ended, stop := context.WithTimeoutCause(ctx, time.Second, cut)
					defer stop()
					ctx = ended
				}
				d.hook = func(name string) {
					if name == tt.at {
						cancel(cut)
					}
				}
				first, rest := readAll(t, r, ctx, 20*time.Second)
				if len(first) < tt.first {
					t.Errorf("the Read that was cut short handed out %q, want %d lines or more", first, tt.first)
				}
				got := slices.Sorted(slices.Values(append(first, rest...)))
				if want := []string{"1 one", "2 two", "3 three", "4 four"}; !slices.Equal(got, want) {
					t.Errorf("cut short: %q, then %q, together %q, want %q", first, rest, got, want)
				}
			})
		})
	}
}

// TestReadFailsAfterLinesWereTaken checks that a temporarily unreadable file does not delay lines
// taken before it, and that none of its own lines are lost.
func TestReadFailsAfterLinesWereTaken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, _, _ := twoRoutes(t, follow.Growing{})
		d.put(t, "a.log", "1 one\n2 two\n")
		d.put(t, "b.log", "3 three\n4 four\n")
		reads := 0
		d.fault = func(name string) error {
			if name != "b.log" {
				return nil
			}
			switch reads++; reads {
			case 2: // the head was read, the records are not
				return io.ErrUnexpectedEOF
			case 3, 4:
				return errors.New("input/output error")
			}
			return nil
		}
		r := d.set(follow.Growing{}).Open(stream.OpenOptions{})
		defer r.Close()
		first, rest := readAll(t, r, t.Context(), 20*time.Second)
		got := slices.Sorted(slices.Values(append(first, rest...)))
		if want := []string{"1 one", "2 two", "3 three", "4 four"}; !slices.Equal(got, want) || reads < 5 {
			t.Errorf("%q, then %q, together %q after %d reads of b.log, want %q; the log:\n%s",
				first, rest, got, reads, want, &d.log)
		}
	})
}

// TestCopyIsKnownBeforeItsOriginalIsGivenUp checks a copy that is shorter than the read data of its
// original. The original is given up in a batch that has no room for data of the copy, because
// another file comes first. Even so, the next process must not treat the copy as a new file.
func TestCopyIsKnownBeforeItsOriginalIsGivenUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, r, other := twoRoutes(t, follow.Growing{})
		stop(t, other)
		d.hidden = "old"
		var batches []*stream.Batch // their marks are saved together
		read := func(bytes int) {
			b := stream.NewBatch(stream.BatchLimits{Bytes: bytes})
			if err := r.Read(t.Context(), b); err != nil {
				t.Fatal(err)
			}
			batches = append(batches, b)
		}
		for _, text := range []string{three[:6], three[6:]} {
			d.put(t, "a.log", text)
			read(0)
		}
		d.empty(t, "a.log")
		r.run(t, 8*time.Millisecond) // one listing
		time.Sleep(3 * time.Second)  // until a.log.old is no longer expected to grow
		d.put(t, "a.log.old", three[:6])
		d.put(t, "0.log", strings.Repeat("0 much\n", 10))
		d.age(t, "0.log")
		read(8)
		for _, b := range batches {
			r.deliver(b)
		}
		stop(t, r)
		if log := d.log.String(); !strings.Contains(log, "copy of a rotated file") {
			t.Errorf("the copy was not found; the log:\n%s", log)
		}
		d.hidden = ""
		r2 := newRoute(t, d.set(follow.Growing{}), r.marks)
		r2.run(t, 20*time.Second)
		r2.lines = slices.DeleteFunc(r2.lines, func(line string) bool { return line == "0 much" })
		r2.want(t, d)
	})
}

// TestIncompleteCopyIsAwaited checks that no line is lost or delivered twice if a copy is found
// while it is being written. At first, the copy has the bytes of the first of two batches in
// flight, and only some bytes of the second one.
func TestIncompleteCopyIsAwaited(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, r, other := twoRoutes(t, follow.Growing{})
		stop(t, other)
		var inFlight []*stream.Batch
		for _, text := range []string{three[:6], three[6:]} {
			d.put(t, "a.log", text)
			b := stream.NewBatch(stream.BatchLimits{})
			if err := r.Read(t.Context(), b); err != nil {
				t.Fatal(err)
			}
			inFlight = append(inFlight, b)
		}
		d.empty(t, "a.log")
		d.put(t, "a.log", "4 four\n")
		r.run(t, 500*time.Millisecond)
		d.put(t, "a.log.1", three[:10])
		r.run(t, 500*time.Millisecond)
		d.put(t, "a.log.1", three[10:])
		r.run(t, 20*time.Second)
		for _, b := range inFlight {
			r.deliver(b)
		}
		r.run(t, time.Second)
		r.want(t, d, "1 one", "2 two", "3 three", "4 four")
	})
}

// TestShorterCopyIsKnownAfterASave checks a copy with fewer bytes than were read of its original.
// The copy must be recognised even if all read data was saved before the copy is looked at.
func TestShorterCopyIsKnownAfterASave(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, r, other := twoRoutes(t, follow.Growing{})
		stop(t, other)
		var inFlight []*stream.Batch
		for _, text := range []string{three[:6], three[6:]} {
			d.put(t, "a.log", text)
			b := stream.NewBatch(stream.BatchLimits{})
			if err := r.Read(t.Context(), b); err != nil {
				t.Fatal(err)
			}
			inFlight = append(inFlight, b)
		}
		d.empty(t, "a.log")
		r.run(t, 500*time.Millisecond)
		for _, b := range inFlight {
			r.deliver(b)
		}
		d.put(t, "a.log.1", three[:6])
		r.run(t, 20*time.Second)
		r.want(t, d, "1 one", "2 two", "3 three")
	})
}
