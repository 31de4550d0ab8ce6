package main

import (
	"compress/gzip"
	"errors"
	"io"
	"os"
	"os/exec"

	"github.com/penstock-io/penstock/bench/load"
	"github.com/penstock-io/penstock/bench/proc"
	"github.com/penstock-io/penstock/bench/result"
)

// limitsName is the name of the workload that measures only the machine, for example the speed of a
// copy, and not penstock.
const limitsName = "limits"

// bareRounds is the number of runs of each measurement of the machine. The result is their median.
const bareRounds = 3

// bare is a measurement of the machine without penstock.
type bare struct {
	name, about string
	run         func(e *env, in load.Input) (measure, error)
}

var bares = []bare{
	{"cat", "cat FILE | cat >/dev/null", catPiped},
	{"zcat", "zcat FILE.gz | cat >/dev/null, in bytes of text", zcatPiped},
	{"go_count", "read in blocks of 256 KiB, and count line ends",
		func(e *env, in load.Input) (measure, error) {
			return e.limit(in, "count")
		}},
	{"go_lines", "read the first and the last byte of each line, in one thread", linesByGo},
	{"go_copy", "copy the file", func(e *env, in load.Input) (measure, error) {
		return e.copied(in, "copy")
	}},
	{"go_copy_fsync", "copy the file, and one fsync", func(e *env, in load.Input) (measure, error) {
		return e.copied(in, "copy_fsync")
	}},
	{"go_post_1", "post bodies of 256 KiB on one connection",
		func(e *env, in load.Input) (measure, error) {
			return e.posted(in, 1)
		}},
	{"go_post_4", "post bodies of 256 KiB on four connections",
		func(e *env, in load.Input) (measure, error) {
			return e.posted(in, 4)
		}},
}

// bareLines measures the machine without penstock and returns a line for each measurement. It omits
// programs that are not installed.
func (e *env) bareLines(w workload) (lines []result.Line, err error) {
	in, err := e.inputFor(w)
	if err != nil {
		return nil, err
	}
	for _, b := range bares {
		var speeds, costs []float64
		for range bareRounds {
			m, err := b.run(e, in)
			if errors.Is(err, exec.ErrNotFound) {
				e.say("  %s: not installed\n", b.name)
				break
			}
			if err != nil {
				return lines, err
			}
			speeds, costs = append(speeds, m.mbPerS()), append(costs, m.cpuPerGB())
		}
		if len(speeds) == 0 {
			continue
		}
		l := result.Line{
			Workload: w.name, Program: b.name, Limit: "none", Note: b.about,
			MBPerS:   result.Round(result.Median(speeds)),
			CPUPerGB: result.Round(result.Median(costs)),
		}
		lines = append(lines, l)
		e.say("  %-14s %7.0f MB/s   %.3f CPU-s/GB   %s\n", b.name, l.MBPerS, l.CPUPerGB, b.about)
		if e.json {
			if err := l.Write(os.Stdout); err != nil {
				return lines, err
			}
		}
	}
	return lines, nil
}

func catPiped(e *env, in load.Input) (measure, error) { return piped(in, "cat", in.Path) }

// zcatPiped decompresses only a part of the input, because it is slow.
func zcatPiped(e *env, in load.Input) (measure, error) {
	part, err := e.input(in.Kind, min(in.Bytes, 128*mib))
	if err != nil {
		return measure{}, err
	}
	packed, err := gzipped(part.Path)
	if err != nil {
		return measure{}, err
	}
	return piped(part, "zcat", packed)
}

// piped runs a system program on the file at path. It pipes the output to cat, which stands for a
// program that processes the output. The result has the time and the CPU time of both processes.
func piped(in load.Input, program, path string) (measure, error) {
	at, err := exec.LookPath(program)
	if err != nil {
		return measure{}, err
	}
	r, err := proc.Do("sh", "-c", `"$1" "$2" | cat >/dev/null`, "sh", at, path)
	return of(r, in), err
}

// gzipped compresses a file with gzip's default level and returns the path of the compressed file.
// If this file already exists, gzipped does not compress again.
func gzipped(path string) (packed string, err error) {
	packed = path + ".gz"
	if _, err := os.Stat(packed); err == nil {
		return packed, nil
	}
	from, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer from.Close()
	to, err := os.Create(packed)
	if err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, to.Close()) }()
	z := gzip.NewWriter(to)
	_, err = io.Copy(z, from)
	return packed, errors.Join(err, z.Close())
}
