package flowsim_test

import (
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/penstock-io/penstock/backoff"
	"github.com/penstock-io/penstock/engine/internal/lab/flowsim"
	"github.com/penstock-io/penstock/engine/internal/lab/scenario"
	"github.com/penstock-io/penstock/flow/control"
)

// ZZ="workers bad kind" e.g. ZZ_W=12 ZZ_BAD=.9 ZZ_KIND="hang: true" ZZ_FROM=1 ZZ_TO=20
func TestZZ(t *testing.T) {
	f := family{12, 0.9, os.Getenv("ZZ_KIND"), 0, "", "free", false}
	fmt.Sscan(os.Getenv("ZZ_W"), &f.workers)
	fmt.Sscan(os.Getenv("ZZ_BAD"), &f.bad)
	fmt.Sscan(os.Getenv("ZZ_CHANCE"), &f.chance)
	from, to := uint64(1), uint64(20)
	fmt.Sscan(os.Getenv("ZZ_FROM"), &from)
	fmt.Sscan(os.Getenv("ZZ_TO"), &to)
	verbose := os.Getenv("ZZ_V") != ""
	var all []float64
	for seed := from; seed <= to; seed++ {
		best := f.omniscient(t, seed)
		r := &familyRun{
			s: parse(t, f.text(false)), seed: seed, attempts: map[uint64]int{},
			failed:  map[uint64]map[int32]time.Duration{},
			running: map[uint64]control.Command{}, apart: map[uint64]bool{},
		}
		var del [120]int
		lane := map[int32]*[120]int{}
		type st struct{ fail, over, start, probe int }
		trace := os.Getenv("ZZ_T") != ""
		see := func(e *control.Event, do []control.Command) {
			if e.Kind == control.Answer {
				c := r.running[e.ID]
				if e.Outcome == control.Delivered {
					s := int(e.Now / time.Second)
					if s < 120 {
						del[s]++
						if lane[c.Lane] == nil {
							lane[c.Lane] = &[120]int{}
						}
						lane[c.Lane][s]++
					}
				}
				if trace && e.Now < 20*time.Second {
					fmt.Printf("%v answer lane %d seq %d out %v\n", e.Now, c.Lane, c.Seq, e.Outcome)
				}
			}
			r.see(e, do)
			if trace && e.Now < 20*time.Second {
				for _, c := range do {
					if c.Kind == control.Start {
						fmt.Printf("%v start lane %d seq %d n %d why %v expect %v\n", e.Now, c.Lane, c.Seq, c.Number, c.Reason, c.Expect)
					}
				}
			}
		}
		figures, err := flowsim.Run(r.s, find(t, "queue"),
			flowsim.Options{Seed: seed, Trace: see, Adjust: func(c *control.Config) {
				c.Retry = backoff.Fixed(badRetry)
				c.Waiting.Cost = 1e6
			}})
		if err != nil {
			t.Fatal(err)
		}
		g := figures[scenario.Goodput] / best
		all = append(all, g)
		fmt.Printf("seed %d: %.3f probes %d early %d\n", seed, g, r.probes, r.early)
		if verbose {
			fmt.Printf("  all %v\n", del[:40])
			for i := range int32(f.workers) {
				if x := lane[i]; x != nil {
					fmt.Printf("  %2d %v\n", i, x[:40])
				} else {
					fmt.Printf("  %2d nothing\n", i)
				}
			}
		}
	}
	s := 0.0
	for _, g := range all {
		s += g
	}
	fmt.Printf("mean %.4f\n", s/float64(len(all)))
}
