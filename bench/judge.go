package main

import (
	"errors"
	"flag"
	"fmt"
	"os"

	"github.com/penstock-io/penstock/bench/result"
)

// judgeLines is the subcommand `judge [-ratios FILE] [-machine NAME] LINES...`. It compares results
// with the ratios that were kept from an earlier run. A ratio is the speed of penstock, divided by
// the speed of the limit of the workload. LINES are files with the output of -json.
func judgeLines(args []string) error {
	flags := flag.NewFlagSet("judge", flag.ContinueOnError)
	o := options{gate: true}
	o.keptFlags(flags)
	if err := flags.Parse(args); err != nil {
		return err
	}
	if flags.NArg() == 0 {
		return errors.New("judge: name files of lines, such as make -s bench JSON=1 prints")
	}
	entries, err := result.Read(flags.Args()...)
	if err != nil {
		return err
	}
	var lines []result.Line
	for _, entry := range entries {
		lines = append(lines, entry.Line)
	}
	kept, err := o.ratios()
	if err != nil {
		return err
	}
	fmt.Fprintf(os.Stderr, "bench: judged as measured on %s; "+
		"-machine (MACHINE=... for make) names another\n", o.machine)
	return (&env{options: o}).judge(lines, kept)
}
