package main

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/penstock-io/penstock/bench/load"
	"github.com/penstock-io/penstock/bench/proc"
	"github.com/penstock-io/penstock/bench/result"
)

// contender is a program that a workload measures, such as penstock. Its speed is compared with the
// limit of the workload, usually the speed of a minimal program.
type contender struct {
	name string
	run  func(e *env, in load.Input) (measure, error)
}

// ours is the name of penstock in results.
const ours = "penstock"

// A disk's speed varies by a factor of three from day to day. Ratios measured on a disk would vary
// with it, and could not be compared with the ratios kept from an earlier day. So with -gate and
// without -dir, the scratch folder is in /dev/shm, that is, in memory, if 8 GiB are free there.
const (
	sharedMemory = "/dev/shm"
	gateRoom     = 8 << 30
)

// bench runs the workloads and returns their failures.
func bench(o options) (err error) {
	var kept result.Kept
	if o.keep && !o.gate {
		return errors.New("-keep needs -gate: ratios measured otherwise cannot be compared")
	}
	if o.gate {
		if kept, err = o.ratios(); err != nil {
			return err
		}
		if o.dir == "" && roomFor(sharedMemory, gateRoom) {
			o.dir = sharedMemory
		}
		o.only = strings.Join(slices.Sorted(maps.Keys(kept)), ",")
	}
	if o.pairs < 1 {
		return fmt.Errorf("-pairs %d: there has to be one at least", o.pairs)
	}
	chosen, err := choose(o.only)
	if err != nil {
		return err
	}
	e, err := newEnv(o)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, e.close()) }()
	if chosen, err = o.unmeasured(chosen); err != nil {
		return err
	}
	var lines []result.Line
	var wrong []error
	for i, w := range chosen {
		e.share(chosen[i:])
		done, err := e.workload(w)
		if proc.Ending() {
			return proc.ErrEnding
		}
		if err != nil {
			fmt.Fprintf(os.Stderr, "bench: %s: %v\n", w.name, err)
			wrong = append(wrong, fmt.Errorf("%s was not measured", w.name))
		}
		lines = append(lines, done...)
		if o.into != "" && len(done) > 0 {
			if err := result.Replace(o.into, e.entries(done)); err != nil {
				return err
			}
		}
	}
	if o.figures {
		wrong = append(wrong, e.profileMissed(lines))
	}
	return errors.Join(append(wrong, e.judge(lines, kept))...)
}

// choose returns the workloads that the user has selected.
func choose(only string) (chosen []workload, err error) {
	if only == "" {
		return workloads, nil
	}
	for pattern := range strings.SplitSeq(only, ",") {
		found := false
		for _, w := range workloads {
			if ok, err := path.Match(pattern, w.name); err != nil {
				return nil, err
			} else if ok {
				chosen, found = append(chosen, w), true
			}
		}
		if !found {
			return nil, fmt.Errorf("-only: no workload is called %q; there are %s", pattern,
				strings.Join(names(), ", "))
		}
	}
	return chosen, nil
}

// names returns the names of all workloads.
func names() (all []string) {
	for _, w := range workloads {
		all = append(all, w.name)
	}
	return all
}

// unmeasured returns the workloads that have no recent result. A result is recent if it is in the
// file of the flag -append, and its run began no longer than -newer ago. So a run can continue an
// interrupted run.
func (o options) unmeasured(chosen []workload) (left []workload, err error) {
	if o.newer <= 0 || o.into == "" {
		return chosen, nil
	}
	entries, err := result.Read(o.into)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, err
	}
	done := map[string]bool{}
	for _, e := range entries {
		if at, err := time.Parse(result.TimeForm, e.Run.Time); err == nil &&
			time.Since(at) <= o.newer {
			done[e.Workload] = true
		}
	}
	return slices.DeleteFunc(slices.Clone(chosen), func(w workload) bool { return done[w.name] }),
		nil
}

// ratios returns the ratios that were kept from an earlier run on the machine o.machine, or those
// of other machines (see result.Ratios.Of). A ratio is the speed of penstock, divided by the speed
// of a minimal program, the limit.
func (o options) ratios() (result.Kept, error) {
	all, err := result.ReadRatios(o.kept)
	if err != nil {
		return nil, err
	}
	kept, others := all.Of(o.machine)
	if len(kept) == 0 {
		return nil, fmt.Errorf("%s holds no ratios", o.kept)
	}
	if len(others) > 0 && o.gate && !o.keep {
		fmt.Fprintf(os.Stderr, "bench: %s has no ratios of %s for %s: "+
			"the lowest of other machines hold; "+
			"`make bench-check BENCH=-keep` keeps its own\n", o.kept, o.machine,
			strings.Join(others, ", "))
	}
	return kept, nil
}

