package cli

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/penstock-io/penstock/engine/internal/admin"
	"github.com/penstock-io/penstock/engine/internal/tap"
	"github.com/penstock-io/penstock/supervise"
)

type tapFlags struct {
	rate, count int
	duration    time.Duration
	timeout     time.Duration
}

func tapCommand(p *program) *cobra.Command {
	var f tapFlags
	cmd := &cobra.Command{
		Use:   "tap [--rate N] [--count N] [--for TIME] CONFIG|ADDRESS [PIPELINE/ROUTE[:STAGE]]",
		Short: "Print samples of live records at each stage of a route",
		Long: `Tap prints samples of the records that pass through a route of a running process,
one JSON object a line: at the source, after each processor, and at the sink with
the outcome. A record has the same id at all stages.

STAGE is source, sink, the name or the number of a processor, or both as in 1:where;
without it all stages are shown. The route may be left out if there is one.

The samples are at most --rate per second at each stage. The process never waits for
a slow reader: it leaves samples out and counts them in "skipped". Records are shown
only if admin.token is set. It ends with --count or --for, at Ctrl-C, or with the
process.`,
		Example: `  penstock tap penstock.yaml
  penstock tap penstock.yaml shop/main:sink | jq 'select(.outcome != "delivered")'
  PENSTOCK_ADMIN_TOKEN=... penstock tap --for 10s 127.0.0.1:7070 shop/main:where`,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) < 1 || len(args) > 2 {
				return usagef("tap needs a config or an address, and may have a route: %s", cmd.UseLine())
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error { return runTap(p, cmd, args, f) },
	}
	cmd.Flags().IntVar(&f.rate, "rate", 10, "samples per second at each stage, at most 1000")
	cmd.Flags().IntVar(&f.count, "count", 0, "end after this many samples; 0: no limit")
	cmd.Flags().DurationVar(&f.duration, "for", 0, "end after this time; 0: no limit")
	cmd.Flags().DurationVar(&f.timeout, "timeout", 5*time.Second,
		"time limit for the process's first response")
	return cmd
}

// errEnough ends a tap when --count samples have arrived or the time --for is over.
var errEnough = errors.New("enough samples")

func runTap(p *program, cmd *cobra.Command, args []string, f tapFlags) error {
	if err := checkTimeout(cmd, f.timeout); err != nil {
		return err
	}
	switch {
	case f.rate < 1 || f.rate > tap.MaxRate:
		return usagef("tap: --rate is %d; want 1 to %d", f.rate, tap.MaxRate)
	case f.count < 0:
		return usagef("tap: --count is %d; it must not be negative", f.count)
	case f.duration < 0:
		return usagef("tap: --for is %v; it must not be negative", f.duration)
	}
	address, token, err := p.adminOf(args[0])
	if err != nil {
		return err
	}
	if token == "" {
		return fmt.Errorf("records are shown only with a token: set admin.token in the config, or %s", tokenVariable)
	}
	route, stage := "", ""
	if len(args) > 1 {
		route, stage, _ = strings.Cut(args[1], ":")
	}
	if route, err = tapRoute(cmd.Context(), address, token, route, f.timeout); err != nil {
		return err
	}
	ctx, stop := interruptible(cmd.Context(), p)
	defer stop()
	if f.duration > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(ctx, f.duration, errEnough)
		defer cancel()
	}
	printed := 0
	err = admin.Tap(ctx, address, token, route, stage, f.rate, func(sample []byte) error {
		if _, err := fmt.Fprintf(cmd.OutOrStdout(), "%s\n", sample); err != nil {
			return fmt.Errorf("write the samples: %w", err)
		}
		if printed++; printed == f.count {
			return errEnough
		}
		return nil
	})
	if errors.Is(err, errEnough) || ctx.Err() != nil {
		return nil
	}
	return err
}

// tapRoute returns the full name PIPELINE/ROUTE of a route of the process at address. An empty name
// stands for the only route of the process. A name without a slash stands for the only route of the
// pipeline with that name.
func tapRoute(ctx context.Context, address, token, name string, timeout time.Duration) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	s, err := admin.Ask(ctx, address, token)
	if err != nil {
		return "", err
	}
	var all, found []string
	for _, r := range s.Routes {
		full := r.Pipeline + "/" + r.Name
		all = append(all, full)
		if name == "" || name == full || name == r.Pipeline {
			found = append(found, full)
		}
	}
	switch {
	case len(found) == 1:
		return found[0], nil
	case name == "":
		return "", usagef("tap: select one of the routes: %s", strings.Join(all, ", "))
	case len(found) == 0:
		return "", usagef("tap: there is no route %q; the routes are "+
			"%s", name, strings.Join(all, ", "))
	}
	return "", usagef("tap: %s has several routes: %s", name, strings.Join(found, ", "))
}

// interruptible returns a context that is canceled by the first signal.
func interruptible(ctx context.Context, p *program) (context.Context, func()) {
	signals, stop := p.notify()
	ctx, cancel := context.WithCancelCause(ctx)
	group := supervise.NewGroup(ctx)
	group.Go("signals", func(ctx context.Context) error {
		select {
		case <-signals:
			cancel(context.Canceled)
		case <-ctx.Done():
		}
		return nil
	})
	return ctx, func() {
		stop()
		cancel(nil)
		group.Stop(nil)
		_ = group.Wait() // it returns no error
	}
}
