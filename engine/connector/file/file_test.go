package file_test

import (
	"bytes"
	"testing"

	"github.com/penstock-io/penstock"
	"github.com/penstock-io/penstock/engine/connector/connectortest"
	"github.com/penstock-io/penstock/engine/connector/file"
)

// lines returns a batch of n records of width bytes, line ends included.
func lines(n, width int) *penstock.Batch {
	b := penstock.NewBatch(penstock.Limits{Bytes: n * width, Records: n})
	for i := range n {
		b.Data = append(append(b.Data, bytes.Repeat([]byte{'a' + byte(i%26)}, width-1)...), '\n')
	}
	b.Origins = n
	b.Spans = []penstock.Span{{
		Part:  &penstock.Partition{ID: "p", Name: "p"},
		Range: penstock.Range{To: penstock.Position{Num: int64(len(b.Data))}},
		Bytes: len(b.Data),
	}}
	return b
}

// open opens a sink and returns it with its lane.
func open(t testing.TB, h *connectortest.Host, o file.Options, place string) (*file.Sink, penstock.Lane) {
	t.Helper()
	s, lane, err := tryOpen(t, h, o, place)
	if err != nil {
		t.Fatal(err)
	}
	return s, lane
}

func tryOpen(t testing.TB, h *connectortest.Host, o file.Options, place string) (*file.Sink, penstock.Lane, error) {
	t.Helper()
	s, err := file.New(o, h)
	if err != nil {
		t.Fatal(err)
	}
	var lane penstock.Lane
	err = s.Open(t.Context(), penstock.SinkOptions{
		Pipeline: "test", Route: "main", Place: place,
		Lanes: func(all []penstock.Lane) { lane = all[0] },
	})
	if err == nil {
		t.Cleanup(func() { _ = s.Close() })
	}
	return s, lane, err
}
