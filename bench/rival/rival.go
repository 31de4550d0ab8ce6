// Package rival runs other programs with the same workloads as penstock. It finds the programs,
// writes their configs, and detects when they are done. Each config has the fastest of the measured
// settings that follow the documentation of the program, with one more condition for the workload
// w3 (see configs.go). The package installs no program.
package rival

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/penstock-io/penstock/bench/proc"
)

// Job is a workload for another program.
type Job struct {
	Workload string // w1 drops all records, w2 writes a file, w3 posts to a receiver
	Dir      string // new folder for the job
	Input    string // path of the file to read
	Out      string // path of the file to write
	URL      string // URL of the receiver
}

// Rolled is a folder in Job.Dir for programs that choose the names of their output files.
const Rolled = "rolled"

// Written returns the path of the file that the program has written. This is Out or, for programs
// that choose the name themselves, a file in Rolled.
func (j Job) Written() string {
	if named, err := filepath.Glob(filepath.Join(j.Dir, Rolled, "[0-9]*")); err == nil &&
		len(named) == 1 {
		return named[0]
	}
	return j.Out
}

// Program is another program.
type Program struct {
	Name string // in results and in the flag -rival NAME=PATH
	// Part divides the input of a slow program, so that a run takes only a few seconds. With 4,
	// the program gets a quarter of the input. The start of the program is still only a small
	// part of the measured time.
	Part  int64
	parts map[string]int64 // used instead of Part, by workload
	names []string
	// files returns the texts of the config files for a job, by file name. The arguments of the
	// program (args) refer to these files. If the program does not support the workload, files
	// returns nil.
	files func(Job) map[string]string
	args  []string // {dir} stands for the folder of the job
	// probe are the arguments with which the program prints its version.
	probe []string
	path  string
}

// Find looks for the other programs at the given paths and on the PATH. absent are the programs
// that it has not found.
func Find(given map[string]string) (found, absent []Program, err error) {
	for name := range given {
		if !slices.ContainsFunc(programs, func(p Program) bool { return p.Name == name }) {
			return nil, nil, fmt.Errorf("-rival %s: there is no config for it; there is for %s",
				name, strings.Join(Names(), ", "))
		}
	}
	for _, p := range programs {
		p.path = given[p.Name]
		if p.path != "" {
			if p.path, err = exec.LookPath(p.path); err != nil {
				return nil, nil, fmt.Errorf("-rival %s: %w", p.Name, err)
			}
		}
		for _, name := range p.names {
			if at, err := exec.LookPath(name); err == nil && p.path == "" {
				p.path = at
			}
		}
		if p.path == "" {
			absent = append(absent, p)
			continue
		}
		if p.path, err = filepath.Abs(p.path); err != nil {
			return nil, nil, err
		}
		found = append(found, p)
	}
	return found, absent, nil
}

// Names returns the names of all programs.
func Names() (all []string) {
	for _, p := range programs {
		all = append(all, p.Name)
	}
	return all
}

// Configs returns the config files for a job with the named program.
func Configs(name string, j Job) map[string]string {
	for _, p := range programs {
		if p.Name == name {
			return p.files(j)
		}
	}
	return nil
}

// Does reports whether the program supports a workload.
func (p Program) Does(workload string) bool { return len(p.files(Job{Workload: workload})) > 0 }

// PartOf returns n if the program gets 1/n of the input of a workload.
func (p Program) PartOf(workload string) int64 {
	if part := p.parts[workload]; part > 0 {
		return part
	}
	return p.Part
}

// Version returns the version that the program prints.
func (p Program) Version() string {
	out, err := exec.Command(p.path, p.probe...).CombinedOutput()
	first, _, _ := strings.Cut(strings.TrimSpace(string(out)), "\n")
	first = strings.Join(strings.Fields(strings.TrimSuffix(first, "compiled with:")), " ")
	if err != nil || first == "" {
		return "unknown"
	}
	return first
}

// Run starts the program and ends it when watch returns done as true. The measured time ends at
// this moment. watch also returns the progress. If the progress does not change for longer than
// patience, Run returns an error.
func (p Program) Run(j Job, patience time.Duration,
	watch func(pid int) (progress int64, done bool, err error)) (proc.Run, error) {
	for name, text := range p.files(j) {
		if err := os.MkdirAll(filepath.Dir(filepath.Join(j.Dir, name)), 0o755); err != nil {
			return proc.Run{}, err
		}
		if err := os.WriteFile(filepath.Join(j.Dir, name), []byte(text), 0o644); err != nil {
			return proc.Run{}, err
		}
	}
	var args []string
	for _, a := range p.args {
		args = append(args, strings.ReplaceAll(a, "{dir}", j.Dir))
	}
	running, err := proc.Start(j.Dir, p.path, args...)
	if err != nil {
		return proc.Run{}, err
	}
	begun := time.Now()
	moved, had := begun, int64(-1)
	tick := time.NewTicker(watchEvery)
	defer tick.Stop()
	for {
		progress, done, err := watch(running.PID())
		if err != nil {
			running.Kill()
			return proc.Run{}, err
		}
		if done {
			seconds := time.Since(begun).Seconds()
			r, err := running.Stop(stopPatience)
			r.Seconds = seconds
			return r, err
		}
		if progress != had {
			moved, had = time.Now(), progress
		}
		select {
		case <-running.Ended():
			r, err := running.Wait()
			if err == nil {
				err = fmt.Errorf("it ended before the work was done: %.500s", r.Out)
			}
			return r, err
		case <-tick.C:
			if time.Since(moved) > patience {
				r, _ := running.Stop(stopPatience)
				return r, fmt.Errorf("nothing moved for %v; it said %.500s", patience, r.Out)
			}
		}
	}
}

const (
	watchEvery   = 10 * time.Millisecond
	stopPatience = 10 * time.Second
)

// ReadTo returns the offset up to which a process has read a file, or 0 if the file is not open. It
// finds the offset in /proc.
func ReadTo(pid int, path string) (at int64) {
	fds, err := filepath.Glob(fmt.Sprintf("/proc/%d/fd/*", pid))
	if err != nil {
		return 0
	}
	for _, fd := range fds {
		if target, err := os.Readlink(fd); err != nil || target != path {
			continue
		}
		info, err := os.ReadFile(strings.Replace(fd, "/fd/", "/fdinfo/", 1))
		var pos int64
		if _, scanErr := fmt.Sscanf(string(info), "pos: %d", &pos); err == nil && scanErr == nil {
			at = max(at, pos)
		}
	}
	return at
}
