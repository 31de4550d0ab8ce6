package main

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/penstock-io/penstock/bench/plot"
	"github.com/penstock-io/penstock/bench/proc"
	"github.com/penstock-io/penstock/bench/result"
)

// flame draws the flame graph of a profile and prints the functions that use the most time. It
// returns the share of the CPU time for each part of the program.
func flame(name, program, out string) ([]result.Share, error) {
	file := filepath.Join(out, name+".pprof")
	traces, err := proc.Do("go", "tool", "pprof", "-traces", program, file)
	if err != nil {
		return nil, err
	}
	stacks, err := parseTraces(traces.Out)
	if err != nil {
		return nil, err
	}
	svg := filepath.Join(out, name+".svg")
	graph := plot.Flame("Where "+name+" spends its processor time",
		"width: share of the samples; callers stand above", stacks)
	if err := os.WriteFile(svg, []byte(graph), 0o644); err != nil {
		return nil, err
	}
	top, err := exec.Command("go", "tool", "pprof", "-top", "-nodecount=25", program, file).Output()
	fmt.Fprintf(os.Stderr, "%s\n%s: the flame graph; go tool pprof %s: more\n", top, svg, file)
	return shares(stacks), err
}

// parseTraces reads the output of `pprof -traces`. It consists of blocks between lines of dashes.
// The first line of a block has a value and the innermost function. The lines below have its
// callers.
func parseTraces(text []byte) (all []plot.Stack, err error) {
	for block := range bytes.SplitSeq(text, []byte("-----------+")) {
		var s plot.Stack
		for line := range strings.Lines(string(block)) {
			fields := strings.Fields(line)
			switch {
			case len(fields) == 0 || strings.HasPrefix(line, "---"):
				continue
			case len(s.Functions) == 0:
				took, err := time.ParseDuration(fields[0])
				if err != nil || len(fields) < 2 {
					continue // the head of the output, or a label
				}
				s.Value, fields = took.Seconds(), fields[1:]
			}
			s.Functions = append([]string{strings.Join(fields, " ")}, s.Functions...)
		}
		if len(s.Functions) > 0 {
			all = append(all, s)
		}
	}
	if len(all) == 0 {
		return nil, errors.New("the profile holds no samples")
	}
	return all, nil
}

// shares adds up the time in a profile by the part of the program that has caused it.
func shares(stacks []plot.Stack) (all []result.Share) {
	byPart, total := map[string]float64{}, 0.0
	for _, s := range stacks {
		byPart[part(s.Functions)] += s.Value
		total += s.Value
	}
	for _, name := range slices.Collect(maps.Keys(byPart)) {
		all = append(all, result.Share{Of: name, Share: result.Round(byPart[name] / total)})
	}
	slices.SortFunc(all, func(a, b result.Share) int {
		return cmp.Or(cmp.Compare(b.Share, a.Share), strings.Compare(a.Of, b.Of))
	})
	return all
}

// runtimes maps functions of the Go runtime to the parts of the runtime that they belong to. They
// are needed because a stack with such a function may contain no function of the program.
var runtimes = []struct{ function, part string }{
	{"runtime.gcBgMarkWorker", "garbage collection"},
	{"runtime.gcAssistAlloc", "garbage collection"},
	{"runtime.bgsweep", "garbage collection"}, {"runtime.bgscavenge", "garbage collection"},
	{"runtime.schedule", "the scheduler"}, {"runtime.mcall", "the scheduler"},
	{"runtime.park_m", "the scheduler"},
	{"runtime.sysmon", "the scheduler"}, {"runtime.mstart", "the scheduler"},
}

// systemCalls are prefixes of the names of functions that make system calls.
var systemCalls = []string{"internal/runtime/syscall", "syscall.RawSyscall", "runtime.futex",
	"runtime.epoll", "runtime.usleep"}

