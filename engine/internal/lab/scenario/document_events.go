package scenario

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/penstock-io/penstock/stream"
)

func (d *document) translateEvents() error {
	var errs []error
	for i := range d.Events {
		key := fmt.Sprintf("events[%d]", i)
		e, err := d.Events[i].translate(key, &d.Scenario)
		errs = append(errs, err)
		d.Scenario.Events = append(d.Scenario.Events, e)
	}
	return errors.Join(errs...)
}

// translate converts v to an Event. Errors contain key, the key of v in the file.
func (v *event) translate(key string, s *Scenario) (Event, error) {
	e := Event{At: *v.At, For: v.For, Share: 1}
	things := 0
	for k, given := range map[EventKind]bool{
		Rate: v.Rate != nil, Hang: bool(v.Hang), Pause: bool(v.Pause), Fail: v.Fail != nil,
		Throttle: v.Throttle != nil,
		Restart:  bool(v.Restart), Credit: v.Credit != nil,
	} {
		if given {
			e.Kind = k
			things++
		}
	}
	switch {
	case things != 1:
		return e, stream.OptionErrorf(key, "an event is one of rate, hang, pause, fail, "+
			"throttle, restart and credit; this has %d of them", things)
	case e.At > s.Duration:
		return e, stream.OptionErrorf(key+".at", "%v is after the end at %v", e.At, s.Duration)
	case e.Kind == Restart && e.For > 0:
		return e, stream.OptionErrorf(key, "restart is immediate; remove for")
	case s.Link != nil:
		return e, stream.OptionErrorf(key, "events are for workers, but this is a link")
	case s.Shared != nil && (e.Kind == Rate || e.Kind == Pause || e.Kind == Restart):
		return e, stream.OptionErrorf(key, "workers in front of a shared server only forward: "+
			"their events are hang, fail and throttle")
	}
	switch e.Kind {
	case Rate:
		e.Factor, e.Limit = v.Rate.factor, v.Rate.limit
	case Fail:
		e.After = v.Fail.After
		if v.Fail.Share != nil {
			e.Share = *v.Fail.Share
		}
	case Throttle:
		e.Limit, e.Hint = v.Throttle.Rate, v.Throttle.RetryAfter
	case Credit:
		e.Limit = *v.Credit
	}
	var err error
	e.Workers, err = v.Workers.of(s.Workers, key+".workers")
	return e, err
}

// of returns the indices of the chosen workers. Errors contain key.
func (c *chosen) of(workers []Worker, key string) ([]int, error) {
	if len(c.Listed) == 0 && c.Fastest == 0 && !c.all {
		return nil, stream.OptionErrorf(key, "is empty; write all, [0, 1] or {fastest: 4}")
	}
	for i, w := range c.Listed {
		switch {
		case w >= len(workers):
			return nil, stream.OptionErrorf(fmt.Sprintf("%s[%d]", key, i),
				"%d is out of range: 0 to %d", w, len(workers)-1)
		case slices.Contains(c.Listed[:i], w):
			return nil, stream.OptionErrorf(fmt.Sprintf("%s[%d]", key, i),
				"worker %d is given twice", w)
		}
	}
	if len(c.Listed) > 0 {
		return c.Listed, nil
	}
	if c.Fastest > len(workers) {
		return nil, stream.OptionErrorf(key+".fastest", "%d is out of range: 1 to %d", c.Fastest,
			len(workers))
	}
	order := make([]int, len(workers))
	for i := range order {
		order[i] = i
	}
	if c.all {
		return order, nil
	}
	slices.SortStableFunc(order, func(a,
		b int) int {
		return cmp.Compare(workers[b].Rate, workers[a].Rate)
	})
	return order[:c.Fastest], nil
}

// translateBounds converts the bounds in a section of the file: expect or worst.
func (d *document) translateBounds(list []expectation, section string, worst bool) error {
	var errs []error
	s := &d.Scenario
	for _, x := range list {
		i := slices.IndexFunc(s.Expect, func(e Expectation) bool {
			return e.Algorithm == x.Algorithm
		})
		if i < 0 {
			i = len(s.Expect)
			s.Expect = append(s.Expect, Expectation{Algorithm: x.Algorithm, Where: x.Where})
		}
		for _, given := range x.Bounds {
			b, err := s.bound(given.Figure, given.Text)
			if err != nil {
				err.Key = section + "." + x.Algorithm + "." + given.Figure
				errs = append(errs, err)
			}
			b.Worst = worst
			s.Expect[i].Bounds = append(s.Expect[i].Bounds, b)
		}
	}
	return errors.Join(errs...)
}

func (s *Scenario) bound(name, text string) (Bound, *stream.OptionError) {
	field, ok := figureNamed(name)
	if !ok {
		return Bound{}, &stream.OptionError{Err: fmt.Errorf("there is no figure %q", name),
			Word: name, Known: FigureNames()}
	}
	if why := s.lacks(field); why != "" {
		return Bound{}, &stream.OptionError{Err: errors.New(why)}
	}
	op, number, _ := strings.Cut(strings.TrimSpace(text), " ")
	v, err := strconv.ParseFloat(strings.TrimSpace(number), 64)
	if err != nil || math.IsNaN(v) || !slices.Contains([]string{">=", "<=", ">", "<"}, op) {
		return Bound{}, &stream.OptionError{Err: fmt.Errorf(
			"the bound is %q; write \">= 0.97\" or \"<= 4\", in quotes", text)}
	}
	return Bound{Field: field, Op: op, Value: v, Text: text}, nil
}

// lacks returns the reason why figure f does not apply to s, or "" if it applies.
func (s *Scenario) lacks(f Figure) string {
	failing := slices.ContainsFunc(s.Events,
		func(e Event) bool { return e.Kind == Fail || e.Kind == Hang })
	switch {
	case f == Finish && !s.Load.Finite():
		return "the load never ends"
	case f == Recover && len(s.Events) == 0:
		return "there is no event to recover from"
	case f == BadShare && !failing:
		return "no worker ever fails"
	}
	return ""
}
