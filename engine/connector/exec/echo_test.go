package exec_test

import (
	"context"
	"strings"
	"testing"

	"github.com/penstock-io/penstock/engine/connector/exec"
	"github.com/penstock-io/penstock/stream/streamtest"
)

// TestEchoingProgram delivers a batch to a program that writes all its input to its standard output
// before it reads more, such as tee. The batch is larger than two pipes.
func TestEchoingProgram(t *testing.T) {
	o := exec.DefaultOptions()
	o.Command = []string{"tee"}
	_, lanes := opened(t, o)
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	if _, err := deliver(ctx, lanes[0], streamtest.Lines(strings.Repeat("x", 1<<20))); err != nil {
		t.Error(err)
	}
}
