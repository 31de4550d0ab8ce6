package flow

import (
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"go.yaml.in/yaml/v4"
)

func (f *form) events(n *yaml.Node, s *Scenario) error {
	if n == nil {
		return nil
	}
	return f.list(n, "events", func(n *yaml.Node) error {
		e := Event{Share: 1}
		if err := f.event(n, s, &e); err != nil {
			return err
		}
		s.Events = append(s.Events, e)
		return nil
	})
}

func (f *form) event(n *yaml.Node, s *Scenario, e *Event) error {
	kinds := 0
	is := func(k EventKind, parse func(*yaml.Node) error) func(*yaml.Node) error {
		return func(n *yaml.Node) error { e.Kind = k; kinds++; return parse(n) }
	}
	var at *yaml.Node
	err := f.mapping(n, "an event", fields{
		"at":      func(n *yaml.Node) error { at = n; return f.duration(&e.At, 0, s.Duration)(n) },
		"for":     f.duration(&e.For, time.Millisecond, maxDuration),
		"workers": func(n *yaml.Node) error { return f.chosen(n, s, e) },
		"rate":    is(Rate, func(n *yaml.Node) error { return f.newRate(n, e) }),
		"hang":    is(Hang, f.yes),
		"pause":   is(Pause, f.yes),
		"fail": is(Fail, func(n *yaml.Node) error {
			return f.mapping(n, "fail", fields{"after": f.duration(&e.After, 0, time.Hour), "share": f.number(&e.Share, 0, 1)})
		}),
		"throttle": is(Throttle, func(n *yaml.Node) error {
			return f.mapping(n, "throttle", fields{
				"rate": f.number(&e.Limit, 1e-3, 1e9), "retry_after": f.duration(&e.Hint, time.Millisecond, time.Hour),
			})
		}),
		"restart": is(Restart, f.yes),
		"credit":  is(Credit, f.number(&e.Limit, 0, 1e15)),
	})
	switch {
	case err != nil:
		return err
	case kinds != 1:
		return f.fail(n, "an event does one thing: rate, hang, pause, fail, throttle, restart or credit; this does %d", kinds)
	case at == nil:
		return f.fail(n, "an event needs at")
	case e.Workers == nil:
		return f.fail(n, "an event needs workers: all, [0, 1] or {fastest: 4}")
	case e.Kind == Throttle && e.Limit == 0:
		return f.fail(n, "throttle needs a rate")
	case e.Kind == Restart && e.For > 0:
		return f.fail(n, "restart happens at once and takes no for")
	case s.Link != nil:
		return f.fail(n, "events are for workers, and this is a link")
	case s.Shared != nil && (e.Kind == Rate || e.Kind == Pause || e.Kind == Restart):
		return f.fail(n, "workers in front of a shared server only forward: hang, fail and throttle are what can happen to them")
	}
	return nil
}

// newRate reads x0.25 or 40.
func (f *form) newRate(n *yaml.Node, e *Event) error {
	if text, times := strings.CutPrefix(n.Value, "x"); times {
		v, err := strconv.ParseFloat(text, 64)
		if err != nil || !(v > 0 && v < 1e6) {
			return f.fail(n, "rate is %q; write x0.25 for a quarter, or a rate", n.Value)
		}
		e.Factor = v
		return nil
	}
	return f.number(&e.Limit, math.SmallestNonzeroFloat64, 1e12)(n)
}

// chosen reads which workers an event is about.
func (f *form) chosen(n *yaml.Node, s *Scenario, e *Event) error {
	e.Workers = []int{}
	switch n.Kind {
	case yaml.ScalarNode:
		if n.Value != "all" {
			return f.fail(n, "workers is %q; write all, [0, 1] or {fastest: 4}", n.Value)
		}
		for i := range s.Workers {
			e.Workers = append(e.Workers, i)
		}
		return nil
	case yaml.SequenceNode:
		return f.list(n, "workers", func(n *yaml.Node) error {
			var i int
			if err := f.whole(&i, 0, len(s.Workers)-1)(n); err != nil {
				return err
			}
			if slices.Contains(e.Workers, i) {
				return f.fail(n, "worker %d is named twice", i)
			}
			e.Workers = append(e.Workers, i)
			return nil
		})
	}
	var count int
	if err := f.mapping(n, "workers", fields{"fastest": f.whole(&count, 1, len(s.Workers))}); err != nil {
		return err
	}
	order := make([]int, len(s.Workers))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int {
		switch x, y := s.Workers[a].Rate, s.Workers[b].Rate; {
		case x > y:
			return -1
		case x < y:
			return 1
		}
		return 0
	})
	e.Workers = order[:count]
	return nil
}

func (f *form) expect(n *yaml.Node, worst bool, s *Scenario) error {
	if n == nil {
		return nil
	}
	what := "expect"
	if worst {
		what = "worst"
	}
	return f.pairs(n, what, func(key, value *yaml.Node) error {
		i := slices.IndexFunc(s.Expect, func(e Expectation) bool { return e.Algorithm == key.Value })
		if i < 0 {
			if key.Value == "" {
				return f.fail(key, "an algorithm needs a name")
			}
			i = len(s.Expect)
			s.Expect = append(s.Expect, Expectation{Algorithm: key.Value})
		}
		return f.pairs(value, what+" of "+key.Value, func(key, value *yaml.Node) error {
			b, err := f.bound(key, value, s)
			b.Worst = worst
			s.Expect[i].Bounds = append(s.Expect[i].Bounds, b)
			return err
		})
	})
}

func (f *form) bound(key, value *yaml.Node, s *Scenario) (Bound, error) {
	field, ok := figureNamed(key.Value)
	if !ok {
		return Bound{}, f.unknown(key, "a figure", FigureNames())
	}
	if why := s.lacks(field); why != "" {
		return Bound{}, f.fail(key, "%s: %s", field, why)
	}
	op, number, _ := strings.Cut(strings.TrimSpace(value.Value), " ")
	v, err := strconv.ParseFloat(strings.TrimSpace(number), 64)
	if err != nil || math.IsNaN(v) || !slices.Contains([]string{">=", "<=", ">", "<"}, op) {
		return Bound{}, f.fail(value, "the bound on %s is %q; write \">= 0.97\" or \"<= 4\", in quotes", field, value.Value)
	}
	return Bound{Field: field, Op: op, Value: v, Text: value.Value, Line: value.Line}, nil
}

// lacks says why a figure does not apply to s; "": it does.
func (s *Scenario) lacks(f Figure) string {
	failing := slices.ContainsFunc(s.Events, func(e Event) bool { return e.Kind == Fail || e.Kind == Hang })
	switch {
	case f == Finish && !s.Load.finite():
		return "the load never ends"
	case f == Recover && len(s.Events) == 0:
		return "there is no event to recover from"
	case f == BadShare && !failing:
		return "no worker ever fails"
	}
	return ""
}
