package flow

import (
	"bytes"
	"fmt"
	"io"
	"math"
	"os"
	"slices"
	"strings"
	"time"

	"go.yaml.in/yaml/v4"
)

// FormError is what is wrong with a scenario file, and where.
type FormError struct {
	File         string
	Line, Column int // 0: the file as a whole
	Message      string
}

// Error gives file:line:column: message.
func (e *FormError) Error() string {
	if e.Line == 0 {
		return e.File + ": " + e.Message
	}
	return fmt.Sprintf("%s:%d:%d: %s", e.File, e.Line, e.Column, e.Message)
}

// maxFile bounds a scenario file.
const maxFile = 1 << 20

// Load reads a scenario file. Whatever does not belong to the form is refused with its place.
func Load(path string) (*Scenario, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("read scenario: %w", err)
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, maxFile+1))
	if err != nil {
		return nil, fmt.Errorf("read scenario %s: %w", path, err)
	}
	return Parse(path, text)
}

// Parse reads the text of a scenario; path only names it in errors.
func Parse(path string, text []byte) (*Scenario, error) {
	f := form{path: path}
	if len(text) > maxFile {
		return nil, f.fail(nil, "is larger than 1 MiB; a scenario is written by hand, this is something else")
	}
	dec := yaml.NewDecoder(bytes.NewReader(text))
	var doc, second yaml.Node
	if err := dec.Decode(&doc); err == io.EOF {
		return nil, f.fail(nil, "is empty; a scenario has at least duration, load and workers or link")
	} else if err != nil {
		return nil, f.fail(nil, "is not YAML: %v", err)
	}
	if err := dec.Decode(&second); err != io.EOF {
		return nil, f.fail(&second, "a second document starts here; a scenario is one")
	}
	s := &Scenario{Path: path, Senders: 1}
	if err := f.scenario(doc.Content[0], s); err != nil {
		return nil, err
	}
	return s, nil
}

// Bounds of the form: what is beyond them is a mistake, or would not end.
const (
	maxWorkers  = 10_000
	maxSlots    = 100_000
	maxSenders  = 1000
	maxBatches  = 10_000_000
	maxDuration = 24 * time.Hour
)

func (f *form) scenario(n *yaml.Node, s *Scenario) error {
	slots := 1
	var workers, events, joins *yaml.Node
	var expect, worst *yaml.Node
	keep := func(to **yaml.Node) func(*yaml.Node) error {
		return func(n *yaml.Node) error { *to = n; return nil }
	}
	err := f.mapping(n, "a scenario", fields{
		"name":     f.text(&s.Name),
		"about":    f.text(&s.About),
		"duration": f.duration(&s.Duration, time.Millisecond, maxDuration),
		"warmup":   f.duration(&s.Warmup, 0, maxDuration),
		"workers":  keep(&workers),
		"slots":    f.whole(&slots, 1, maxSlots),
		"service":  f.service(&s.Service),
		"network": func(n *yaml.Node) error {
			return f.mapping(n, "network", fields{
				"rtt": f.duration(&s.RTT, 0, time.Hour), "jitter": f.duration(&s.Jitter, 0, time.Hour),
			})
		},
		"load":    func(n *yaml.Node) error { return f.load(n, &s.Load) },
		"size":    func(n *yaml.Node) error { return f.size(n, &s.Size) },
		"cost":    func(n *yaml.Node) error { return f.size(n, &s.Size) },
		"senders": f.whole(&s.Senders, 1, maxSenders),
		"joins":   keep(&joins),
		"events":  keep(&events),
		"pauses":  func(n *yaml.Node) error { return f.pauses(n, &s.Pauses) },
		"shared": func(n *yaml.Node) error {
			s.Shared = &Worker{Slots: 1}
			return f.worker(n, "shared", s.Shared, nil)
		},
		"link":    func(n *yaml.Node) error { s.Link = &Link{}; return f.link(n, s.Link) },
		"timeout": f.timeout(&s.Timeout),
		"expect":  keep(&expect),
		"worst":   keep(&worst),
	})
	if err != nil {
		return err
	}
	if err := f.workers(workers, slots, s); err != nil {
		return err
	}
	if err := f.joins(joins, s); err != nil {
		return err
	}
	if err := f.complete(n, s); err != nil {
		return err
	}
	if err := f.events(events, s); err != nil {
		return err
	}
	if err := f.expect(expect, false, s); err != nil {
		return err
	}
	return f.expect(worst, true, s)
}

