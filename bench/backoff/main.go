// Command backoff compares packages backoff and retry with other libraries. It measures three
// operations: the computation of the next wait, a call that succeeds, and a call with one retry
// that does not wait.
//
// A round runs every library once, and each round begins with the next library. So a busy machine
// slows down all libraries alike. The command prints the best and the median time of each library.
// The targets limit our best time as a share of the best time of the fastest other library. They
// compare best times, because other processes can only make a round slower. With -out, the command
// also writes each measurement as a line in Go's benchmark format, for benchstat.
//
// The command is a module of its own, so that the module of Penstock's libraries does not require
// the other libraries.
package main

import (
	"bufio"
	"cmp"
	"flag"
	"fmt"
	"io"
	"os"
	"runtime"
	"slices"
	"strings"
	"testing"
)

// question is an operation to measure, with the libraries to compare.
type question struct {
	name, about string
	target      float64 // maximum of our time, as a share of that of the fastest other library
	allocs      int64   // maximum; a retry allocates the context of its attempt
	answers     []answer
}

// answer measures the operation of a question with one library. The first answer of each question
// is the one of Penstock.
type answer struct {
	lib   string
	bench func(*testing.B)
	aside bool // its result is shown, but does not count for the target
}

func main() {
	testing.Init()
	rounds := flag.Int("rounds", 30, "interleaved rounds")
	length := flag.String("benchtime", "20ms", "how long each library runs in a round")
	out := flag.String("out", "", "file for the lines that benchstat reads; none by default")
	only := flag.String("only", "", "the question to ask; all by default")
	check := flag.Bool("check", false, "exit 1 when a target is missed")
	flag.Parse()
	if err := run(*rounds, *length, *out, *only, *check); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func run(rounds int, length, out, only string, check bool) (err error) {
	if rounds < 1 {
		return fmt.Errorf("-rounds %d: want 1 or more", rounds)
	}
	if err := flag.Set("test.benchtime", length); err != nil {
		return err
	}
	lines := bufio.NewWriter(io.Discard)
	if out != "" {
		f, err := os.Create(out)
		if err != nil {
			return err
		}
		defer f.Close()
		lines.Reset(f)
	}
	fmt.Fprintf(lines, "goos: %s\ngoarch: %s\npkg: github.com/penstock-io/penstock/bench/backoff\n",
		runtime.GOOS, runtime.GOARCH)
	missed := 0
	var summary strings.Builder
	for _, q := range questions {
		if only != "" && q.name != only {
			continue
		}
		held, text := q.measure(lines, rounds)
		mark := "held  "
		if !held {
			missed++
			mark = "MISSED"
		}
		fmt.Fprintf(&summary, "%s  %s\n", mark, text)
	}
	fmt.Print(summary.String())
	if name := os.Getenv("PENSTOCK_SUMMARY"); name != "" {
		if err := os.WriteFile(name, []byte(summary.String()), 0o644); err != nil {
			return err
		}
	}
	if err := lines.Flush(); err != nil {
		return err
	}
	if check && missed > 0 {
		return fmt.Errorf("%d targets missed", missed)
	}
	return nil
}

// measure runs the rounds of q and prints the results. held reports whether our library is within
// the limits q.target and q.allocs. summary is one line that states the result.
func (q question) measure(lines io.Writer, rounds int) (held bool, summary string) {
	times, allocs := make([][]float64, len(q.answers)), make([]int64, len(q.answers))
	for round := range rounds {
		for i := range q.answers {
			at := (round + i) % len(q.answers)
			a := q.answers[at]
			r := testing.Benchmark(a.bench)
			if r.N == 0 {
				return false, fmt.Sprintf("%s: %s failed", q.name, a.lib)
			}
			times[at] = append(times[at], float64(r.T.Nanoseconds())/float64(r.N))
			allocs[at] = r.AllocsPerOp()
			fmt.Fprintf(lines, "Benchmark%s/lib=%s %d %.3f ns/op %d B/op %d allocs/op\n",
				q.name, a.lib, r.N, times[at][round], r.AllocedBytesPerOp(), r.AllocsPerOp())
		}
	}
	fastest := -1
	for i, a := range q.answers {
		if i > 0 && !a.aside && (fastest < 0 || slices.Min(times[i]) < slices.Min(times[fastest])) {
			fastest = i
		}
	}
	fmt.Printf("%s: %s\n", q.name, q.about)
	fmt.Printf("  %-14s %10s %10s %8s   ours to it: %5s %7s\n", "", "best ns", "median ns",
		"allocs", "best", "median")
	for i, a := range q.answers {
		fmt.Printf("  %-14s %10.2f %10.2f %8d   %17.2f %7.2f\n", a.lib, slices.Min(times[i]),
			median(times[i]), allocs[i],
			slices.Min(times[0])/slices.Min(times[i]), median(times[0])/median(times[i]))
	}
	ratio := slices.Min(times[0]) / slices.Min(times[fastest])
	fmt.Println()
	return ratio <= q.target &&
			allocs[0] <= q.allocs, fmt.Sprintf(
			"%s: %.2f of the time of %s (at most %.1f), %d allocations (%d)",
			q.name, ratio, q.answers[fastest].lib, q.target, allocs[0], q.allocs)
}

func median(list []float64) float64 {
	sorted := slices.SortedFunc(slices.Values(list), cmp.Compare[float64])
	n := len(sorted)
	return (sorted[n/2] + sorted[(n-1)/2]) / 2
}
