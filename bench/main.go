// Command bench measures penstock against physical limits in one run: interleaved pairs of whole processes, every pair printed, the
// median quoted as a ratio.
//
// It is a module of its own, outside go.work, so that the tests of the project fetch no rivals. It needs only Go and the penstock
// binary: `make bench` from the top of the project.
package main

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// options are the command's flags.
type options struct {
	penstock string
	pairs    int
	size     string
	only     string
	json     bool
	dir      string
	check    bool
}

func main() {
	if len(os.Args) > 1 && os.Args[1] == "limit" {
		exit(runLimit(os.Args[2:]))
	}
	if len(os.Args) > 1 && os.Args[1] == "receive" {
		exit(receive(os.Args[2:]))
	}
	var o options
	flag.StringVar(&o.penstock, "penstock", "../bin/penstock", "the program to measure")
	flag.IntVar(&o.pairs, "pairs", 7, "interleaved pairs of each workload")
	flag.StringVar(&o.size, "size", "1GiB", "bytes of generated combined log lines")
	flag.StringVar(&o.only, "only", "", "workloads to run, with commas: w1,w2,w2_ack,w3; all by default")
	flag.BoolVar(&o.json, "json", false, "print only one JSON object a workload and program")
	flag.StringVar(&o.dir, "dir", "", "scratch folder, removed at the end; default: a temporary one beside the system's others")
	flag.BoolVar(&o.check, "check", false, "exit 1 when a target is missed")
	flag.Parse()
	exit(bench(o))
}

func exit(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
	os.Exit(0)
}

// result is what one workload showed.
type result struct {
	workload workload
	ratios   []float64
	ours     []run
	limits   []run
}

func bench(o options) (err error) {
	if o.penstock, err = filepath.Abs(o.penstock); err != nil {
		return err
	}
	if o.dir == "" {
		if o.dir, err = os.MkdirTemp("", "penstock-bench-"); err != nil {
			return err
		}
		defer os.RemoveAll(o.dir)
	}
	in, err := makeInput(o)
	if err != nil {
		return err
	}
	o.say("input: %d bytes, %d records of generated combined log lines, in the page cache\n", in.bytes, in.records)
	var missed []string
	for _, w := range workloads {
		if o.only != "" && !slices.Contains(strings.Split(o.only, ","), w.name) {
			continue
		}
		r, err := measurePairs(o, w, in)
		if err != nil {
			return fmt.Errorf("%s: %w", w.name, err)
		}
		missed = append(missed, report(o, r, in)...)
	}
	if len(missed) > 0 && o.check {
		return fmt.Errorf("targets missed: %s", strings.Join(missed, "; "))
	}
	return nil
}

func (o options) say(format string, args ...any) {
	if !o.json {
		fmt.Printf(format, args...)
	}
}

// measurePairs runs limit and penstock in turn, after one warm-up of each.
func measurePairs(o options, w workload, in input) (result, error) {
	r := result{workload: w}
	o.say("\n%s: %s, against %s\n", w.name, w.about, w.limitAbout)
	for i := -1; i < o.pairs; i++ {
		limit, err := w.limit(o, in)
		if err != nil {
			return r, err
		}
		ours, err := w.penstock(o, in)
		if err != nil {
			return r, err
		}
		if i < 0 {
			continue
		}
		ratio := limit.seconds / ours.seconds
		r.ratios, r.ours, r.limits = append(r.ratios, ratio), append(r.ours, ours), append(r.limits, limit)
		o.say("  pair %d: limit %7.0f MB/s   penstock %7.0f MB/s   ratio %.2f   %.3f CPU-s/GB   %3.0f MiB resident\n",
			i+1, in.mbPerS(limit), in.mbPerS(ours), ratio, in.cpuPerGB(ours), ours.rssMiB)
	}
	return r, nil
}

// report prints the medians and returns the targets that were missed.
func report(o options, r result, in input) (missed []string) {
	ratio := median(r.ratios, func(f float64) float64 { return f })
	cpu := median(r.ours, func(x run) float64 { return in.cpuPerGB(x) })
	rss := slices.MaxFunc(r.ours, func(a, b run) int { return int(a.rssMiB - b.rssMiB) }).rssMiB
	speed := median(r.ours, in.mbPerS)
	w := r.workload
	if ratio < w.target {
		missed = append(missed, fmt.Sprintf("%s reaches %.2f of %s, target %.2f", w.name, ratio, w.limitName, w.target))
	}
	if w.cpuTarget > 0 && cpu > w.cpuTarget {
		missed = append(missed, fmt.Sprintf("%s takes %.3f CPU-s/GB, target %.2f", w.name, cpu, w.cpuTarget))
	}
	if rss > rssTargetMiB {
		missed = append(missed, fmt.Sprintf("%s holds %.0f MiB, target %d", w.name, rss, rssTargetMiB))
	}
	o.say("  median: %.2f of %s (target %.2f), %.0f MB/s, %.3f CPU-s/GB, at most %.0f MiB\n", ratio, w.limitName, w.target, speed, cpu, rss)
	if o.json {
		line, _ := json.Marshal(map[string]any{
			"workload": w.name, "program": "penstock", "mb_per_s": round(speed), "limit": w.limitName, "of_limit": round(ratio),
			"cpu_s_per_gb": round(cpu), "rss_mb": round(rss), "lost": r.ours[0].lost, "repeated": r.ours[0].repeated,
		})
		fmt.Println(string(line))
	}
	return missed
}

// rssTargetMiB is the most resident memory that any of the workloads may take.
const rssTargetMiB = 64

func round(f float64) float64 { return float64(int(f*1000+.5)) / 1000 }

func median[T any](of []T, value func(T) float64) float64 {
	values := make([]float64, len(of))
	for i, x := range of {
		values[i] = value(x)
	}
	slices.Sort(values)
	return values[len(values)/2]
}
