// Command embed runs a pipeline of the engine inside a program. The program pushes records into the
// pipeline, which delivers them to the program's own sink.
package main

import (
	"context"
	"errors"
	"fmt"
	"log"

	"github.com/penstock-io/penstock/engine"
	"github.com/penstock-io/penstock/engine/connector/memory"
	"github.com/penstock-io/penstock/stream"
)

const config = `pipelines: { orders: { source: memory, sink: printer } }`

type printer struct{}

func (printer) Open(_ context.Context, o stream.SinkOptions) error {
	o.Lanes([]stream.Lane{{Name: "printer", Worker: printer{}}})
	return nil
}

func (printer) Deliver(_ context.Context, a stream.Attempt) (r stream.Report, err error) {
	_, err = fmt.Printf("received %s", a.Value.AppendRaw(nil))
	return r, err
}

func (printer) Close() error { return nil }

func main() {
	source := memory.NewSource(memory.SourceOptions{})
	cfg, err := engine.Parse([]byte(config), source.Component(), stream.Component{
		Role: stream.SinkRole, Name: "printer",
		New: func(any, stream.Host) (any, error) { return printer{}, nil },
	})
	if err != nil {
		log.Fatal(err)
	}
	e, err := engine.New(cfg, engine.Options{})
	if err != nil {
		log.Fatal(err)
	}
	err = source.Push(context.Background(), []byte("order 1"), []byte("order 2"), []byte("order 3"))
	// after Close, Run returns when all records are delivered
	if err := errors.Join(err, source.Close(), e.Run(context.Background())); err != nil {
		log.Fatal(err)
	}
	fmt.Println("delivered", e.Status().Routes[0].Delivered, "records")
}
