package cli

import (
	"errors"
	"fmt"
	"log/slog"
	"strings"

	"github.com/spf13/cobra"

	"github.com/penstock-io/penstock/engine"
	"github.com/penstock-io/penstock/engine/config"
)

// validResult is the last line of `validate --json`.
type validResult struct {
	OK          bool            `json:"ok"`
	Config      string          `json:"config"`
	State       string          `json:"state,omitempty"`
	Routes      int             `json:"routes,omitempty"`
	Environment []string        `json:"environment,omitempty"` // from the environment
	Notices     []problemResult `json:"notices,omitempty"`     // former names of keys that the config uses
	Problems    []problemResult `json:"problems,omitempty"`
}

// problemResult is one mistake in a config.
type problemResult struct {
	File    string `json:"file"`
	Line    int    `json:"line"`   // 0 means the whole file
	Column  int    `json:"column"` // counts characters from 1
	Message string `json:"message"`
	Hint    string `json:"hint,omitempty"`
}

func (p *program) validateCommand() *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "validate CONFIG",
		Short: "Check a config and print it with all defaults",
		Long: `Validate reads a config like ` + "`run`" + `, and prints every pipeline and route with all options:
defaults are filled in, variables replaced, paths resolved and secrets masked. Apart
from the secrets, the output is a config again.

It starts nothing, creates no file and opens no port. For an invalid config it prints
all errors with their lines and columns, and ends with exit code 2.

With --json it prints one object per route, then one with "ok".`,
		Example: `  penstock validate penstock.yaml
  penstock validate --json penstock.yaml | tail -1`,
		Args: needs("the path of a config"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return p.validate(cmd, args[0], asJSON)
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON, one object a line")
	return cmd
}

func (p *program) validate(cmd *cobra.Command, path string, asJSON bool) error {
	f, err := engine.Load(path, p.components...)
	if err == nil { // the config is valid, but its components may not fit each other
		_, err = engine.New(f, engine.Options{Log: slog.New(slog.DiscardHandler)})
	}
	out := cmd.OutOrStdout()
	switch {
	case err != nil && asJSON:
		return errors.Join(err, writeResult(out, validResult{Config: path, Problems: problems(err)}))
	case err != nil:
		return err
	case asJSON:
		plans := f.RoutePlans()
		for _, r := range plans {
			if err := writeResult(out, r); err != nil {
				return err
			}
		}
		return writeResult(out, validResult{
			OK: true, Config: path, State: f.State, Routes: len(plans),
			Environment: fromEnvironment(&f), Notices: results(f.Notices),
		})
	}
	var comments strings.Builder
	for _, line := range fromEnvironment(&f) {
		fmt.Fprintf(&comments, "# %s\n", printable(line))
	}
	for _, n := range f.Notices {
		fmt.Fprintf(&comments, "# %s: %s\n", printable(n.Place.String()), printable(n.Message))
	}
	_, err = fmt.Fprintf(out, "# %s is valid; this is how it is understood.\n%s%s", path, comments.String(), f.Plan())
	if err != nil {
		return fmt.Errorf("write the plan: %w", err)
	}
	return nil
}

// fromEnvironment returns the settings that processors and sinks take from the environment, each
// with its route.
func fromEnvironment(f *config.Config) (all []string) {
	for p, r := range f.Routes() {
		for _, line := range r.FromEnvironment() {
			all = append(all, p.Name+"/"+r.Name+": "+line)
		}
	}
	return all
}

func problems(err error) []problemResult {
	var list config.Errors
	if !errors.As(err, &list) {
		if one, ok := errors.AsType[*config.Error](err); ok {
			list = config.Errors{one}
		}
	}
	if list == nil { // this error has no position in the file
		return []problemResult{{Message: err.Error()}}
	}
	return results(list)
}

func results(list config.Errors) []problemResult {
	var out []problemResult
	for _, e := range list {
		out = append(out, problemResult{e.Place.File, e.Place.Line, e.Place.Column, e.Message, e.Hint})
	}
	return out
}