// judge returns an error that lists all failures: lost records and, with -check, missed targets.
// With -gate and without -keep, a workload in kept fails as well if it was not measured, or if its
// ratio is far below the kept one. With -keep, judge writes the new ratios to the file, but only of
// workloads that the file already has and that ran more than once. If other programs have disturbed
// a workload, its ratio is not written, and the workload is a failure.
func (e *env) judge(lines []result.Line, kept result.Kept) error {
	var wrong []string
	now := result.Kept{}
	if e.keep { // the shares in the file are kept
		var err error
		if kept, err = e.ratios(); err != nil {
			return err
		}
	}
	for _, l := range lines {
		if l.Program != ours {
			continue
		}
		if l.Lost > 0 {
			wrong = append(wrong, fmt.Sprintf("%s lost %d records", l.Workload, l.Lost))
		}
		if e.check {
			wrong = append(wrong, l.Missed...)
		}
		others := l.Figures["others_cores"]
		switch {
		case !e.keep || kept[l.Workload] == 0 || len(l.Ratios) < 2:
		case others > disturbed:
			wrong = append(wrong, fmt.Sprintf("%s is not kept: other programs took %.2f cores",
				l.Workload, others))
		default:
			now[l.Workload] = l.OfLimit
		}
	}
	if e.gate && !e.keep {
		wrong = append(wrong, kept.Fallen(lines)...)
	}
	if e.keep {
		if err := now.Write(e.kept, e.machine); err != nil {
			return err
		}
	}
	if len(wrong) > 0 {
		return errors.New(strings.Join(wrong, "; "))
	}
	return nil
}

func (e *env) say(format string, args ...any) {
	if !e.json {
		fmt.Printf(format, args...)
	}
}

// share sets the time limit of the first of the workloads that are still to run (the parameter
// left). It divides the rest of the time -within among them in proportion to their weights.
func (e *env) share(left []workload) {
	if e.within > 0 {
		all := 0.0
		for _, w := range left {
			all += w.part()
		}
		now := time.Now()
		e.until = now.Add(time.Duration(
			float64(e.begun.Add(e.within).Sub(now)) * left[0].part() / all))
	}
}

// part returns the weight of the workload, by which share divides the time.
func (w workload) part() float64 {
	switch {
	case w.weight > 0:
		return w.weight
	case w.pairs == quickOrFull{} && w.ours != nil:
		return 3
	}
	return 1
}

// late reports whether one more round of the given duration would exceed the time limit of the
// workload.
func (e *env) late(round time.Duration) bool {
	return !e.until.IsZero() && time.Now().Add(round).After(e.until)
}

// of returns the number that applies to a full run or, if full is false, to a quick run.
func (q quickOrFull) of(full bool) int64 {
	if full {
		return q[1]
	}
	return q[0]
}

// workload measures one workload and returns its lines.
func (e *env) workload(w workload) ([]result.Line, error) {
	if w.limitName == "" {
		e.say("\n%s: %s\n", w.name, w.about)
	} else {
		e.say("\n%s: %s, against %s\n", w.name, w.about, w.limitAbout)
	}
	if w.absent != nil {
		if why := w.absent(); why != "" {
			e.say("  not measured: %s\n", why)
			return nil, nil
		}
	}
	if w.ours == nil {
		return e.bareLines(w)
	}
	in, err := e.inputFor(w)
	if err != nil {
		return nil, err
	}
	s := &series{e: e, w: w, in: in, contenders: append([]contender{{ours, w.ours}},
		e.rivalsIn(w.name)...)}
	if err := s.run(); err != nil {
		return nil, err
	}
	lines := s.report()
	e.sayAbsent(w.name)
	return lines, nil
}

func (e *env) inputFor(w workload) (load.Input, error) {
	if w.input != nil {
		return w.input(e)
	}
	size := w.size.of(e.full)
	if size == 0 {
		size = e.size
	}
	if w.halved && !e.full && !e.figures && !e.gate {
		size /= 2
	}
	return e.input(w.kind, size)
}
