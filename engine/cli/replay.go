package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/penstock-io/penstock/engine"
	"github.com/penstock-io/penstock/engine/internal/deadletter"
	"github.com/penstock-io/penstock/engine/internal/pipeline"
)

func (p *program) deadReplay(cmd *cobra.Command, args []string, f *deadFlags) error {
	if f.stall <= 0 {
		return usagef("dead replay: --stall is %v; it must be above zero", f.stall)
	}
	keepPipes()
	con, err := newConsole(cmd.ErrOrStderr(), f.logFormat, f.logLevel, true)
	if err != nil {
		return err
	}
	res, err := p.eachLetter(args[0], f, nil, func(letterResult, *deadletter.Entry) error { return nil })
	if err != nil {
		return err
	}
	c, err := engine.Load(args[0], p.components...)
	if err != nil {
		return err
	}
	filter, _ := f.filter(nil) // the filter was already checked
	routes, _ := f.routes(&c)
	var all engine.Status
	for _, r := range routes {
		one, err := p.replay(cmd.Context(), c, r, filter, engine.Options{Once: true, Stall: f.stall, Log: con.log}, con)
		all.Routes = append(all.Routes, one.Routes...)
		if err != nil {
			return errors.Join(err, p.replayEnd(cmd.OutOrStdout(), f, res, all, err))
		}
	}
	return p.replayEnd(cmd.OutOrStdout(), f, res, all, nil)
}

// replay delivers the dead letters of one route and returns the final status.
func (p *program) replay(ctx context.Context, c engine.Config, r deadRoute, filter deadletter.Filter, o engine.Options,
	con *console,
) (engine.Status, error) {
	own, err := pipeline.ReplayConfig(c, r.pipeline.Name, r.route.Name, filter)
	if err != nil {
		return engine.Status{}, err
	}
	e, err := p.assemble(own, o)
	if err != nil {
		return engine.Status{}, err
	}
	err = p.drive(ctx, e, driven{once: true}, con)
	return e.Status(), err
}

func (p *program) replayEnd(w io.Writer, f *deadFlags, res deadResult, end engine.Status, failed error) error {
	run := result(end, time.Since(p.started), failed)
	res.OK, res.Error, res.Routes = run.OK, run.Error, run.Pipelines
	var delivered, dead int64
	for _, r := range run.Pipelines {
		delivered += r.Delivered
		dead += r.Dead
		res.Replayed += r.Delivered + r.Dead + r.Dropped
	}
	if f.json {
		return writeResult(w, res)
	}
	if failed != nil {
		return nil
	}
	_, err := fmt.Fprintf(w, "%s dead letters: %s delivered, %s refused again (new letters), %s "+
		"had been replayed before\n%s",
		thousands(res.Letters), thousands(delivered), thousands(dead),
		thousands(res.Letters-sum(run.Pipelines)), skippedLines(res.Skipped))
	return err
}

func sum(routes []routeResult) (n int64) {
	for _, r := range routes {
		n += r.ReadRecords
	}
	return n
}
