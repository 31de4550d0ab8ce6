package cli

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/penstock-io/penstock/engine"
	"github.com/penstock-io/penstock/engine/internal/checkpoint"
	"github.com/penstock-io/penstock/engine/internal/deadletter"
	"github.com/penstock-io/penstock/engine/internal/osfs"
	"github.com/penstock-io/penstock/engine/internal/pipeline"
	"github.com/penstock-io/penstock/stream"
)

// deadDiscard returns the function of the command dead discard.
func deadDiscard(p *program) func(cmd *cobra.Command, args []string, f *deadFlags) error {
	return func(cmd *cobra.Command, args []string, f *deadFlags) error {
		return discardLetters(p, cmd, args[0], f)
	}
}

// discardLetters marks letters as settled in the checkpoint. It starts no route.
func discardLetters(p *program, cmd *cobra.Command, path string, f *deadFlags) error {
	if f.reason+f.since+f.until+f.route == "" && !f.all {
		return usagef("dead discard needs a filter, such as --reason, or --all for all letters")
	}
	res, err := p.eachLetter(path, f, nil, func(letterResult, *deadletter.Entry) error {
		return nil
	})
	if err != nil {
		return err
	}
	before := res.Replayed
	n, failed := discardOf(cmd.Context(), p, path, f, &res)
	res.Replayed += n
	res.Letters = max(res.Letters, res.Replayed) // some may have been written meanwhile
	if f.json {
		if failed != nil {
			res.OK, res.Error = false, stream.MaskURLs(failed.Error())
		}
		return errors.Join(failed, writeResult(cmd.OutOrStdout(), res))
	}
	if failed != nil {
		return failed
	}
	_, err = fmt.Fprintf(cmd.OutOrStdout(), "%s dead letters: %s discarded, %s had been replayed "+
		"or discarded before\n%s", thousands(res.Letters), thousands(n), thousands(before),
		skippedLines(res.Skipped))
	return err
}

// discardOf discards the unsettled letters that the filters select, and returns their number. It
// adds an object to res for each route with such letters.
func discardOf(
	ctx context.Context, p *program, path string, f *deadFlags, res *deadResult,
) (discarded int64, err error) {
	res.Routes = []routeResult{}
	if len(res.unsettled) == 0 {
		return 0, nil
	}
	c, err := engine.Load(path, p.components...)
	if err != nil {
		return 0, err
	}
	filter, _ := f.filter(nil) // eachLetter has checked the flags
	routes, _ := f.routes(&c)
	err = withNewState(c.State, "dead discard", func(store *checkpoint.Store) error {
		for _, r := range routes {
			key := r.pipeline.Name + "/" + r.route.Name
			if !res.unsettled[key] {
				continue
			}
			n, size, err := pipeline.DiscardLetters(ctx, store, pipeline.Boot(), key, osfs.New(),
				pipeline.LettersPath(r.pipeline, r.route), filter)
			discarded += n
			res.Routes = append(res.Routes, routeResult{
				Pipeline: r.pipeline.Name, Route: r.route.Name, ReadRecords: n, ReadBytes: size,
				Dropped: n,
			})
			if err != nil {
				return fmt.Errorf("%s: %w", key, err)
			}
		}
		return nil
	})
	return discarded, err
}
