package main

import (
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/penstock-io/penstock/bench/load"
	"github.com/penstock-io/penstock/bench/result"
)

// series has the rounds of one workload. In a round, each program runs once.
type series struct {
	e          *env
	w          workload
	in         load.Input
	contenders []contender

	limits []measure
	others []float64            // by round: number of cores that other programs used
	runs   map[string][]measure // by program
	ratios map[string][]float64
	failed map[string]error // programs that cannot run the workload
}

// rivalRounds is the number of rounds in which other programs than penstock and the limit run. (The
// limit is the minimal program with which all are compared.) Few rounds are enough for them,
// because no target depends on their results.
const rivalRounds = 3

// warmFrom is the number of rounds from which on a series begins with a warm-up round.
const warmFrom = 3

func (s *series) run() error {
	s.runs, s.ratios, s.failed = map[string][]measure{}, map[string][]float64{}, map[string]error{}
	rounds := int(s.w.pairs.of(s.e.full || s.e.figures))
	if rounds == 0 || s.e.gate {
		rounds = s.e.pairs
	}
	first := 0
	if rounds >= warmFrom {
		first = -1
	}
	for i := first; i < rounds; i++ {
		begun := time.Now()
		if err := s.round(i); err != nil {
			return err
		}
		if i >= 0 && s.e.late(time.Since(begun)) {
			break
		}
	}
	return nil
}

// round runs each program that takes part once, and also the limit, the minimal program with which
// they are compared. Round -1 is the warm-up, and its results are not used. Odd rounds have the
// reverse order, so that a program does not always run after the same other program.
func (s *series) round(n int) (err error) {
	begun := busyNow()
	defer func() {
		if n >= 0 {
			s.others = append(s.others, begun.othersSince())
		}
	}()
	var limit measure
	order := []func() error{func() (err error) { limit, err = s.measureLimit(); return err }}
	ran := map[string]measure{}
	for _, c := range s.contenders {
		if c.name == ours || s.takesPart(c.name, n) {
			order = append(order, func() error { return s.measure(c, ran) })
		}
	}
	if n%2 == 1 {
		slices.Reverse(order)
	}
	for _, one := range order {
		if err := one(); err != nil {
			return err
		}
	}
	if n < 0 {
		return nil
	}
	s.limits = append(s.limits, limit)
	for _, c := range s.contenders {
		if m, did := ran[c.name]; did {
			s.note(n, c.name, m, limit)
		}
	}
	return nil
}

// takesPart reports whether the program with the given name, which is not penstock, runs in round
// n. It also runs in the warm-up round (-1), so that it has been read from the disk before it is
// measured. With the flag -figures, round 0 is the only other round in which it runs.
func (s *series) takesPart(name string, n int) bool {
	return s.failed[name] == nil && n < rivalRounds && (n < 1 || !s.e.figures)
}

func (s *series) measureLimit() (m measure, err error) {
	if s.w.limit == nil {
		return m, nil
	}
	if m, err = s.w.limit(s.e, s.in); err != nil {
		return m, fmt.Errorf("%s: %w", s.w.limitName, err)
	}
	return m, nil
}

// measure runs a program. If the program is not penstock and cannot run the workload, it is omitted
// in later rounds.
func (s *series) measure(c contender, ran map[string]measure) error {
	m, err := c.run(s.e, s.in)
	switch {
	case err == nil:
		ran[c.name] = m
	case c.name == ours:
		return fmt.Errorf("%s: %w", c.name, err)
	default:
		s.failed[c.name] = err
		fmt.Fprintf(os.Stderr, "bench: %s: %s did not do it: %s\n", s.w.name, c.name,
			strings.Join(strings.Fields(err.Error()), " "))
	}
	return nil
}

// note stores and prints the result of a program in a round.
func (s *series) note(n int, name string, m, limit measure) {
	s.runs[name] = append(s.runs[name], m)
	ratio := "         "
	if s.w.limit != nil {
		r := m.mbPerS() / limit.mbPerS()
		s.ratios[name] = append(s.ratios[name], r)
		ratio = fmt.Sprintf("ratio %.3g", r)
	}
	s.e.say("  pair %d: limit %7.0f MB/s%s   %s %7.0f MB/s   %s   %.3f CPU-s/GB   %3.0f MiB "+
		"resident%s\n",
		n+1, limit.speed(), limit.cost(), name, m.mbPerS(), ratio, m.cpuPerGB(), m.RSSMiB, m.said())
}

// speed returns the speed in MB/s, or 0 if there is no measurement.
func (m measure) speed() float64 {
	if m.Seconds == 0 {
		return 0
	}
	return m.mbPerS()
}

