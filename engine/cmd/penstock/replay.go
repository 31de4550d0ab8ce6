package main

import (
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/penstock-io/penstock/engine/internal/config"
	"github.com/penstock-io/penstock/engine/internal/deadletter"
	"github.com/penstock-io/penstock/engine/pipeline"
)

func (p *program) deadReplay(cmd *cobra.Command, args []string, f *deadFlags) error {
	if f.stall <= 0 {
		return usagef("dead replay: --stall is %v; it must be above zero", f.stall)
	}
	stderr := cmd.ErrOrStderr()
	if view := terminal(stderr); view != nil {
		stderr = view
	}
	log, err := logger(stderr, f.logFormat, f.logLevel)
	if err != nil {
		return err
	}
	res, err := p.eachLetter(args[0], f, nil, func(letterResult, *deadletter.Entry) error { return nil })
	if err != nil {
		return err
	}
	c, err := config.Load(args[0], config.LoadOptions{Components: p.components})
	if err != nil {
		return err
	}
	filter, _ := f.filter(nil) // it was right above
	routes, _ := f.routes(c)
	var snap pipeline.Snapshot
	for _, r := range routes {
		e, err := pipeline.NewReplay(c, r.pipeline.Name, r.route.Name, filter, pipeline.Options{
			Components: p.components, Stall: f.stall, Log: log,
		})
		if err == nil {
			err = p.drive(cmd.Context(), e, true, stderr)
			one := e.Snapshot()
			snap.Routes = append(snap.Routes, one.Routes...)
			snap.Elapsed += one.Elapsed
		}
		if err != nil {
			return errors.Join(err, p.replayEnd(cmd.OutOrStdout(), f, res, snap, err))
		}
	}
	return p.replayEnd(cmd.OutOrStdout(), f, res, snap, nil)
}

func (p *program) replayEnd(w io.Writer, f *deadFlags, res deadResult, snap pipeline.Snapshot, failed error) error {
	run := result(snap, time.Since(p.started), failed)
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
	_, err := fmt.Fprintf(w, "%s dead letters: %s delivered, %s refused again (new letters), %s had been replayed before\n",
		thousands(res.Letters), thousands(delivered), thousands(dead), thousands(res.Letters-sum(run.Pipelines)))
	return err
}

func sum(routes []routeResult) (n int64) {
	for _, r := range routes {
		n += r.ReadRecords
	}
	return n
}
