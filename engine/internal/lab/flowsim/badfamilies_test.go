package flowsim_test

import (
	"fmt"
	"os"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/penstock-io/penstock/backoff"
	"github.com/penstock-io/penstock/engine/internal/lab/flowsim"
	"github.com/penstock-io/penstock/engine/internal/lab/scenario"
	"github.com/penstock-io/penstock/flow/control"
)

// family is one scenario with bad data. Bad data costs its worker nothing, so an omniscient sender, which gives each bad
// batch one attempt, delivers as much as one without bad data and without errors.
type family struct {
	workers int
	bad     float64 // share of the batches
	kind    string  // how a bad batch fails, as in the scenario
	chance  float64 // with which a worker fails anything
	lanes   string  // what else is wrong with workers: "", "worker", "data", "outage"
	order   string  // "free", "key", "strict"
	hedge   bool
}

func (f family) String() string {
	return fmt.Sprintf("workers=%d,bad=%v,%s,chance=%v,lanes=%s,order=%s,hedge=%v", f.workers, f.bad, strings.ReplaceAll(f.kind, " ", ""),
		f.chance, f.lanes, f.order, f.hedge)
}

// text returns the scenario, or that of the omniscient sender.
func (f family) text(omniscient bool) string {
	var b strings.Builder
	fmt.Fprintf(&b, "duration: %v\nwarmup: 10s\nload: saturated\nservice: exponential\nnetwork: { rtt: 10ms }\n", f.duration())
	fmt.Fprintf(&b, "workers: [ { rate: 50, slots: 2, count: %d } ]\n", f.workers)
	switch f.order {
	case "key":
		b.WriteString("keys: 100000\n")
	case "strict":
		b.WriteString("keys: 1\n")
	}
	if f.bad > 0 && !omniscient {
		fmt.Fprintf(&b, "bad: { share: %v, %s", f.bad, f.kind)
		if f.lanes == "data" {
			b.WriteString(", lanes: [0]")
		}
		b.WriteString(" }\n")
	}
	b.WriteString("events:\n  - { at: 0s, workers: all, rate: x1 }\n")
	if f.chance > 0 && !omniscient {
		fmt.Fprintf(&b, "  - { at: 0s, workers: all, fail: { after: 5ms, share: %v } }\n", f.chance)
	}
	switch f.lanes {
	case "worker":
		b.WriteString("  - { at: 0s, workers: [0], fail: { after: 5ms } }\n")
	case "outage":
		b.WriteString("  - { at: 20s, for: 60s, workers: all, fail: { after: 5ms } }\n")
	}
	return b.String()
}

func (f family) duration() time.Duration {
	if f.lanes == "outage" {
		return 120 * time.Second
	}
	return 40 * time.Second
}

// familyRun is what a run of a family shows.
type familyRun struct {
	s        *scenario.Scenario
	seed     uint64
	order    string
	attempts map[uint64]int
	failed   map[uint64]map[int32]time.Duration // by item and lane: the last failure there
	running  map[uint64]control.Command
	apart    map[uint64]int // attempts before an item was set apart
	good     int
	probes   int
	early    int
	goodput  float64
}

// play runs one seed.
func (f family) play(t testing.TB, seed uint64, omniscient bool) *familyRun {
	s := parse(t, f.text(omniscient))
	r := &familyRun{
		s: s, seed: seed, order: f.order, attempts: map[uint64]int{}, failed: map[uint64]map[int32]time.Duration{},
		running: map[uint64]control.Command{}, apart: map[uint64]int{},
	}
	figures, err := flowsim.Run(s, find(t, "queue"), flowsim.Options{Seed: seed, Trace: r.see, Adjust: func(c *control.Config) {
		c.Retry = backoff.Fixed(badRetry)
		c.Waiting.Cost = 1e6
		if f.order == "strict" {
			c.End.Attempts = 3
		}
		if f.hedge {
			c.Hedge.Share = 0.02
		}
	}})
	if err != nil {
		t.Error(err)
		return r
	}
	r.goodput = figures[scenario.Goodput]
	return r
}

func (r *familyRun) see(e *control.Event, do []control.Command) {
	switch e.Kind {
	case control.Offer:
		if !r.s.Bad.Hits(r.seed, e.Seq) {
			r.good++
		}
	case control.Answer:
		c := r.running[e.ID]
		delete(r.running, e.ID)
		if e.Outcome != control.Delivered {
			if r.failed[c.Seq] == nil {
				r.failed[c.Seq] = map[int32]time.Duration{}
			}
			r.failed[c.Seq][c.Lane] = e.Now
		}
	}
	for _, c := range do {
		if c.Kind != control.Start {
			continue
		}
		r.running[c.ID] = c
		if at, ok := r.failed[c.Seq][c.Lane]; ok && e.Now < at+badRetry {
			r.early++
		}
		if _, seen := r.apart[c.Seq]; c.Why == control.Apart && !seen {
			r.apart[c.Seq] = r.attempts[c.Seq]
		}
		if c.Why == control.Probe {
			r.probes++
		}
		r.attempts[c.Seq]++
	}
}

// accused returns the share of good items that were set apart.
func (r *familyRun) accused() float64 {
	wrong := 0
	for seq := range r.apart {
		if !r.s.Bad.Hits(r.seed, seq) {
			wrong++
		}
	}
	return float64(wrong) / float64(max(1, r.good))
}

var familyKinds = []string{"after: 1ms", "after: 10s", "hang: true"}

// TestFamilies prints.
func TestFamilies(t *testing.T) {
	seeds := 1
	pick := os.Getenv("FAM")
	if pick == "" {
		t.Skip()
	}
	if n := os.Getenv("SEEDS"); n != "" {
		fmt.Sscan(n, &seeds)
	}
	var all []family
	for _, w := range []int{1, 2, 12} {
		for _, order := range []string{"free", "key"} {
			for _, lanes := range []string{"", "worker", "data", "outage"} {
				for _, kind := range familyKinds {
					for _, chance := range []float64{0, 0.1, 0.3} {
						for _, bad := range []float64{0, 0.01, 0.1, 0.5, 0.9, 1} {
							f := family{w, bad, kind, chance, lanes, order, false}
							ok := true
							for word := range strings.SplitSeq(pick, " ") {
								ok = ok && strings.Contains(f.String()+",", word)
							}
							if ok && !(lanes != "" && w == 1) {
								all = append(all, f)
							}
						}
					}
				}
			}
		}
	}
	type line struct{ text string }
	lines := make([]line, len(all))
	var wg sync.WaitGroup
	next := make(chan int)
	for range runtime.GOMAXPROCS(0) {
		wg.Go(func() {
			for i := range next {
				f := all[i]
				var ratio, least, accused, maxProbes, early float64 = 0, 9, 0, 0, 0
				for seed := range seeds {
					ref := f.play(t, uint64(seed)+1, true)
					r := f.play(t, uint64(seed)+1, false)
					g := r.goodput / ref.goodput
					ratio += g / float64(seeds)
					least = min(least, g)
					accused = max(accused, r.accused())
					maxProbes = max(maxProbes, float64(r.probes))
					early += float64(r.early)
				}
				lines[i].text = fmt.Sprintf("%-75s goodput %.3f least %.3f accused %.4f probes %.0f early %.0f", f, ratio, least, accused, maxProbes, early)
			}
		})
	}
	for i := range all {
		next <- i
	}
	close(next)
	wg.Wait()
	for _, l := range lines {
		fmt.Println(l.text)
	}
}
