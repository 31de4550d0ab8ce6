// Command own-binary is penstock with an additional sink, shout, which prints records in upper
// case. It has the commands of penstock, except the simulations sim and backoff.
package main

import (
	"bytes"
	"context"
	"os"

	"github.com/penstock-io/penstock/engine/cli"
	"github.com/penstock-io/penstock/engine/connector/all"
	"github.com/penstock-io/penstock/engine/connector/memory"
	"github.com/penstock-io/penstock/stream"
)

func main() {
	sink := memory.NewSink(memory.SinkOptions{Name: "shout", Deliver: shout})
	cli.Main(append(all.Components(), sink.Component())...)
}

func shout(_ context.Context, b *stream.Batch) error {
	_, err := os.Stdout.Write(bytes.ToUpper(b.AppendRaw(nil)))
	return err
}
