package pipeline

import (
	"testing"
	"time"

	"github.com/penstock-io/penstock/engine/internal/waiting"
	"github.com/penstock-io/penstock/stream"
)

// TestMissingRanges checks the time for which data has been missing. This time is counted for each
// partition separately, and starts again from zero after an attempt with another error.
func TestMissingRanges(t *testing.T) {
	in := func(part string) *waiting.Range {
		return &waiting.Range{Part: stream.Partition{ID: part},
			Range: stream.Range{To: stream.Position{Num: 1000}}}
	}
	var m missingRanges
	begin := time.Unix(1000, 0)
	for _, step := range []struct {
		at       time.Duration
		part     string
		notFound bool
		want     time.Duration
	}{
		{0, "a", true, 0},
		{12 * time.Second, "a", true, 12 * time.Second},
		{12 * time.Second, "b", true, 0},
		{13 * time.Second, "a", false, 0},
		{20 * time.Second, "a", true, 0},
		{21 * time.Second, "a", true, time.Second},
		{22 * time.Second, "b", true, 10 * time.Second},
	} {
		_, since := m.failed(in(step.part), begin.Add(step.at), step.notFound)
		if since != step.want {
			t.Errorf("at %v: %s has been missing for %v, want %v", step.at, step.part, since,
				step.want)
		}
	}
}
