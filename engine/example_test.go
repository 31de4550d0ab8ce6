package engine_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"

	"github.com/penstock-io/penstock/engine"
	"github.com/penstock-io/penstock/engine/config"
	"github.com/penstock-io/penstock/stream"
)

// countdown is a source of numbers that can be read again from any of them.
type countdown struct{}

func (countdown) Open(_ context.Context, o stream.OpenOptions) (stream.Reader, error) {
	r := &countdownReader{part: stream.Partition{ID: "countdown", Name: "countdown"}}
	if mark, ok := o.Resume(r.part.ID); ok {
		r.next = mark.Watermark.Num
	}
	return r, nil
}

type countdownReader struct {
	part stream.Partition
	next int64
}

func (r *countdownReader) Read(_ context.Context, b *stream.Batch) error {
	const from = 3
	if r.next == from {
		return io.EOF
	}
	text := fmt.Sprintf("%d\n", from-r.next)
	span := stream.Span{Part: &r.part, Bytes: len(text)}
	span.From.Num, span.To.Num = r.next, r.next+1
	r.next++
	b.Records = append(b.Records, stream.Record{Len: uint32(len(text) - 1), Origin: span.To})
	b.Data = append(b.Data, text...)
	b.Spans = append(b.Spans, span)
	b.Origins++
	return nil
}

func (*countdownReader) Commit(context.Context, []stream.Mark) error { return nil }
func (*countdownReader) Close() error                                { return nil }

// console is a sink that prints records.
type console struct{}

func (console) Open(_ context.Context, o stream.SinkOptions) error {
	o.Lanes([]stream.Lane{{Name: "console", Worker: console{},
		Limits: stream.Limits{Ordered: true, InFlight: 1}}})
	return nil
}

func (console) Deliver(_ context.Context, a stream.Attempt) (stream.Report, error) {
	_, err := os.Stdout.Write(a.Value.AppendRaw(nil))
	return stream.Report{}, err
}

func (console) Close() error { return nil }

// components are what a config of the examples may name.
var components = []stream.Component{
	{Role: stream.SourceRole, Name: "countdown", New: func(any, stream.Host) (any, error) {
		return countdown{}, nil
	}},
	{Role: stream.SinkRole, Name: "console", New: func(any, stream.Host) (any, error) {
		return console{}, nil
	}},
}

// A program runs a pipeline of its own components until the data ends.
func Example() {
	state, err := os.MkdirTemp("", "example")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer os.RemoveAll(state)
	text := fmt.Appendf(nil, "state: %s\npipelines: {launch: {source: countdown, sink: console}}\n",
		state)
	cfg, err := engine.Parse(text, components...)
	if err != nil {
		fmt.Println(err)
		return
	}
	e, err := engine.New(cfg, engine.Options{Once: true, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		fmt.Println(err)
		return
	}
	if err := e.Run(context.Background()); err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println("delivered", e.Status().Routes[0].Delivered)
	// Output:
	// 3
	// 2
	// 1
	// delivered 3
}

// A wrong config is refused with the place and a hint.
func ExampleParse() {
	_, err := engine.Parse([]byte("pipelines:\n  launch: {source: countdwn, sink: console}\n"),
		components...)
	fmt.Println(err)
	if wrong, ok := errors.AsType[*config.Error](err); ok {
		fmt.Println("line", wrong.Place.Line)
	}
	// Output:
	// config:2:20: pipeline "launch": this build has no source "countdwn"
	//     1 | pipelines:
	//     2 |   launch: {source: countdwn, sink: console}
	//       |                    ^
	//   hint: did you mean "countdown"?
	// line 2
}

// A config can be built without YAML.
func ExampleNew() {
	state, err := os.MkdirTemp("", "example")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer os.RemoveAll(state)
	route := config.DefaultRoute("main", state)
	route.Sink = config.Use{Component: components[1]}
	e, err := engine.New(engine.Config{State: state, Pipelines: []config.Pipeline{
		{Name: "launch", Source: config.Use{Component: components[0]},
			Routes: []config.Route{route}},
	}}, engine.Options{Once: true, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(e.Run(context.Background()))
	// Output:
	// 3
	// 2
	// 1
	// <nil>
}