// part returns the part of the program to which the time of a stack is attributed. For a system
// call, this is the kernel. Otherwise it is determined by the innermost function that is listed in
// runtimes or belongs to a package outside the standard library. If there is none, it is the
// package of the innermost function.
func part(functions []string) string {
	leaf := functions[len(functions)-1]
	for _, call := range systemCalls {
		if strings.HasPrefix(leaf, call) {
			return "kernel: " + kernelCall(functions)
		}
	}
	for i := len(functions) - 1; i >= 0; i-- {
		for _, r := range runtimes {
			if strings.HasPrefix(functions[i], r.function) {
				return r.part
			}
		}
		if path, _, _ := strings.Cut(functions[i], ".("); strings.Contains(functions[i], "/") &&
			strings.Contains(path, ".") &&
			!strings.HasPrefix(functions[i], "internal/") {
			if pkg := packageOf(functions[i]); strings.Contains(pkg, ".") {
				return strings.TrimPrefix(strings.TrimPrefix(pkg,
					"github.com/penstock-io/penstock/"), "github.com/penstock-io/")
			}
		}
	}
	return packageOf(leaf)
}

// packageOf returns the import path of the package of a function.
func packageOf(function string) string {
	folder, name := "", function
	if i := strings.LastIndexByte(function, '/'); i >= 0 && !strings.Contains(function[:i], "[") {
		folder, name = function[:i+1], function[i+1:]
	}
	name, _, _ = strings.Cut(name, ".")
	return folder + name
}

// kernelCall returns the purpose of a system call. If the call comes from a method of os.File or
// poll.FD, this is the name of the method, such as "read". For calls of the scheduler it is "waking
// and waiting". For all others it is "other calls".
func kernelCall(functions []string) string {
	for i := len(functions) - 1; i >= 0; i-- {
		switch name := functions[i]; {
		case strings.HasPrefix(name, "internal/poll.(*FD)."),
			strings.HasPrefix(name, "os.(*File)."):
			_, method, _ := strings.Cut(name, ").")
			return strings.ToLower(strings.FieldsFunc(method,
				func(c rune) bool { return c == '.' || c == ' ' })[0])
		case strings.HasPrefix(name, "runtime.futex"), strings.HasPrefix(name, "runtime.epoll"),
			strings.HasPrefix(name, "runtime.netpoll"),
			strings.HasPrefix(name, "runtime.usleep"):
			return "waking and waiting"
		}
	}
	return "other calls"
}

// keptProfiles is the start of the paths of the flame graphs in docs/performance.md. keptShares is
// the file with the shares of the parts of the program in these graphs.
const (
	keptProfiles = "../docs/plots/profile"
	keptShares   = "profiles.json"
)

// keepProfile keeps a graph and its shares for the page.
func keepProfile(e *env, name, out string, shares []result.Share) error {
	svg, err := os.ReadFile(filepath.Join(out, name+".svg"))
	if err != nil {
		return err
	}
	if err := os.WriteFile(keptProfiles+"-"+name+".svg", svg, 0o644); err != nil {
		return err
	}
	all, err := result.ReadProfiles(keptShares)
	if err != nil {
		return err
	}
	all[name] = result.Profile{Time: e.begun.UTC().Format(result.TimeForm),
		Shares: shares[:min(len(shares), 10)]}
	return all.Write(keptShares)
}

// lookSeconds is the duration of a profile of a workload that misses a target.
const lookSeconds = 4

// profileMissed takes profiles of the workloads that miss a target, if that is possible.
func (e *env) profileMissed(lines []result.Line) error {
	var wrong []error
	for _, l := range lines {
		if _, can := profiledAs[l.Workload]; !can || l.Program != ours || len(l.Missed) == 0 {
			continue
		}
		shares, err := e.profile(l.Workload, lookSeconds, "out")
		if err == nil {
			err = keepProfile(e, l.Workload, "out", shares)
		}
		if err != nil {
			wrong = append(wrong, fmt.Errorf("profile of %s: %w", l.Workload, err))
		}
	}
	return errors.Join(wrong...)
}
