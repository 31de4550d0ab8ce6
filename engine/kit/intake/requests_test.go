package intake_test

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/penstock-io/penstock/engine/kit/intake"
	"github.com/penstock-io/penstock/stream"
	"github.com/penstock-io/penstock/stream/streamtest"
)

// openKnown opens a route with the marks of an earlier run.
func openKnown(t *testing.T, in *intake.Intake, marks map[string]stream.Mark) *route {
	t.Helper()
	r := &route{t: t, name: streamtest.Route, marks: marks}
	r.limits = stream.BatchLimits{Bytes: 64, Records: 4}
	var err error
	r.reader, err = in.Open(t.Context(), stream.OpenOptions{
		Route:  r.name,
		Resume: func(id string) (stream.Mark, bool) { m, ok := marks[id]; return m, ok },
		Known:  maps.Values(marks),
	})
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// identify submits records under an id.
func identify(
	t *testing.T, in *intake.Intake, id string, records intake.Records,
) *intake.Submission {
	t.Helper()
	room, err := in.Reserve(t.Context(), int64(records.Size()))
	if err != nil {
		t.Fatal(err)
	}
	room.Identify(id)
	s, err := room.Submit(records, true)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// TestRequestsOnce checks that each record of a repeated identified request is settled once. A run
// ends after a random number of settled batches, and the next run repeats the requests. Routes are
// also reopened within a run.
func TestRequestsOnce(t *testing.T) {
	for seed := range uint64(200) {
		rnd := rand.New(rand.NewPCG(seed, 1))
		marks := make(map[string]stream.Mark)
		settledBy := make(map[string]int)
		for run := range 4 {
			in := newIntake(t, intake.Options{Remember: time.Hour}, quiet())
			for i := range 12 {
				text := func(k int) string { return fmt.Sprintf("%d.%d", i, k) }
				records := lines(text(0), text(1), text(2))
				identify(t, in, fmt.Sprint(i), records)
				if rnd.IntN(3) == 0 {
					submit(t, in, lines(fmt.Sprintf("other %d", run)))
				}
			}
			in.End()
			r := openKnown(t, in, marks)
			steps := rnd.IntN(10)
			if run == 3 {
				steps = 100
			}
			var open []*stream.Batch
			for range steps {
				if in.Held() == 0 {
					break
				}
				b := stream.NewBatch(r.limits)
				err := r.reader.Read(t.Context(), b)
				if b.Split(); len(b.Spans) > 0 {
					open = append(open, b)
				}
				if len(open) > 0 && (err != nil || rnd.IntN(2) == 0) {
					k := rnd.IntN(len(open))
					b := open[k]
					open = slices.Delete(open, k, k+1)
					r.settle(b)
					for i := range b.Records {
						settledBy[string(b.Text(i))]++
					}
				}
				if rnd.IntN(8) == 0 {
					r, open = openKnown(t, in, marks), nil
				}
			}
			if run == 3 && in.Held() != 0 {
				t.Fatalf("seed %d: %d bytes are held", seed, in.Held())
			}
		}
		for i := range 12 {
			for k := range 3 {
				if n := settledBy[fmt.Sprintf("%d.%d", i, k)]; n != 1 {
					t.Fatalf("seed %d: record %d.%d was settled %d times", seed, i, k, n)
				}
			}
		}
	}
}

// TestRequestInWork checks that a request with the id of an unsettled request shares its outcome.
func TestRequestInWork(t *testing.T) {
	in := newIntake(t, intake.Options{Remember: time.Hour}, quiet())
	first := identify(t, in, "a", lines("1"))
	if second := identify(t, in, "a", lines("1")); second != first {
		t.Error("the second is a submission of its own")
	}
	first.Withdraw(t.Context())
	if second := identify(t, in, "a", lines("1")); second == first {
		t.Error("a withdrawn submission was joined")
	}
}

// TestRequestsExpire checks that requests expire after their time, but not while they are
// unsettled.
func TestRequestsExpire(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		in := newIntake(t, intake.Options{Remember: time.Hour}, quiet())
		r := openKnown(t, in, make(map[string]stream.Mark))
		identify(t, in, "done", lines("1"))
		_, b := r.read()
		r.settle(b)
		identify(t, in, "half", lines("2", "3", "4", "5", "6"))
		_, b = r.read()
		r.settle(b)
		forgotten := func() []string { return r.reader.(stream.PartitionTracker).Deleted() }
		time.Sleep(59 * time.Minute)
		if got := forgotten(); len(got) > 0 {
			t.Errorf("%q are forgotten too early", got)
		}
		time.Sleep(2 * time.Minute)
		if got := forgotten(); !slices.Equal(got, []string{"request-done"}) {
			t.Errorf("%q are forgotten, want the one that is done", got)
		}
		_, b = r.read()
		r.settle(b)
		if got := forgotten(); !slices.Equal(got, []string{"request-half"}) {
			t.Errorf("%q are forgotten, want the other one", got)
		}
	})
}
