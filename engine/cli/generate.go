package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/penstock-io/penstock/engine/internal/generate"
)

const (
	chunkBytes = 256 << 10             // size of one write
	paceEvery  = 20 * time.Millisecond // interval of writes at a limited rate
	maxRate    = 10_000_000            // lines per second
)

type generateFlags struct {
	format, rate, out string
	lines             int64
	seed              uint64
}

func generateCommand() *cobra.Command {
	var f generateFlags
	cmd := &cobra.Command{
		Use:   "generate [--format FORMAT] [--lines N]",
		Short: "Write log lines for tests",
		Long: `Generate writes log lines like those of a busy web shop: returning visitors, pages of
unequal popularity, missing items, timeouts, bots. The formats are combined and common,
as Apache writes them, and json: one nested object per line.

The same seed gives the same bytes on every machine. A version that changes them says
so in its changelog. Times in the lines start on 5 January 2026, regardless of the clock.

With --rate it writes that many lines per second, to test programs that follow a
growing file.`,
		Example: `  penstock generate --lines 1000000 --out access.log
  penstock generate --format json --lines 10 --seed 7
  penstock generate --lines 60000 --rate 1000/s --out spool/live.log`,
		Args: nothing,
		RunE: func(cmd *cobra.Command, _ []string) error { return f.run(cmd) },
	}
	cmd.Flags().StringVar(&f.format, "format", "combined", strings.Join(generate.Formats, ", "))
	cmd.Flags().Int64Var(&f.lines, "lines", 1000, "number of lines")
	cmd.Flags().StringVar(&f.rate, "rate", "",
		"lines per second, such as 1000/s; default: as fast as possible")
	cmd.Flags().Uint64Var(&f.seed, "seed", 1, "the same seed gives the same lines")
	cmd.Flags().StringVar(&f.out, "out", "", "file to write, replaced if it exists; default: standard output")
	return cmd
}

func (f generateFlags) run(cmd *cobra.Command) (err error) {
	g, err := generate.New(f.format, f.seed)
	if err != nil {
		return usagef("generate: --format: %v", err)
	}
	if f.lines < 0 {
		return usagef("generate: --lines is %d; it must be 0 or more", f.lines)
	}
	perSecond, err := parseRate(f.rate)
	if err != nil {
		return err
	}
	w := cmd.OutOrStdout()
	if f.out != "" {
		file, createErr := os.Create(f.out)
		if createErr != nil {
			return fmt.Errorf("generate: --out: %w", createErr)
		}
		defer func() { err = errors.Join(err, file.Close()) }()
		w = file
	}
	return writeLines(cmd.Context(), w, g, f.lines, perSecond)
}

// writeLines writes perSecond lines per second, or without a limit if it is 0. Once in each
// interval paceEvery, it writes all lines that are due. After a slow write more lines are due, so
// the mean rate is kept.
func writeLines(ctx context.Context, w io.Writer, g *generate.Generator,
	lines, perSecond int64) error {
	begun := time.Now()
	tick := time.NewTicker(paceEvery)
	defer tick.Stop()
	buf := make([]byte, 0, chunkBytes+64<<10)
	for done := int64(0); done < lines; {
		due := lines
		if perSecond > 0 {
			select {
			case <-ctx.Done():
				return context.Cause(ctx)
			case <-tick.C:
			}
			due = min(lines, int64(time.Since(begun).Seconds()*float64(perSecond)))
		}
		for done < due {
			var n int64
			buf, n = g.Lines(buf[:0], due-done, chunkBytes)
			if _, err := w.Write(buf); err != nil {
				return fmt.Errorf("write lines: %w", err)
			}
			done += n
		}
	}
	return nil
}

// parseRate parses a rate such as "1000/s" or "1000". For "" it returns 0, which means unlimited.
func parseRate(s string) (int64, error) {
	if s == "" {
		return 0, nil
	}
	n, err := strconv.ParseInt(strings.TrimSuffix(s, "/s"), 10, 64)
	if err != nil || n < 1 || n > maxRate {
		return 0, usagef("generate: --rate is %q; write lines per second, such as 1000/s, up to "+
			"%d/s", s, maxRate)
	}
	return n, nil
}
