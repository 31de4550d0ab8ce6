package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"time"

	"github.com/penstock-io/penstock/bench/load"
	"github.com/penstock-io/penstock/bench/plot"
	"github.com/penstock-io/penstock/bench/receiver"
	"github.com/penstock-io/penstock/bench/result"
)

func keys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }

// growing is a measurement of how the cost grows with the size of the input.
type growing struct {
	name, title, x, y string
	steps             []int64
	measure           func(e *env, n int64) (float64, error)
}

var growings = []growing{
	{
		name: "workers", title: "HTTP endpoints, 128 MiB in all", x: "workers",
		y:     "CPU us a record",
		steps: []int64{1, 10, 100, 1000}, measure: growWorkers,
	},
	{
		name: "files", title: "files of 4 lines into drop", x: "files", y: "CPU us a file",
		steps: []int64{1, 10, 100, 1000, 10_000, 100_000}, measure: growFiles,
	},
	{
		name: "size", title: "one file into drop", x: "bytes of the file", y: "CPU ns a byte",
		steps: []int64{1e6, 1e7, 1e8, 1e9, manyBytes}, measure: growSize,
	},
	{
		name: "record", title: "lines into a file, 128 MiB in all", x: "bytes of a record",
		y:     "CPU ns a byte",
		steps: []int64{10, 100, 1000, 10_000, 100_000, 1e6, 1e7}, measure: growRecord,
	},
}

const (
	manyFiles = 100_000 // an input with at least as many files is measured once
	manyBytes = 1e10    // for an input with as many bytes, the free disk space is checked
)

// The CPU time of a short run varies, because the start of the process is a large part of it. If
// the first run takes less than 0.3 CPU seconds (steady), the result is the median of 11 runs
// (manyRounds). Otherwise it is the median of 3 runs (fewRounds).
const (
	fewRounds, manyRounds = 3, 11
	steady                = 0.3
)

// growth is the subcommand `growth [-only NAME] [-out FILE] [-plot FILE]`. It measures how the cost
// grows with the input.
func growth(args []string) error {
	var o options
	flags := flag.NewFlagSet("growth", flag.ContinueOnError)
	only := flags.String("only", "", "workers, files, size or record; all by default")
	out := flags.String("out", "growth.json",
		"file of the points, in which those measured are replaced")
	svg := flags.String("plot", "../docs/plots/growth.svg", "the figure of all points in it")
	flags.StringVar(&o.penstock, "penstock", "../bin/penstock", "the program to measure")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if *only != "" &&
		!slices.ContainsFunc(growings, func(g growing) bool { return g.name == *only }) {
		return fmt.Errorf("growth -only %s: there are workers, files, size and record", *only)
	}
	e, err := newEnv(o)
	if err != nil {
		return err
	}
	points := map[string][][2]float64{}
	if text, err := os.ReadFile(*out); err == nil {
		if err := json.Unmarshal(text, &points); err != nil {
			return fmt.Errorf("%s: %w", *out, err)
		}
	}
	for _, g := range growings {
		if *only == "" || *only == g.name {
			if points[g.name], err = g.run(e); err != nil {
				return errors.Join(fmt.Errorf("%s: %w", g.name, err), e.close())
			}
		}
	}
	text, err := json.MarshalIndent(points, "", "  ")
	if err := errors.Join(err, e.close()); err != nil {
		return err
	}
	if err := os.WriteFile(*out, append(text, '\n'), 0o644); err != nil {
		return err
	}
	return os.WriteFile(*svg, []byte(growthFigure(points)), 0o644)
}

func growthFigure(points map[string][][2]float64) string {
	var curves []plot.Curve
	for _, g := range growings {
		if len(points[g.name]) > 0 {
			curves = append(curves, plot.Curve{Title: g.title, X: g.x, Y: g.y,
				Points: points[g.name]})
		}
	}
	return plot.Curves("How cost grows",
		"Processor time of penstock, that of a run with one line taken off; "+
			"medians of 3 to 11 runs, 100,000 files once; less than 1 ms counts as 1 ms", curves)
}

func (g growing) run(e *env) (points [][2]float64, err error) {
	for _, n := range g.steps {
		if g.name == "size" && n >= manyBytes && !roomFor(e.dir, 2*n) {
			fmt.Printf("%-8s %10d   not measured: there is not twice as much room on the disk\n",
				g.name, n)
			continue
		}
		var costs []float64
		rounds := fewRounds
		if n >= manyFiles && g.name == "files" {
			rounds = 1 // it takes longer to create the files than to read them
		}
		for i := 0; i < rounds; i++ {
			cost, err := g.measure(e, n)
			if err != nil {
				return nil, fmt.Errorf("%d: %w", n, err)
			}
			costs = append(costs, cost)
			if i == 0 && rounds == fewRounds && e.lastCPU < steady {
				rounds = manyRounds
			}
		}
		points = append(points, [2]float64{float64(n), result.Median(costs)})
		fmt.Printf("%-8s %10d   %.4g %s   [%.4g-%.4g]\n", g.name, n, result.Median(costs), g.y,
			slices.Min(costs), slices.Max(costs))
	}
	return points, nil
}

