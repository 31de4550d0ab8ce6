package intake_test

import (
	"bytes"
	"fmt"
	"runtime"
	"testing"

	"github.com/penstock-io/penstock/engine/kit/intake"
	"github.com/penstock-io/penstock/stream"
	"github.com/penstock-io/penstock/stream/streamtest"
)

// TestBufferWaitsForEveryRoute checks that the memory of a submission is not reused before the last
// route has read it. A batch has a copy of the data, which must stay unchanged when the memory is
// reused.
func TestBufferWaitsForEveryRoute(t *testing.T) {
	const rounds, size = 50, 4000
	h := quiet()
	h.SetRoutes("p/a", "p/b")
	in := newIntake(t, intake.Options{}, h)
	a, b := open(t, in, "p/a", nil), open(t, in, "p/b", nil)
	a.limits = stream.BatchLimits{Bytes: 2 * size, Records: 1}
	b.limits = a.limits
	text := func(n int) string { return string(bytes.Repeat([]byte{byte('a' + n%26)}, size-1)) }
	var late *stream.Batch
	for n := range rounds {
		for range 2 {
			data := intake.Buffer(size)
			if len(data) != 0 || cap(data) < size {
				t.Fatalf("Buffer(%d) has length %d and capacity %d", size, len(data), cap(data))
			}
			submit(t, in, intake.Lines(append(append(data, text(n)...), '\n')))
		}
		for _, r := range []*route{a, b} {
			for k := range 2 {
				got, batch := r.read()
				if len(got) != 1 || got[0] != text(n) {
					t.Fatalf("round %d: route %s read %.10q", n, r.name, got)
				}
				if r == a || k == 0 {
					r.settle(batch)
					continue
				}
				// Route b settles this batch one round later.
				if late != nil {
					if old := string(late.Data); old != text(n-1)+"\n" {
						t.Fatalf("round %d: the batch of the last round is %.10q now", n, old)
					}
					r.settle(late)
				}
				late = batch
			}
		}
	}
	b.settle(late)
	if in.Held() != 0 {
		t.Errorf("%d bytes held", in.Held())
	}
}

// TestBufferCapacity checks that small texts do not use large buffers, because the limit of the
// intake does not count the rest of a buffer.
func TestBufferCapacity(t *testing.T) {
	in := newIntake(t, intake.Options{}, quiet())
	r := open(t, in, streamtest.Route, nil)
	r.limits = stream.BatchLimits{Bytes: 1 << 30, Records: 1}
	sizes := []int64{1 << 20, 100, 64 << 10, 1, 300 << 10, 200 << 10, 70 << 10, 1 << 20}
	for _, size := range sizes {
		t.Run(fmt.Sprint(size), func(t *testing.T) {
			data := intake.Buffer(size)
			if n := int64(cap(data)); n < size || n >= 2*size {
				t.Errorf("Buffer(%d) has a capacity of %d", size, n)
			}
			data = data[:size]
			for k := range data {
				data[k] = 'x'
			}
			data[size-1] = '\n'
			submit(t, in, intake.Lines(data))
			_, b := r.read()
			r.settle(b)
		})
	}
}

// TestBuffersAreReused checks that a busy source allocates no new texts.
func TestBuffersAreReused(t *testing.T) {
	const rounds, size = 400, 1 << 20
	in := newIntake(t, intake.Options{}, quiet())
	r := open(t, in, streamtest.Route, nil)
	r.limits = stream.BatchLimits{Bytes: 64, Records: 1}
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	for range rounds {
		submit(t, in, intake.Lines(append(intake.Buffer(size), "x\n"...)))
		_, batch := r.read()
		r.settle(batch)
	}
	runtime.ReadMemStats(&after)
	// Up to half of the bytes may be allocated again. The reasons are that a garbage collection may
	// free a buffer, and that the race detector makes the pool drop one buffer in four.
	if got := after.TotalAlloc - before.TotalAlloc; got > rounds*size/2 {
		t.Errorf("%d bytes were allocated for %d texts of %d", got, rounds, size)
	}
}
