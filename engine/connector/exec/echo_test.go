package exec_test

import (
	"context"
	"strings"
	"testing"

	"github.com/penstock-io/penstock/engine/connector/exec"
	"github.com/penstock-io/penstock/stream/streamtest"
)

// TestEchoingProgram delivers a batch to a program, such as tee, that writes each part of its input
// to its standard output. The batch is larger than the buffers of both pipes together. So the sink
// must read the output while it writes the batch. Otherwise both would wait for each other forever.
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
