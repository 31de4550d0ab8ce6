package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// run is one measured process.
type run struct {
	seconds        float64 // wall time, from start to exit
	cpu            float64 // user and system seconds
	rssMiB         float64
	lost, repeated int64
	out            []byte
}

// process runs a command and measures it as a whole.
func process(name string, args ...string) (run, error) {
	var out, errs bytes.Buffer
	cmd := exec.Command(name, args...)
	cmd.Stdout, cmd.Stderr = &out, &errs
	start := time.Now()
	err := cmd.Run()
	r := run{seconds: time.Since(start).Seconds(), out: out.Bytes()}
	if err != nil {
		return r, fmt.Errorf("%s %s: %w\n%s%s", filepath.Base(name), strings.Join(args, " "), err, out.String(), errs.String())
	}
	r.cpu = (cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime()).Seconds()
	if usage, ok := cmd.ProcessState.SysUsage().(*syscall.Rusage); ok {
		r.rssMiB = float64(usage.Maxrss) / 1024
	}
	return r, nil
}

// self runs this program as a limit.
func self(args ...string) (run, error) {
	exe, err := os.Executable()
	if err != nil {
		return run{}, err
	}
	return process(exe, append([]string{"limit"}, args...)...)
}

// input is the file that all workloads read.
type input struct {
	path           string
	bytes, records int64
}

func (in input) mbPerS(r run) float64   { return float64(in.bytes) / 1e6 / r.seconds }
func (in input) cpuPerGB(r run) float64 { return r.cpu / (float64(in.bytes) / 1e9) }

// makeInput generates log lines until the file has the wanted size, and reads it once into the page cache.
func makeInput(o options) (input, error) {
	in := input{path: filepath.Join(o.dir, "input", "access.log")}
	var want int64
	var unit string
	if _, err := fmt.Sscanf(o.size, "%d%s", &want, &unit); err != nil {
		return in, fmt.Errorf("-size %q: write a number and KiB, MiB or GiB", o.size)
	}
	shift, ok := map[string]int{"KiB": 10, "MiB": 20, "GiB": 30}[unit]
	if !ok {
		return in, fmt.Errorf("-size %q: the unit is KiB, MiB or GiB", o.size)
	}
	want <<= shift
	if err := os.MkdirAll(filepath.Dir(in.path), 0o755); err != nil {
		return in, err
	}
	const linesAtOnce = 20_000
	block, err := process(o.penstock, "generate", "--format", "combined", "--lines", fmt.Sprint(linesAtOnce), "--seed", "1")
	if err != nil {
		return in, err
	}
	f, err := os.Create(in.path)
	if err != nil {
		return in, err
	}
	for in.bytes < want {
		n, err := f.Write(block.out)
		if err != nil {
			return in, err
		}
		in.bytes += int64(n)
		in.records += linesAtOnce
	}
	if err := f.Sync(); err != nil {
		return in, err
	}
	old := time.Now().Add(-time.Hour)
	if err := os.Chtimes(in.path, old, old); err != nil {
		return in, err
	}
	if err := f.Close(); err != nil {
		return in, err
	}
	_, err = self("count", in.path)
	return in, err
}

// penstockOnce runs penstock over the input with a config whose ${name} were replaced, in a fresh folder, and checks that it delivered
// every record.
func penstockOnce(o options, in input, config string) (run, error) {
	dir := filepath.Join(o.dir, "run")
	if err := os.RemoveAll(dir); err != nil {
		return run{}, err
	}
	if err := os.MkdirAll(filepath.Join(dir, "spool"), 0o755); err != nil {
		return run{}, err
	}
	if err := os.Link(in.path, filepath.Join(dir, "spool", "access.log")); err != nil {
		return run{}, err
	}
	path := filepath.Join(dir, "penstock.yaml")
	if err := os.WriteFile(path, []byte(config), 0o600); err != nil {
		return run{}, err
	}
	r, err := process(o.penstock, "run", "--once", "--json", path)
	if err != nil {
		return r, err
	}
	lines := bytes.Split(bytes.TrimSpace(r.out), []byte("\n"))
	var last struct {
		OK        bool
		Pipelines []struct{ Delivered int64 }
	}
	if err := json.Unmarshal(lines[len(lines)-1], &last); err != nil || !last.OK || len(last.Pipelines) != 1 {
		return r, fmt.Errorf("penstock ended with %q (%v)", lines[len(lines)-1], err)
	}
	if got := last.Pipelines[0].Delivered; got != in.records {
		return r, fmt.Errorf("penstock delivered %d records of %d", got, in.records)
	}
	return r, nil
}
