package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/penstock-io/penstock/engine"
	"github.com/penstock-io/penstock/engine/internal/pipeline"
	"github.com/penstock-io/penstock/engine/status"
)

// deadReplay starts only routes with selected letters that no replay or discard has settled yet. It
// starts no other routes, because their receivers may be down.
func (p *program) deadReplay(cmd *cobra.Command, args []string, f *deadFlags) error {
	if f.stall <= 0 {
		return usagef("%s--stall is %v; it must be above zero", named(cmd), f.stall)
	}
	keepPipes()
	con, err := newConsole(cmd.ErrOrStderr(), f.logFormat, f.logLevel, true)
	if err != nil {
		return err
	}
	res, err := p.eachLetter(args[0], f, nil, func(letterResult) error { return nil })
	if err != nil {
		return err
	}
	end := replayEnd{deadResult: res}
	for _, r := range res.open {
		own, err := pipeline.ReplayConfig(res.config, r.pipeline.Name, r.route.Name, res.filter)
		if err != nil {
			return err
		}
		o := engine.Options{Once: true, Stall: f.stall, Log: con.log, FS: p.files}
		one, err := p.replay(cmd.Context(), own, o, con)
		end.add(one)
		if err != nil {
			return errors.Join(err, p.endReplay(cmd.OutOrStdout(), f, end, err))
		}
	}
	return p.endReplay(cmd.OutOrStdout(), f, end, nil)
}

// replay runs the config of a replay and returns the final status.
func (p *program) replay(ctx context.Context, c engine.Config, o engine.Options, con *console,
) (engine.Status, error) {
	e, err := p.assemble(c, o)
	if err != nil {
		return engine.Status{}, err
	}
	err = p.drive(ctx, e, driven{once: true}, con)
	return e.Status(), err
}

// replayEnd is the result of a replay of the letters of one or more routes.
type replayEnd struct {
	deadResult
	all    engine.Status // of the routes
	counts status.Replay // sums over the routes
}

// add adds the final status of a replayed route. It is empty if the replay did not start.
func (r *replayEnd) add(one engine.Status) {
	r.all.Routes = append(r.all.Routes, one.Routes...)
	if c := one.Replay; c != nil {
		r.counts.Letters += c.Letters
		r.counts.Delivered += c.Delivered
		r.counts.Dead += c.Dead
		r.counts.Dropped += c.Dropped
		r.counts.Parked += c.Parked
	}
}

func (p *program) endReplay(w io.Writer, f *deadFlags, end replayEnd, failed error) error {
	run := result(end.all, time.Since(p.started), failed)
	res, now := end.deadResult, end.counts
	before := max(res.Replayed, res.Letters-now.Letters)
	res.OK, res.Error, res.Routes = run.OK, run.Error, run.Pipelines
	res.Letters = max(res.Letters, before+now.Letters) // some may have been written meanwhile
	res.Replayed += now.Delivered + now.Dead + now.Dropped + now.Parked
	if f.json {
		return writeResult(w, res)
	}
	if failed != nil {
		return nil
	}
	_, err := fmt.Fprintf(w, "%s dead letters: %s delivered, %s refused again (new letters)%s%s, "+
		"%s had been replayed before\n%s",
		thousands(res.Letters), thousands(now.Delivered), thousands(now.Dead),
		ifAny(now.Dropped, ", %s dropped by a processor"),
		ifAny(now.Parked, ", %s parked: `penstock parked` shows their deliveries"),
		thousands(before), skippedLines(res.Skipped))
	return err
}

// ifAny returns the text for a number, or "" for 0.
func ifAny(n int64, text string) string {
	if n == 0 {
		return ""
	}
	return fmt.Sprintf(text, thousands(n))
}
