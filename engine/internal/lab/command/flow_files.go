package command

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"strings"

	"github.com/penstock-io/penstock/engine/internal/lab/flowsim"
	"github.com/penstock-io/penstock/engine/internal/lab/scenario"
	"github.com/penstock-io/penstock/engine/internal/pipeline"
	"github.com/penstock-io/penstock/engine/internal/trace"
	"github.com/penstock-io/penstock/flow/control"
)

// files writes the plots and the trace of the run with the first seed, if the flags request them.
func (f *flowFlags) files(plans []flowsim.Plan) error {
	if f.trace != "" && (len(plans) != 1 || len(plans[0].Specs) != 1 || f.seeds != 1) {
		return usagef("sim flow: --trace records one run: give one scenario, one --algorithm " +
			"and --seeds 1")
	}
	if f.plot != "" {
		if err := os.MkdirAll(f.plot, 0o755); err != nil {
			return fmt.Errorf("sim flow: --plot: %w", err)
		}
	}
	for _, p := range plans {
		for _, spec := range p.Specs {
			if err := f.writeFirst(p.Scenario, spec); err != nil {
				return fmt.Errorf("sim flow: %s: %s: %w", p.Scenario.Name, spec.Name, err)
			}
		}
	}
	return nil
}

// writeFirst runs s with the first seed, and writes the plot and the trace of this run.
func (f *flowFlags) writeFirst(s *scenario.Scenario, spec *flowsim.Spec) (err error) {
	o := flowsim.Options{Seed: f.seed}
	if f.plot != "" {
		o.Series = &flowsim.Series{}
	}
	if f.trace != "" {
		file, createErr := os.Create(f.trace)
		if createErr != nil {
			return createErr
		}
		defer func() { err = errors.Join(err, file.Close()) }()
		w, traceErr := trace.NewWriter(file, spec.Config(s, f.seed),
			trace.About{Program: pipeline.Version(), Arch: runtime.GOARCH})
		if traceErr != nil {
			return traceErr
		}
		o.Trace = func(e *control.Event, do []control.Command) { w.Event(e, do) }
		defer func() { err = errors.Join(err, w.Close()) }()
	}
	figures, err := flowsim.Run(s, spec, o)
	if err != nil || f.plot == "" {
		return err
	}
	file, err := os.Create(filepath.Join(f.plot, plotName(s.Name, spec.Title())))
	if err != nil {
		return err
	}
	page := flowsim.Timeline(s, spec, f.seed, o.Series, &figures)
	return errors.Join(page.WriteSVG(file), file.Close())
}

// plotName returns a file name for a scenario and an algorithm. The result cannot refer to another
// directory.
func plotName(scenario, algorithm string) string {
	safe := strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || r == '-' ||
			r == '_' {
			return r
		}
		return '-'
	}, scenario+"-"+algorithm)
	return safe + ".svg"
}

// runReplay replays a trace. It returns an error if flow control makes other decisions.
func (f *flowFlags) runReplay(out io.Writer) error {
	file, err := os.Open(f.replay)
	if err != nil {
		return fmt.Errorf("sim flow: --replay: %w", err)
	}
	defer file.Close()
	done, err := trace.Replay(file)
	if err != nil {
		return fmt.Errorf("sim flow: replay %s: %w%s", f.replay, err,
			trace.OtherProgram(err, pipeline.Version(), runtime.GOARCH))
	}
	torn := ""
	if done.Torn {
		torn = "; its incomplete last line was ignored"
	}
	_, err = fmt.Fprintf(out, "%s: replayed %d events and %d commands, all identical%s\n",
		f.replay, done.Events,
		done.Commands, torn)
	return err
}
