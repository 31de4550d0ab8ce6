package main

import (
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strings"

	"github.com/penstock-io/penstock/bench/result"
)

// entries adds the machine and the command to each line.
func (e *env) entries(lines []result.Line) (all []result.Entry) {
	run := result.Run{
		Time: e.begun.UTC().Format(result.TimeForm), Machine: machine(),
		Command:  e.command(),
		Versions: map[string]string{"go": runtime.Version(), ours: version(e.penstock)},
	}
	for _, p := range e.found {
		run.Versions[p.Name] = p.Version()
	}
	for _, l := range lines {
		all = append(all, result.Entry{Line: l, Run: run})
	}
	return all
}

// command returns the command line with which the measurement can be repeated.
func (e *env) command() string {
	if e.figures && e.only == "" {
		return "make bench-figures"
	}
	return "make bench BENCH='" + strings.Join(flagsOf(os.Args[1:]), " ") + "'"
}

// flagsOf returns args without the flags that do not affect the measurement.
func flagsOf(args []string) (kept []string) {
	for i := 0; i < len(args); i++ {
		switch strings.TrimLeft(args[i], "-") {
		case "append", "dir", "penstock", "newer":
			i++
		case "json":
		default:
			kept = append(kept, args[i])
		}
	}
	return kept
}

func version(program string) string {
	out, err := exec.Command(program, "version").Output()
	if err != nil {
		return "unknown"
	}
	first, _, _ := strings.Cut(string(out), "\n")
	return strings.TrimPrefix(first, "penstock ")
}

// machine returns a line with processor, memory and operating system.
func machine() string {
	return fmt.Sprintf("%s, %s of memory, %s/%s %s", cores(), memory(), runtime.GOOS,
		runtime.GOARCH, kernel())
}

// cores returns the properties of the machine on which ratios depend.
func cores() string {
	return fmt.Sprintf("%d cores (%s)", runtime.NumCPU(), valueOf("/proc/cpuinfo", "model name"))
}

// valueOf returns the first value of name in a file of the kernel. The lines have the form "name:
// value".
func valueOf(path, name string) string {
	text, err := os.ReadFile(path)
	if err != nil {
		return "unknown"
	}
	for line := range strings.Lines(string(text)) {
		if key, value, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(key) == name {
			return strings.TrimSpace(value)
		}
	}
	return "unknown"
}

func memory() string {
	var kib float64
	if _, err := fmt.Sscanf(valueOf("/proc/meminfo", "MemTotal"), "%f kB", &kib); err != nil {
		return "an unknown amount"
	}
	return fmt.Sprintf("%.0f GiB", kib/(1<<20))
}

func kernel() string {
	text, err := os.ReadFile("/proc/sys/kernel/osrelease")
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(text))
}
