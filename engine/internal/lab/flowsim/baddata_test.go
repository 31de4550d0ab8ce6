package flowsim_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/penstock-io/penstock/backoff"
	"github.com/penstock-io/penstock/engine/internal/lab/flowsim"
	"github.com/penstock-io/penstock/engine/internal/lab/scenario"
	"github.com/penstock-io/penstock/flow/control"
)

// badRun is a run with bad data, seen by a second machine that is told the same.
type badRun struct {
	t        *testing.T
	s        *scenario.Scenario
	seed     uint64
	retry    time.Duration
	twin     *control.Machine
	out      []control.Command
	number   map[uint64]int             // attempts, by item
	failed   map[uint64]map[int32]bool  // lanes that failed an item
	until    map[uint64]time.Duration   // before which an item must not return to a lane that failed it
	running  map[uint64]control.Command // by attempt
	apart    map[uint64]int             // items set apart, with the attempts before
	goodput  float64
	readBad  int
	readGood int
}

const badRetry = 400 * time.Millisecond

func playBad(t *testing.T, text string, seed uint64) *badRun {
	t.Helper()
	s := parse(t, text)
	r := &badRun{
		t: t, s: s, seed: seed, retry: badRetry, number: map[uint64]int{}, failed: map[uint64]map[int32]bool{},
		until: map[uint64]time.Duration{}, running: map[uint64]control.Command{}, apart: map[uint64]int{},
	}
	spec := find(t, "queue")
	adjust := func(c *control.Config) { c.Retry = backoff.Fixed(badRetry) }
	c := spec.Config(s, seed)
	adjust(&c)
	var err error
	if r.twin, err = control.New(c); err != nil {
		t.Fatal(err)
	}
	f, err := flowsim.Run(s, spec, flowsim.Options{Seed: seed, Adjust: adjust, Trace: r.see})
	if err != nil {
		t.Fatal(err)
	}
	r.goodput = f[scenario.Goodput]
	return r
}

func (r *badRun) see(e *control.Event, do []control.Command) {
	r.out = r.twin.Step(*e, r.out[:0])
	switch e.Kind {
	case control.Offer:
		if r.s.Bad.Hits(r.seed, e.Seq) {
			r.readBad++
		} else {
			r.readGood++
		}
	case control.Answer:
		c := r.running[e.ID]
		delete(r.running, e.ID)
		if e.Outcome != control.Delivered {
			if r.failed[c.Seq] == nil {
				r.failed[c.Seq] = map[int32]bool{}
			}
			r.failed[c.Seq][c.Lane] = true
			r.until[c.Seq] = e.Now + r.retry
		}
	}
	for _, c := range do {
		switch c.Kind {
		case control.Start:
			r.running[c.ID] = c
			if r.failed[c.Seq][c.Lane] && e.Now < r.until[c.Seq] {
				r.t.Errorf("seed %d: item %d returns to lane %d %v early (%v)", r.seed, c.Seq, c.Lane, r.until[c.Seq]-e.Now, c.Why)
			}
			if _, seen := r.apart[c.Seq]; c.Why == control.Apart && !seen {
				r.apart[c.Seq] = r.number[c.Seq]
			}
			r.number[c.Seq]++
		}
	}
}

// accused returns the share of good items that were set apart.
func (r *badRun) accused() float64 {
	wrong := 0
	for seq := range r.apart {
		if !r.s.Bad.Hits(r.seed, seq) {
			wrong++
		}
	}
	return float64(wrong) / float64(max(1, r.readGood))
}

// badFamily returns a scenario of saturated workers. chance is that of a worker to fail anything.
func badFamily(workers int, bad string, chance float64) string {
	return fmt.Sprintf("duration: 30s\nwarmup: 5s\nload: saturated\nservice: exponential\nnetwork: { rtt: 10ms }\n"+
		"events: [ { at: 0s, workers: all, fail: { after: 5ms, share: %v } } ]\nbad: { %s }\n"+
		"workers: [ { rate: 50, slots: 2, count: %d } ]\n", chance, bad, workers)
}

// TestBadDataLeavesGoodDataAlone: data that workers refuse at once costs good data 10 % at most, good items are rarely set
// apart, and none is sent before its time.
func TestBadDataLeavesGoodDataAlone(t *testing.T) {
	for _, workers := range []int{1, 2, 12} {
		for _, chance := range []float64{0, 0.1} {
			without := playBad(t, badFamily(workers, "share: 0", chance), 1).goodput
			for _, share := range []float64{0.01, 0.1, 0.5} {
				t.Run(fmt.Sprintf("workers=%d,bad=%v,chance=%v", workers, share, chance), func(t *testing.T) {
					r := playBad(t, badFamily(workers, fmt.Sprintf("share: %v, after: 1ms", share), chance), 1)
					wrong, most := r.accused(), 0.01
					if share > 0.1 {
						most = 0.05
					}
					t.Logf("goodput %.3f, without bad data %.3f; %.2f %% of %d good items set apart, %d of %d bad ones",
						r.goodput, without, 100*wrong, r.readGood, len(r.apart)-int(wrong*float64(r.readGood)), r.readBad)
					if wrong > most {
						t.Errorf("%.2f %% of the good items were set apart, want at most %v %%", 100*wrong, 100*most)
					}
					if chance == 0 && r.goodput < 0.9*without {
						t.Errorf("goodput is %.3f, without bad data %.3f", r.goodput, without)
					}
				})
			}
		}
	}
}

// TestNothingIsEarly: no failed item is sent again before its time, however its failures look.
func TestNothingIsEarly(t *testing.T) {
	for _, workers := range []int{1, 2} {
		for _, bad := range []string{"share: 0.1, after: 10s", "share: 0.1, hang: true", "share: 0.9, after: 1ms", "share: 1, after: 1ms"} {
			for seed := range uint64(3) {
				if r := playBad(t, badFamily(workers, bad, 0.1), seed+1); len(r.number) == 0 {
					t.Errorf("%s: nothing was sent", bad)
				}
			}
		}
	}
}
