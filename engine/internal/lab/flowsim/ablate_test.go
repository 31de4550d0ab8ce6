package flowsim_test

import (
	"testing"

	"github.com/penstock-io/penstock/engine/internal/lab/flowsim"
)

// TestAblate checks that each experiment confirms the article's claim.
func TestAblate(t *testing.T) {
	all, err := flowsim.Ablate(t.Context(), 1, 1)
	if err != nil {
		t.Fatal(err)
	}
	value := func(experiment, row string, column int) float64 {
		t.Helper()
		for _, x := range all {
			for _, r := range x.Rows {
				if x.Name == experiment && r.Name == row {
					return r.Values[column]
				}
			}
		}
		t.Fatalf("there is no %s, %s", experiment, row)
		return 0
	}
	// the simulation of Storm agrees with the measurements
	for i, row := range []string{"12", "60", "240", "1,000"} {
		name := "one limit of " + row + " for all"
		own, measured := value("one_limit", name, 0), value("one_limit", name, 1)
		if own < 0.75*measured || own > 1.25*measured {
			t.Errorf("%d: %s: %g %% simulated, %g %% measured", i, name, own, measured)
		}
	}
	for _, c := range []struct {
		what           string
		less, more, by float64
	}{
		{"a finite job: hash takes longer than least completion",
			value("dispatch", "least completion, windows", 0), value("dispatch",
				"hash, no windows", 0), 5},
		{"p99: round robin is above least completion",
			value("dispatch", "least completion, windows", 2), value("dispatch",
				"round robin, windows", 2), 3},
		{"a window of one is too small", value("window_size", "fixed 1", 0),
			value("window_size", "fixed 4", 0), 1.5},
		{"a window of 64 queues", value("window_size", "fixed 4", 1),
			value("window_size", "fixed 64", 1), 8},
		{"per ack is worse at eight slots", value("step", "per ack", 2),
			value("step", "per round", 2), 1.1},
		{"slow start finishes sooner", value("slow_start", "reno", 0),
			value("slow_start", "linear", 0), 2},
		{"and overshoots", value("slow_start", "linear", 1), value("slow_start", "reno", 1), 2},
		{"the same worker after a timeout", value("after_timeout", "the next one", 1),
			value("after_timeout", "the same worker", 1), 10},
		{"batches of one record with a fixed window", value("batch_records", "1 records", 0),
			value("batch_records", "100 records", 0), 5},
		{"a crash without acks", value("restart", "cumulative ack, saved each second", 0),
			value("restart", "no acks (hash dispatch)",
				0), 10},
		{"one limit for all fills up with the slowest",
			value("one_limit", "one limit of 60 for all", 0), value("one_limit",
				"a window for each", 0), 8},
		{"ranges repeat no more than the watermark", value("restart", "and ranges above it", 0),
			value("restart",
				"cumulative ack, saved each second", 0), 1},
	} {
		if c.more < c.by*c.less {
			t.Errorf("%s: %g against %g, want %g times", c.what, c.more, c.less, c.by)
		}
	}
}