// roomFor reports whether the file system of dir has n free bytes.
func roomFor(dir string, n int64) bool {
	var disk syscall.Statfs_t
	return syscall.Statfs(dir, &disk) == nil && int64(disk.Bavail)*int64(disk.Bsize) > n
}

// smallest is the lowest cost that is reported, in CPU seconds. A run with a lower cost cannot be
// distinguished from a run with one line of input.
const smallest = 0.001

// above returns the additional CPU time of m, compared with a run with one line of input. The CPU
// time of the latter is the median of several runs, which are made at the first call only.
func (e *env) above(m measure) (float64, error) {
	e.lastCPU = m.CPU
	if e.startup == 0 {
		in, err := e.input(load.Combined, 1)
		if err != nil {
			return 0, err
		}
		var all []float64
		for range manyRounds {
			one, err := e.once(in, toDrop)
			if err != nil {
				return 0, err
			}
			all = append(all, one.CPU)
		}
		e.startup = result.Median(all)
	}
	return max(smallest, m.CPU-e.startup), nil
}

func growWorkers(e *env, n int64) (float64, error) {
	in, err := e.input(load.Combined, 128*mib)
	if err != nil {
		return 0, err
	}
	m, err := e.intoReceiver(in, receiver.Behaviour{}, int(n), "")
	if err != nil {
		return 0, err
	}
	if m.lost > 0 {
		return 0, fmt.Errorf("%d records were lost", m.lost)
	}
	cpu, err := e.above(m)
	return cpu / float64(in.Records) * 1e6, err
}

func growFiles(e *env, n int64) (float64, error) {
	const linesEach = 4
	b, err := e.block(load.Combined)
	if err != nil {
		return 0, err
	}
	j, err := e.job(load.Input{}, toDrop)
	if err != nil {
		return 0, err
	}
	for i := range n {
		at := int(i) * linesEach % (b.Lines() - linesEach)
		text := b.Number(at, at+linesEach, i*linesEach, time.Time{})
		if err := os.WriteFile(j.path(fmt.Sprintf("spool/%06d.log", i)), text, 0o644); err != nil {
			return 0, err
		}
	}
	r, s, err := j.once()
	if err == nil && s.Delivered != n*linesEach {
		err = fmt.Errorf("%d records delivered, want %d", s.Delivered, n*linesEach)
	}
	if err != nil {
		return 0, err
	}
	cpu, err := e.above(measure{Run: r})
	return cpu / float64(n) * 1e6, err
}

func growSize(e *env, n int64) (float64, error) {
	in, err := e.input(load.Combined, n)
	if err != nil {
		return 0, err
	}
	m, err := e.once(in, toDrop)
	if err == nil && m.lost > 0 {
		err = fmt.Errorf("%d records were lost", m.lost)
	}
	if err != nil {
		return 0, err
	}
	cpu, err := e.above(m)
	return cpu / float64(in.Bytes) * 1e9, err
}

func growRecord(e *env, n int64) (float64, error) {
	in := load.Input{Path: filepath.Join(e.dir, "input", fmt.Sprintf("record-%d.log", n))}
	line := append(bytes.Repeat([]byte("x"), int(n)-1), '\n')
	in.Records = 128 * mib / n
	in.Bytes = in.Records * n
	if err := os.MkdirAll(filepath.Dir(in.Path), 0o755); err != nil {
		return 0, err
	}
	if err := os.WriteFile(in.Path, bytes.Repeat(line, int(in.Records)), 0o644); err != nil {
		return 0, err
	}
	defer os.Remove(in.Path)
	config := `state: ./state
pipelines:
  bench:
    source: { spool_dir: { path: ./spool, finished: keep, quiet_period: 10ms, max_record: 16MiB } }
    sink: { file: { path: ./out.log, format: raw, fsync: interval } }
`
	j, err := e.job(in, config)
	if err != nil {
		return 0, err
	}
	r, s, err := j.once()
	if err == nil && s.Delivered != in.Records {
		err = fmt.Errorf("%d records delivered, want %d", s.Delivered, in.Records)
	}
	if err != nil {
		return 0, err
	}
	cpu, err := e.above(measure{Run: r})
	return cpu / float64(in.Bytes) * 1e9, err
}
