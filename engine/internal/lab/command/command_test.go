package command

import (
	"bytes"
	"flag"
	"os"
	"path/filepath"
	"testing"

	"github.com/penstock-io/penstock/engine/cli"
)

var update = flag.Bool("update", false, "write the documented outputs")

// top is the project's folder, seen from this package.
const top = "../../../.."

// The exit codes of the program.
const (
	exitOK         = 0
	exitUnfinished = 1
	exitUsage      = 2
)

// outcome is the result of one command line.
type outcome struct {
	code        int
	out, stderr string
}

// try runs a command line of a program with the lab's commands.
func try(t *testing.T, args ...string) outcome {
	t.Helper()
	var out, stderr bytes.Buffer
	code := cli.Program{Commands: Commands()}.Run(t.Context(), args, bytes.NewReader(nil), &out,
		&stderr)
	return outcome{code, out.String(), stderr.String()}
}

func page(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(top, "docs", name))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}
