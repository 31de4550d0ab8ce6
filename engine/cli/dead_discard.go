package cli

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/penstock-io/penstock/engine/internal/checkpoint"
	"github.com/penstock-io/penstock/engine/internal/pipeline"
	"github.com/penstock-io/penstock/stream"
	"github.com/penstock-io/penstock/vfs"
)

// deadDiscard marks letters as settled in the checkpoint. It starts no route.
func (p *program) deadDiscard(cmd *cobra.Command, args []string, f *deadFlags) error {
	if f.reason+f.since+f.until+f.route == "" && !f.all {
		return usagef("dead discard needs a filter, such as --reason, or --all for all letters")
	}
	res, err := p.eachLetter(args[0], f, nil, func(letterResult) error { return nil })
	if err != nil {
		return err
	}
	before := res.Replayed
	n, failed := discardOf(cmd.Context(), p.files, &res)
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
	ctx context.Context, files vfs.FS, res *deadResult,
) (discarded int64, err error) {
	res.Routes = []routeResult{}
	if len(res.open) == 0 {
		return 0, nil
	}
	err = withNewState(files, res.config.State, "dead discard", func(store *checkpoint.Store) error {
		for _, r := range res.open {
			key := r.pipeline.Name + "/" + r.route.Name
			n, size, err := pipeline.DiscardLetters(ctx, store, pipeline.Boot(), key, files,
				pipeline.LettersPath(r.pipeline, r.route), res.filter)
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