// complete says what is missing or does not go together.
func (f *form) complete(n *yaml.Node, s *Scenario) error {
	switch {
	case s.Duration == 0:
		return f.fail(n, "duration is missing; write for example duration: 120s")
	case s.Warmup >= s.Duration:
		return f.fail(n, "warmup is %v of a duration of %v; nothing would be measured", s.Warmup, s.Duration)
	case s.Link == nil && len(s.Workers) == 0:
		return f.fail(n, "has neither workers nor link")
	case s.Link != nil && len(s.Workers) > 0:
		return f.fail(n, "has workers and link; a link stands for the one receiver")
	case s.Link != nil && (s.Shared != nil || s.Pauses.Every > 0):
		return f.fail(n, "shared and pauses are for workers, and this is a link")
	case s.Shared != nil && s.Pauses.Every > 0:
		return f.fail(n, "pauses are for workers that serve, and those in front of a shared server only forward")
	case s.Link != nil && s.Load.Poisson > 0:
		return f.fail(n, "load poisson is a share of the workers' rate, and a link has none; write every or batches")
	case !s.Load.Saturated && s.Load.Poisson == 0 && s.Load.Every == 0 && s.Load.Batches == 0:
		return f.fail(n, "load is missing; write saturated, {poisson: 0.5}, {every: 25ms} or {batches: 500}")
	}
	if s.Name == "" {
		s.Name = strings.TrimSuffix(s.Path[strings.LastIndexByte(s.Path, '/')+1:], ".yaml")
	}
	if s.Link != nil {
		s.Workers = []Worker{{Slots: 1}}
	}
	return nil
}

func (f *form) workers(n *yaml.Node, slots int, s *Scenario) error {
	if n == nil {
		return nil
	}
	return f.list(n, "workers", func(n *yaml.Node) error {
		count, w := 1, Worker{Slots: slots}
		if err := f.worker(n, "a worker", &w, f.whole(&count, 1, maxWorkers)); err != nil {
			return err
		}
		if len(s.Workers)+count > maxWorkers {
			return f.fail(n, "more than %d workers", maxWorkers)
		}
		for range count {
			s.Workers = append(s.Workers, w)
		}
		return nil
	})
}

func (f *form) worker(n *yaml.Node, what string, w *Worker, count func(*yaml.Node) error) error {
	keys := fields{
		"rate":  f.number(&w.Rate, math.SmallestNonzeroFloat64, 1e12),
		"slots": f.whole(&w.Slots, 1, maxSlots),
	}
	if count != nil {
		keys["count"] = count
	}
	if err := f.mapping(n, what, keys); err != nil {
		return err
	}
	if w.Rate == 0 {
		return f.fail(n, "%s has no rate", what)
	}
	return nil
}

func (f *form) service(to *Service) func(*yaml.Node) error {
	return func(n *yaml.Node) error {
		names := []string{"exponential", "deterministic", "hyper"}
		i := slices.Index(names, n.Value)
		if n.Kind != yaml.ScalarNode || i < 0 {
			return f.fail(n, "service is %q; it is one of %s", n.Value, strings.Join(names, ", "))
		}
		*to = Service(i)
		return nil
	}
}

func (f *form) load(n *yaml.Node, l *Workload) error {
	if n.Kind == yaml.ScalarNode {
		if l.Saturated = n.Value == "saturated"; !l.Saturated {
			return f.fail(n, "load is %q; write saturated, {poisson: 0.5}, {every: 25ms} or {batches: 500}", n.Value)
		}
		return nil
	}
	err := f.mapping(n, "load", fields{
		"poisson": f.number(&l.Poisson, 1e-6, 1000),
		"every":   f.duration(&l.Every, time.Microsecond, time.Hour),
		"batches": f.whole(&l.Batches, 1, maxBatches),
		"burst": func(n *yaml.Node) error {
			return f.mapping(n, "burst", fields{
				"at": f.duration(&l.Burst.At, 0, maxDuration), "batches": f.whole(&l.Burst.Batches, 1, maxBatches),
			})
		},
	})
	switch {
	case err != nil:
		return err
	case l.Poisson > 0 && (l.Every > 0 || l.Batches > 0):
		return f.fail(n, "poisson goes with burst only")
	case l.Burst.Batches > 0 && l.Poisson == 0:
		return f.fail(n, "burst goes with poisson only")
	case l.Poisson == 0 && l.Every == 0 && l.Batches == 0:
		return f.fail(n, "load is empty; write saturated, {poisson: 0.5}, {every: 25ms} or {batches: 500}")
	}
	return nil
}

