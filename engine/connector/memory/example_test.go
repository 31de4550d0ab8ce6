package memory_test

import (
	"context"
	"fmt"
	"log/slog"
	"os"

	"github.com/penstock-io/penstock/engine"
	"github.com/penstock-io/penstock/engine/connector/memory"
	"github.com/penstock-io/penstock/stream"
)

// A program pushes records through an engine and learns when they are delivered.
func Example() {
	state, err := os.MkdirTemp("", "example")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer os.RemoveAll(state)

	source := memory.NewSource(memory.SourceOptions{})
	sink := memory.NewSink(memory.SinkOptions{Deliver: func(_ context.Context, b *stream.Batch) error {
		fmt.Printf("%s", b.AppendRaw(nil))
		return nil
	}})
	text := fmt.Appendf(nil, "{state: %q, pipelines: {orders: {source: memory, sink: memory}}}", state)
	config, err := engine.Parse(text, source.Component(), sink.Component())
	if err != nil {
		fmt.Println(err)
		return
	}
	e, err := engine.New(config, engine.Options{Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		fmt.Println(err)
		return
	}
	ended := make(chan error, 1)
	go func() { ended <- e.Run(context.Background()) }()

	if err := source.Send(context.Background(), []byte("an order"), []byte("another one")); err != nil {
		fmt.Println(err)
	}
	fmt.Println("delivered")
	_ = source.Close() // Run returns when everything is delivered
	if err := <-ended; err != nil {
		fmt.Println(err)
	}
	// Output:
	// an order
	// another one
	// delivered
}
