package cli

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"strings"

	"github.com/spf13/cobra"

	"github.com/penstock-io/penstock/engine"
	"github.com/penstock-io/penstock/engine/config"
	"github.com/penstock-io/penstock/engine/internal/osfs"
	"github.com/penstock-io/penstock/engine/internal/trial"
)

// maxTryLine is the maximum length of a line of standard input, in bytes.
const maxTryLine = 16 << 20

type tryFlags struct {
	json  bool
	route string
}

func tryCommand(p *program) *cobra.Command {
	var f tryFlags
	cmd := &cobra.Command{
		Use:   "try [--route PIPELINE/ROUTE] [--json] CONFIG < LINES",
		Short: "Run the processors of a route on lines from stdin",
		Long: `Try reads lines from standard input, sends each through the processors of a route,
and prints the record after each processor that changed it, with the fields that it
added (+), removed (-) or changed (~). It reads no source, opens no sink and keeps no
state. In a terminal it prints the result of each line that you type; Ctrl-D ends it.

Exit code 1: a processor itself failed. A dead letter is not a failure.`,
		Example: `  penstock try penstock.yaml < access.log
  penstock try --json --route web/main penstock.yaml < lines.txt | jq 'select(.fate == "dead")'`,
		Args: needs("the path of a config"),
		RunE: func(cmd *cobra.Command, args []string) error { return tryLines(p, cmd, args[0], f) },
	}
	cmd.Flags().BoolVar(&f.json, "json", false, "print one line of JSON for each resulting record")
	cmd.Flags().StringVar(&f.route, "route", "", "`PIPELINE/ROUTE`; may be left out if the config has one route")
	return cmd
}

func tryLines(p *program, cmd *cobra.Command, path string, f tryFlags) error {
	c, err := engine.Load(path, p.components...)
	if err != nil {
		return err
	}
	route, err := routeNamed(&c, f.route)
	if err != nil {
		return usagef("try: --route: %v", err)
	}
	chain, err := trial.New(route, slog.New(slog.NewTextHandler(cmd.ErrOrStderr(), nil)), osfs.New())
	if err != nil {
		return err
	}
	return chain.Run(cmd.Context(), func(ctx context.Context) error {
		in := bufio.NewScanner(cmd.InOrStdin())
		in.Buffer(nil, maxTryLine)
		n := 0
		for in.Scan() {
			n++
			steps, err := chain.Process(ctx, [][]byte{[]byte(in.Text())})
			if err != nil {
				return fmt.Errorf("line %d: %w", n, err)
			}
			if err := printTrial(cmd.OutOrStdout(), f.json, n, steps); err != nil {
				return err
			}
		}
		if errors.Is(in.Err(), bufio.ErrTooLong) {
			return fmt.Errorf("line %d has more than %d bytes", n+1, maxTryLine)
		}
		return in.Err()
	})
}

// routeNamed returns the route with the name "pipeline/route". If name is "", it returns the only
// route.
func routeNamed(c *config.Config, name string) (*config.Route, error) {
	pipeline, route, _ := strings.Cut(name, "/")
	_, r, err := c.Route(pipeline, route)
	return r, err
}

// tryResult is a resulting record in `try --json`.
type tryResult struct {
	Line   int             `json:"line"`
	Fate   trial.Fate      `json:"fate"`
	Record json.RawMessage `json:"record"`
	Reason string          `json:"reason,omitempty"`
}

func printTrial(w io.Writer, asJSON bool, line int, steps []trial.Step) error {
	last := steps[len(steps)-1]
	if asJSON {
		for _, r := range last.Records {
			if err := writeResult(w, tryResult{line, r.Fate, json.RawMessage(r.JSON), r.Reason}); err != nil {
				return err
			}
		}
		return nil
	}
	var b strings.Builder
	fmt.Fprintf(&b, "line %d\n", line)
	for i, s := range steps {
		name := s.Processor
		if i == 0 {
			name = "input"
		} else if s.Changed == 0 {
			continue
		}
		for k, r := range s.Records {
			text := r.JSON
			if r.Fate != trial.Delivered {
				text = strings.TrimSuffix(string(r.Fate)+": "+r.Reason, ": ")
			}
			fmt.Fprintf(&b, "  %-10s %s\n", name, printable(text))
			if i == 0 || r.Fate != trial.Delivered || len(s.Records) != len(steps[i-1].Records) {
				continue
			}
			for _, c := range trial.Diff(steps[i-1].Records[k].JSON, r.JSON) {
				fmt.Fprintf(&b, "  %-10s   %s\n", "", printable(c.String()))
			}
		}
	}
	if _, err := io.WriteString(w, b.String()); err != nil {
		return fmt.Errorf("write the result: %w", err)
	}
	return nil
}
