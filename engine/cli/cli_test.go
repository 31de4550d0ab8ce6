package cli

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/spf13/cobra"
)

// TestProgramCommands checks an additional command. It must run and be listed like the built-in
// commands, and its errors must determine the exit code.
func TestProgramCommands(t *testing.T) {
	greet := func() []*cobra.Command {
		return []*cobra.Command{{
			Use: "greet", Short: "Say hello",
			RunE: func(cmd *cobra.Command, args []string) error {
				if len(args) == 0 {
					return fmt.Errorf("greet: %w", &UsageError{"needs a name"})
				}
				if args[0] == "nobody" {
					return errors.New("nobody is there")
				}
				_, err := fmt.Fprintln(cmd.OutOrStdout(), "hello", args[0])
				return err
			},
		}}
	}
	for _, tc := range []struct {
		args        string
		code        int
		out, stderr string
	}{
		{args: "greet you", out: "hello you\n"},
		{args: "greet", code: exitUsage, stderr: "penstock: greet: needs a name\n"},
		{args: "greet nobody", code: exitUnfinished, stderr: "penstock: nobody is there\n"},
		{args: "gret", code: exitUsage, stderr: "penstock: there is no command \"gret\"; did you mean \"greet\"?\n"},
		{args: "--help", out: "Say hello"},
		{args: "schema", out: "$schema"},
	} {
		var out, stderr bytes.Buffer
		p := Program{Commands: greet()}
		code := p.Run(t.Context(), strings.Fields(tc.args), bytes.NewReader(nil), &out, &stderr)
		if code != tc.code || !strings.Contains(out.String(), tc.out) || stderr.String() != tc.stderr {
			t.Errorf("penstock %s: exit code %d\nstdout: %s\nstderr: %s\nwant code %d, stdout with %q, stderr %q",
				tc.args, code, out.String(), stderr.String(), tc.code, tc.out, tc.stderr)
		}
	}
}