func (f *form) size(n *yaml.Node, s *Size) error {
	pair := func(n *yaml.Node) error {
		s.Kind = Uniform
		var ends []float64
		if err := f.list(n, "uniform", func(n *yaml.Node) error {
			var v float64
			err := f.number(&v, 1, 1e9)(n)
			ends = append(ends, v)
			return err
		}); err != nil {
			return err
		}
		if len(ends) != 2 || ends[0] > ends[1] || ends[0] != math.Trunc(ends[0]) || ends[1] != math.Trunc(ends[1]) {
			return f.fail(n, "uniform takes two whole numbers, the smaller first: [1, 100]")
		}
		s.A, s.B = ends[0], ends[1]
		return nil
	}
	as := func(k SizeKind, lowest, highest float64) func(*yaml.Node) error {
		return func(n *yaml.Node) error { s.Kind = k; return f.number(&s.A, lowest, highest)(n) }
	}
	if n.Kind == yaml.ScalarNode { // cost: 1
		return as(Constant, 1e-9, 1e9)(n)
	}
	if len(n.Content) > 2 {
		return f.fail(n, "size is one of lognormal, uniform, constant")
	}
	return f.mapping(n, "size", fields{
		"lognormal": as(Lognormal, 1e-6, 4), "uniform": pair, "constant": as(Constant, 1e-9, 1e9),
	})
}

func (f *form) joins(n *yaml.Node, s *Scenario) error {
	if n == nil {
		return nil
	}
	if err := f.list(n, "joins", func(n *yaml.Node) error {
		var at time.Duration
		err := f.duration(&at, 0, s.Duration)(n)
		s.Joins = append(s.Joins, at)
		return err
	}); err != nil {
		return err
	}
	if len(s.Joins) > s.Senders {
		return f.fail(n, "%d joins for %d senders", len(s.Joins), s.Senders)
	}
	return nil
}

func (f *form) pauses(n *yaml.Node, p *Pauses) error {
	err := f.mapping(n, "pauses", fields{
		"every": f.duration(&p.Every, time.Millisecond, maxDuration),
		"for":   f.duration(&p.For, time.Millisecond, maxDuration),
		"phase": func(n *yaml.Node) error {
			if n.Value != "random" {
				return f.fail(n, "phase is %q; only random is known", n.Value)
			}
			return nil
		},
	})
	if err == nil && (p.Every == 0 || p.For >= p.Every) {
		return f.fail(n, "pauses takes every and a shorter for: {every: 10s, for: 500ms, phase: random}")
	}
	return err
}

func (f *form) link(n *yaml.Node, l *Link) error {
	knee := func(k *Knee) func(*yaml.Node) error {
		return func(n *yaml.Node) error { return f.knee(n, k) }
	}
	err := f.mapping(n, "link", fields{
		"delay":       f.duration(&l.Delay, time.Microsecond, time.Hour),
		"jitter":      f.number(&l.Jitter, 0, 1000),
		"concurrency": knee(&l.Concurrency),
		"rate":        knee(&l.Rate),
		"fail_first": func(n *yaml.Node) error {
			return f.mapping(n, "fail_first", fields{
				"after": f.whole(&l.FailAfter, 0, maxBatches), "failures": f.whole(&l.Failures, 1, maxBatches),
			})
		},
	})
	if err == nil && l.Delay == 0 {
		return f.fail(n, "link has no delay")
	}
	return err
}

func (f *form) knee(n *yaml.Node, k *Knee) error {
	err := f.mapping(n, "limits of a link", fields{
		"scale":      f.number(&k.Scale, 0, 1e6),
		"knee_start": f.number(&k.Start, 0, 1e6),
		"knee_exp":   f.number(&k.Exp, 1, 1e3),
		"limit":      f.whole(&k.Limit, 1, maxBatches),
		"action": func(n *yaml.Node) error {
			if n.Value != "defer" && n.Value != "drop" {
				return f.fail(n, "action is %q; it is defer or drop", n.Value)
			}
			k.Dropped = n.Value == "drop"
			return nil
		},
	})
	if err == nil && k.Start > 0 && k.Exp == 0 {
		return f.fail(n, "knee_start goes with knee_exp")
	}
	return err
}

func (f *form) timeout(to *time.Duration) func(*yaml.Node) error {
	return func(n *yaml.Node) error {
		if n.Kind == yaml.ScalarNode && n.Value == "auto" {
			return nil
		}
		return f.duration(to, time.Millisecond, maxDuration)(n)
	}
}
