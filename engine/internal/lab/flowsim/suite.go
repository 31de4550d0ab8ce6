package flowsim

import (
	"cmp"
	"context"
	"fmt"
	"runtime"
	"strings"
	"sync"

	"github.com/penstock-io/penstock/engine/internal/lab/scenario"
	"github.com/penstock-io/penstock/supervise"
)

// Plan is a scenario with the algorithms to run.
type Plan struct {
	Scenario *scenario.Scenario
	Specs    []*Spec
}

// NewPlan returns the plan for a scenario. If algorithms is empty, the plan has the algorithms for
// which the scenario has bounds. If there are none, it has the algorithm queue. dispatch is the
// dispatch policy of algorithms whose name contains none. "" means the default policy.
func NewPlan(s *scenario.Scenario, algorithms []string, dispatch string) (Plan, error) {
	names := algorithms
	if len(names) == 0 {
		for _, e := range s.Expect {
			names = append(names, e.Algorithm)
		}
	}
	if len(names) == 0 {
		names = []string{"queue"}
	}
	p := Plan{Scenario: s}
	for i, name := range names {
		spec, err := Find(name, dispatch)
		if err != nil && len(algorithms) == 0 && i < len(s.Expect) {
			return Plan{}, fmt.Errorf("%v: %w", s.Expect[i].Where, err)
		}
		if err != nil {
			return Plan{}, err
		}
		p.Specs = append(p.Specs, spec)
	}
	return p, nil
}

// Verdict is a bound that the scenario sets for a figure, with the measured value.
type Verdict struct {
	scenario.Bound
	Got float64
	OK  bool
}

// Summary has the results of a scenario with one algorithm, for all seeds.
type Summary struct {
	Scenario *scenario.Scenario
	Spec     *Spec
	First    uint64             // first seed
	Runs     []scenario.Figures // the figures of each run, by seed
	Median   scenario.Figures
	Worst    scenario.Figures
	Verdicts []Verdict
	OK       bool
}

// RunAll runs every plan with the seeds first, first+1, and so on. The parameter seeds is their
// number. RunAll uses at most GOMAXPROCS goroutines. It calls done with each summary, in the order
// of the plans. After an error of done or of a run, RunAll ends and returns the error.
func RunAll(ctx context.Context, plans []Plan, first uint64, seeds int,
	done func(*Summary) error) error {
	type task struct {
		summary *Summary
		seed    int
	}
	var tasks []task
	var summaries []*Summary
	left := map[*Summary]int{}
	for i := range plans {
		for _, spec := range plans[i].Specs {
			s := &Summary{Scenario: plans[i].Scenario, Spec: spec, First: first,
				Runs: make([]scenario.Figures, seeds)}
			summaries = append(summaries, s)
			left[s] = seeds
			for k := range seeds {
				tasks = append(tasks, task{s, k})
			}
		}
	}
	// mu guards the variables next, left and reported. The goroutines also hold it while they call
	// done, so that done gets the summaries in the order of the plans.
	var mu sync.Mutex
	next, reported := 0, 0
	work := func(ctx context.Context) error {
		for {
			mu.Lock()
			if next == len(tasks) || ctx.Err() != nil {
				mu.Unlock()
				return context.Cause(ctx)
			}
			t := tasks[next]
			next++
			mu.Unlock()
			f, err := Run(t.summary.Scenario, t.summary.Spec, Options{Seed: first + uint64(t.seed)})
			if err != nil {
				return err
			}
			mu.Lock()
			t.summary.Runs[t.seed] = f
			left[t.summary]--
			for err == nil && reported < len(summaries) && left[summaries[reported]] == 0 {
				s := summaries[reported]
				reported++
				s.judge()
				err = done(s)
			}
			mu.Unlock()
			if err != nil {
				return err
			}
		}
	}
	g := supervise.NewGroup(ctx)
	for i := range min(runtime.GOMAXPROCS(0), max(1, len(tasks))) {
		g.Go(fmt.Sprintf("sim/%d", i), work)
	}
	if err := g.Wait(); err != nil {
		return err
	}
	if reported < len(summaries) {
		return context.Cause(ctx)
	}
	return nil
}

// judge compares the figures with the bounds in the scenario.
func (s *Summary) judge() {
	s.Median, s.Worst, s.OK = scenario.Median(s.Runs), scenario.Worst(s.Runs), true
	for _, e := range s.Scenario.Expect {
		if !s.Spec.is(e.Algorithm) {
			continue
		}
		for _, b := range e.Bounds {
			v := Verdict{Bound: b, Got: s.Median[b.Field]}
			if b.Worst {
				v.Got = scenario.Extreme(s.Runs, &b)
			}
			v.OK = b.Holds(v.Got)
			s.OK = s.OK && v.OK
			s.Verdicts = append(s.Verdicts, v)
		}
	}
}

// is reports whether bounds for the given name apply to s. They do if the name has the same
// algorithm and the same dispatch policy.
func (s *Spec) is(name string) bool {
	own, _, _ := strings.Cut(s.Name, "+")
	algorithm, policy, _ := strings.Cut(name, "+")
	return algorithm == own && cmp.Or(policy, DefaultDispatch) == s.Dispatch
}
