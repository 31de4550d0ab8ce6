// Command storm-etl compares two algorithms of flow control that were built on Storm. Twelve bolts
// (workers) of unequal speed parse, enrich and store the log records of a day in a table. They get
// the records in tuples (batches). When half of the rows are stored, the process is killed and
// restarted.
//
// The new algorithm (etl.go) uses windows, acks, and a checkpoint with the times of the stored
// records. The old one (old.go) dispatches by a hash and has no acks. After the crash, it starts
// again from the beginning of the day.
//
// Without an argument, the program runs a day with each algorithm, in a process of its own. Then it
// prints the results and draws run.svg.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"time"
)

// settings are the settings of a run. The child process gets them as flags.
type settings struct {
	rows, tuple int
	speed       float64 // speed of the bolts; 1 means that of scenario s01
	dir, plot   string
	serve       string // address at which the bolts listen, if the engine delivers
}

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "storm-etl:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	var s settings
	f := flag.NewFlagSet("storm-etl", flag.ContinueOnError)
	f.IntVar(&s.rows, "rows", 1_000_000, "log rows of the day")
	f.IntVar(&s.tuple, "tuple", 200, "rows of a tuple")
	f.Float64Var(&s.speed, "speed", 1, "how many times as fast as scenario s01 the bolts are")
	f.StringVar(&s.dir, "dir", "", "folder of the databases; default: a temporary one")
	f.StringVar(&s.plot, "plot", "run.svg", "where the plot is drawn")
	f.StringVar(&s.serve, "serve", "", "serve the bolts over HTTP at this address, "+
		"for penstock.yaml, and nothing else")
	if err := f.Parse(args); err != nil {
		return err
	}
	if f.NArg() == 2 { // a child process; its arguments are the algorithm and the folder
		w, err := openEnvironment(f.Arg(1), filepath.Join(s.dir, "logs.db"), s.rows, s.tuple,
			s.speed)
		if err != nil {
			return err
		}
		algorithm := map[string]func(context.Context, *environment) error{"new": runNew,
			"old": runOld}[f.Arg(0)]
		return algorithm(context.Background(), w)
	}
	if s.serve != "" {
		return serve(s)
	}
	return compare(s)
}

func compare(s settings) error {
	if s.dir == "" {
		dir, err := os.MkdirTemp("", "storm-etl-")
		if err != nil {
			return err
		}
		defer os.RemoveAll(dir)
		s.dir = dir
	}
	if err := makeLogs(filepath.Join(s.dir, "logs.db"), s.rows); err != nil {
		return err
	}
	var all []outcome
	for _, name := range []string{"new", "old"} {
		o, err := s.twice(name)
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		all = append(all, o)
	}
	capacity := 0.0
	for _, r := range rates {
		capacity += r * s.speed * float64(s.tuple)
	}
	fmt.Printf("%d rows in tuples of %d; the bolts together can take %.0f rows/s; "+
		"killed when half was stored\n\n",
		s.rows, s.tuple, capacity)
	fmt.Printf("%-44s %10s %10s %10s %12s %12s\n", "", "seconds", "rows/s", "of limit", "p99 (ms)",
		"sent again")
	for i, title := range []string{"windows, acks, resumed from the mark",
		"hash, no acks, from the start of the day"} {
		o := all[i]
		rate := o.goodput(s.rows)
		fmt.Printf("%-44s %10.1f %10.0f %10.2f %12.0f %12d\n", title, o.seconds, rate,
			rate/capacity, o.p99, o.again)
	}
	if s.plot == "" {
		return nil
	}
	return draw(s, all)
}

// twice runs a day with a crash when half of the rows are stored, and returns the results.
func (s settings) twice(name string) (o outcome, err error) {
	dir := filepath.Join(s.dir, name)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return o, err
	}
	start := time.Now()
	if o.crash, err = s.child(name, dir, s.rows/2); err != nil {
		return o, err
	}
	o.resumed = time.Now()
	if _, err = s.child(name, dir, 0); err != nil {
		return o, err
	}
	return o, o.measure(dir, s.rows, start)
}

// child runs an algorithm as a child process. It kills the process when the number of stored rows
// reaches noon. If noon is 0, the process runs to its end.
func (s settings) child(name, dir string, noon int) (killed time.Time, err error) {
	cmd := exec.Command(os.Args[0], "-rows", fmt.Sprint(s.rows), "-tuple", fmt.Sprint(s.tuple),
		"-speed", fmt.Sprint(s.speed),
		"-dir", s.dir, name, dir)
	cmd.Stderr = os.Stderr
	if err := cmd.Start(); err != nil {
		return killed, err
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	stored := counter{path: filepath.Join(dir, "events.ndjson")}
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case err := <-ended:
			return time.Now(), err
		case <-tick.C:
			if noon > 0 && stored.count() >= noon {
				killed = time.Now()
				if err := cmd.Process.Kill(); err != nil {
					return killed, err
				}
				<-ended
				return killed, nil
			}
		}
	}
}
