package cli

import (
	"bytes"
	"errors"
	"strings"
	"testing"

	"github.com/spf13/cobra"
)

// fullDisk is a stdout that cannot be written to.
type fullDisk struct{}

func (fullDisk) Write([]byte) (int, error) { return 0, errors.New("no space left on device") }

// TestOutputNotWritten checks that a command fails if its output could not be written, even if it
// ignores the error itself. Cobra, for example, ignores errors when it prints help.
func TestOutputNotWritten(t *testing.T) {
	for _, args := range []string{
		"", "--help", "help run", "help completion", "dead", "validate --help", "__complete r", "--version", "schema",
		"own",
	} {
		p := newProgram(newFake(), nil)
		p.commands = []*cobra.Command{{Use: "own", Run: func(cmd *cobra.Command, _ []string) {
			_, _ = cmd.OutOrStdout().Write([]byte("result\n"))
		}}}
		var stderr bytes.Buffer
		code := p.execute(t.Context(), strings.Fields(args), strings.NewReader(""), fullDisk{},
			&stderr)
		if code != exitUnfinished || !strings.Contains(stderr.String(), "no space left") {
			t.Errorf("penstock %s: exit code %d, want 1 with the reason:\n%s", args, code,
				stderr.String())
		}
	}
}
