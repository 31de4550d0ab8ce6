package stream_test

import (
	"context"
	"fmt"

	"github.com/penstock-io/penstock/stream"
)

// errorsOnly is a processor that drops every record that does not begin with a word.
type errorsOnly struct{ word string }

func (p errorsOnly) Process(_ context.Context, b *stream.Batch) error {
	b.Split()
	for i := range b.Records {
		if text := string(b.Text(i)); len(text) < len(p.word) || text[:len(p.word)] != p.word {
			b.Drop(i)
		}
	}
	return nil
}

// options are the options of the processor: `begins_with: { word: WARN }`.
type options struct {
	Word string `yaml:"word" doc:"first word of the records to keep"`
}

// beginsWith is the component for a program's list of components.
var beginsWith = stream.Component{
	Role: stream.ProcessorRole, Name: "begins_with",
	Options: func() any { return &options{Word: "ERROR"} },
	New:     func(o any, _ stream.Host) (any, error) { return errorsOnly{o.(*options).Word}, nil },
}

// A component is a type with a few methods, its options, and a name. Usually the engine calls it;
// this example does so directly.
func Example() {
	made, err := beginsWith.New(beginsWith.Options(), nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	b := stream.NewBatch(stream.DefaultBatchLimits)
	b.Data = []byte("INFO started\nERROR no such file\nINFO stopped\n")
	part := &stream.Partition{ID: "log", Name: "app.log"}
	span := stream.Span{Part: part, Bytes: len(b.Data)}
	span.To.Num = int64(len(b.Data))
	b.Spans = append(b.Spans, span)
	b.Origins = 3
	if err := made.(stream.Processor).Process(context.Background(), b); err != nil {
		fmt.Println(err)
		return
	}
	fmt.Printf("%s", b.AppendRaw(nil))
	// Output: ERROR no such file
}
