// Command bench measures the speed of penstock. It compares penstock with limits of the machine,
// and with other programs that are installed. It runs whole processes in pairs of a program and its
// limit, in alternating order. It prints the ratio of each pair and reports the median.
//
// The command is a module of its own outside go.work, so that the project does not need its
// dependencies. It needs only Go and the penstock binary: a workload that needs another program is
// omitted if this program is missing. Run `make bench` at the top of the project.
package main

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/penstock-io/penstock/bench/limit"
	"github.com/penstock-io/penstock/bench/page"
	"github.com/penstock-io/penstock/bench/receiver"
)

// options are the flags of the command.
type options struct {
	penstock string
	pairs    int
	size     int64
	only     string
	json     bool
	dir      string
	check    bool
	full     bool
	kept     string
	machine  string
	keep     bool
	gate     bool
	into     string
	figures  bool
	within   time.Duration
	newer    time.Duration
	rivals   rivalFlags
}

// parts are the subcommands: processes that a measurement starts, other measurements, and tools for
// results.
var parts = map[string]func(args []string) error{
	"limit":   limit.Main,
	"receive": receiver.Main,
	"feed":    feedMain,
	"profile": profile,
	"growth":  growth,
	"judge":   judgeLines,
	"page":    func(args []string) error { return page.Main(args, abouts()) },
}

func main() {
	if len(os.Args) > 1 {
		if part := parts[os.Args[1]]; part != nil {
			exit(part(os.Args[2:]))
		}
	}
	o := options{rivals: rivalFlags{}}
	size := flag.String("size", "1GiB", "bytes of input of w1, w2 and w3")
	flag.StringVar(&o.penstock, "penstock", "../bin/penstock", "the program to measure")
	flag.IntVar(&o.pairs, "pairs", 7, "interleaved pairs of w1, w2, w2_ack, w3 and w8")
	flag.StringVar(&o.only, "only", "", "workloads to run, with commas, such as w1,w2,w4_*; "+
		"all by default")
	flag.BoolVar(&o.json, "json", false, "print only one JSON object a workload and program")
	flag.StringVar(&o.dir, "dir", "", "where the scratch folder is made, removed at the end; "+
		"default: the system's, and for -gate /dev/shm, where it has room")
	flag.BoolVar(&o.check, "check", false, "exit 1 when a target is missed")
	flag.BoolVar(&o.full, "full", false, "longer runs and more of them")
	o.keptFlags(flag.CommandLine)
	flag.BoolVar(&o.keep, "keep", false,
		"with -gate: write what was measured, on a quiet machine, into the file of ratios")
	flag.BoolVar(&o.gate, "gate", false,
		"measure the workloads whose ratios are kept, and exit 1 when one has fallen by "+
			"more than 20 %")
	flag.StringVar(&o.into, "append", "",
		"file in which results are put as each workload is done, with machine and versions: "+
			"what docs/performance.md is made of")
	flag.BoolVar(&o.figures, "figures", false,
		"the pairs of -full and its rivals once, but quick inputs, and a profile of what misses: "+
			"what docs/performance.md shows")
	flag.DurationVar(&o.within, "within", 0,
		"as few pairs as it takes to be done by then, one of each workload at least; 0: "+
			"take the time")
	flag.DurationVar(&o.newer, "newer", 0,
		"leave out workloads of which -append holds a line of a run begun since: "+
			"to go on after an interruption")
	flag.Var(o.rivals, "rival", "NAME=PATH of another program to measure beside penstock; "+
		"-full takes those on the PATH, too")
	flag.Usage = usage
	flag.Parse()
	var err error
	if flag.NArg() > 0 {
		exit(fmt.Errorf("%q is no part of it (bench -h); workloads are chosen by -only %[1]s",
			flag.Arg(0)))
	}
	if o.size, err = parseSize(*size); err == nil {
		err = bench(o)
	}
	exit(err)
}

// keptFlags defines the flags that select kept ratios.
func (o *options) keptFlags(flags *flag.FlagSet) {
	flags.StringVar(&o.kept, "ratios", "ratios.json",
		"file of the ratios that are kept, by machine")
	flags.StringVar(&o.machine, "machine", cores(),
		"the machine whose ratios hold; of one that has none, the lowest of the others do")
}

// usage prints a description of the command and its flags.
func usage() {
	fmt.Fprintf(flag.CommandLine.Output(), `
bench measures penstock beside what the machine can do, in interleaved pairs. It runs in the folder bench/;
the targets of the Makefile (make help) start it there. Workloads: %s.

  bench [flags]           measures workloads
  bench growth [flags]    how cost grows with workers, files, file size and record size
  bench profile [flags]   where a workload's processor time goes
  bench judge FILE...     the gate over lines that -json printed
  bench page FILE...      docs/performance.md from what -append wrote

`, strings.Join(names(), ", "))
	flag.PrintDefaults()
}

func exit(err error) {
	if errors.Is(err, flag.ErrHelp) { // the subcommand has printed its flags
		os.Exit(0)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
	os.Exit(0)
}

func parseSize(text string) (int64, error) {
	var n int64
	var unit string
	if _, err := fmt.Sscanf(text, "%d%s", &n, &unit); err != nil || n <= 0 {
		return 0, fmt.Errorf("-size %q: write a number and KiB, MiB or GiB", text)
	}
	shift, ok := map[string]int{"KiB": 10, "MiB": 20, "GiB": 30}[unit]
	if !ok {
		return 0, fmt.Errorf("-size %q: the unit is KiB, MiB or GiB", text)
	}
	return n << shift, nil
}