// cost returns the CPU time of a limit as text. It returns "" if the limit is not a program, but
// for example the rate of a slow receiver.
func (m measure) cost() string {
	if m.CPU == 0 {
		return ""
	}
	return fmt.Sprintf(" %.3f CPU-s/GB", m.cpuPerGB())
}

// said returns the figures of a run as text: lost records, repeated records and further figures.
func (m measure) said() string {
	var b strings.Builder
	if m.lost+m.repeated > 0 {
		fmt.Fprintf(&b, "   %d lost, %d repeated", m.lost, m.repeated)
	}
	for _, name := range slices.Sorted(maps.Keys(m.figures)) {
		fmt.Fprintf(&b, "   %s %.4g", name, m.figures[name])
	}
	return b.String()
}

// report returns a line for each program and prints it.
func (s *series) report() (lines []result.Line) {
	note := s.e.takeNotes()
	for _, c := range s.contenders {
		if len(s.runs[c.name]) == 0 {
			continue
		}
		l := s.line(c.name)
		l.Note = note
		if c.name == ours {
			l.Missed = s.w.want.missed(l)
		}
		lines = append(lines, l)
		if s.e.json {
			if err := l.Write(os.Stdout); err != nil {
				fmt.Fprintln(os.Stderr, "bench:", err)
			}
			continue
		}
		want := s.w.want
		if c.name != ours {
			want = wants{}
		}
		s.e.say("  median of %s: %s\n", c.name, sentence(l, want))
	}
	return lines
}

// disturbed is a number of cores. A result counts as disturbed if other programs used more.
const disturbed = 0.3

func sentence(l result.Line, want wants) string {
	if others := l.Figures["others_cores"]; others > disturbed {
		l.Note = strings.TrimPrefix(l.Note+
			fmt.Sprintf("; disturbed: other programs took %.2f cores", others), "; ")
	}
	beside := ""
	if l.LimitCPUPerGB > 0 {
		beside = fmt.Sprintf(" beside the limit's %.3f", l.LimitCPUPerGB)
	}
	text := fmt.Sprintf("%.0f MB/s, %.3f CPU-s/GB%s, at most %.0f MiB, %d lost, %d repeated",
		l.MBPerS, l.CPUPerGB, beside, l.RSSMiB, l.Lost, l.Repeated)
	if l.OfLimit > 0 {
		target := ""
		if want.ofLimit > 0 {
			target = fmt.Sprintf(" (target %.3g)", want.ofLimit)
		}
		text = fmt.Sprintf("%.3g of %s%s, ", l.OfLimit, l.Limit, target) + text
	}
	if l.Note != "" {
		text += "; " + l.Note
	}
	for _, m := range l.Missed {
		text += "\n  missed: " + m
	}
	return text
}

func (s *series) line(name string) result.Line {
	runs := s.runs[name]
	each := func(f func(measure) float64) (all []float64) {
		for _, m := range runs {
			all = append(all, f(m))
		}
		return all
	}
	l := result.Line{
		Workload: s.w.name, Program: name, Limit: s.w.limitName,
		MBPerS:   result.Round(result.Median(each(measure.mbPerS))),
		OfLimit:  result.Round(result.Median(s.ratios[name])),
		CPUPerGB: result.Round(result.Median(each(measure.cpuPerGB))),
		RSSMiB:   result.Round(slices.Max(each(func(m measure) float64 { return m.RSSMiB }))),
	}
	if l.Limit == "" {
		l.Limit = "none"
	} else {
		speeds, costs := []float64{}, []float64{}
		for _, m := range s.limits {
			speeds, costs = append(speeds, m.mbPerS()), append(costs, m.cpuPerGB())
		}
		l.LimitMBPerS, l.LimitCPUPerGB = result.Round(result.Median(speeds)),
			result.Round(result.Median(costs))
	}
	l.Runs = len(runs)
	for _, r := range s.ratios[name] {
		l.Ratios = append(l.Ratios, result.Round(r))
	}
	for _, m := range runs { // of lost and repeated records, report the worst run
		l.Lost, l.Repeated = max(l.Lost, m.lost), max(l.Repeated, m.repeated)
	}
	l.Figures = map[string]float64{"others_cores": result.Round(result.Median(s.others))}
	if len(runs[0].figures) > 0 {
		for figure := range runs[0].figures {
			l.Figures[figure] = result.Round(
				result.Median(each(func(m measure) float64 { return m.figures[figure] })))
		}
	}
	return l
}
