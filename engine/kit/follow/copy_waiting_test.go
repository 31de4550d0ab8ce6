package follow_test

import (
	"math/rand/v2"
	"testing"
	"testing/synctest"

	"github.com/penstock-io/penstock/engine/kit/follow"
	"github.com/penstock-io/penstock/stream"
)

// TestCopyHasWaitingData checks a copy that lacks a line that was read in its original. An earlier
// line, which the copy has, waits for a retry. It must be readable until it is delivered. After
// that, the copy must be read to its end and the partition of the original must end.
func TestCopyHasWaitingData(t *testing.T) {
	for name, restarts := range map[string]bool{"running": false, "the route restarts": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { copyHasWaitingData(t, restarts) })
		})
	}
}

func copyHasWaitingData(t *testing.T, restarts bool) {
	d, other, _ := twoRoutes(t, follow.Growing{})
	stop(t, other)
	s := d.set(follow.Growing{})
	s.BeginRun()
	t.Cleanup(s.EndRun)
	a := d.open(s, "a", nil)
	a.unordered = newUnordered(rand.New(rand.NewPCG(1, 1)))
	d.put(t, "a.log", "1 one\n")
	a.readInFlight(t)
	a.settleLast()
	d.put(t, "a.log", "2 two\n")
	a.readInFlight(t)
	part := *a.unordered.flight[0].Spans[0].Part
	d.copyTruncate(t, "a.log", "a.log.1", func() {
		d.put(t, "a.log", "3 in no file\n")
		a.readInFlight(t)
	})
	m := a.marks[part.ID]
	m.Watermark.Num, m.Waiting = 25, true
	a.marks[part.ID] = m // Commit gets only the progress before the waiting line
	if restarts {
		stop(t, a)
		a = d.open(s, "a", a.marks)
	}
	a.unordered = newUnordered(rand.New(rand.NewPCG(1, 1)))
	for range 3 {
		for a.readInFlight(t) {
			a.settleLast()
		}
	}
	b := stream.NewBatch(stream.BatchLimits{})
	second := stream.Range{From: stream.Position{Num: 6}, To: stream.Position{Num: 12}}
	err := follow.ReadRanges(a.Reader, b, part, []stream.Range{second})
	if got := string(b.AppendRaw(nil)); err != nil || got != "2 two\n" {
		t.Errorf("ReadRanges: %q, %v; the log:\n%s", got, err, &d.log)
	}
	m.Waiting = false
	a.save(m)
	for a.readInFlight(t) {
		a.settleLast()
	}
	if !a.HasEnded(part.ID) {
		t.Errorf("the partition of the original has not ended; the log:\n%s", &d.log)
	}
	stop(t, a)
}
