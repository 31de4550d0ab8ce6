package drop_test

import (
	"testing"

	"github.com/penstock-io/penstock/engine/connector/connectortest"
	"github.com/penstock-io/penstock/engine/connector/drop"
	"github.com/penstock-io/penstock/stream"
	"github.com/penstock-io/penstock/stream/streamtest"
)

func TestSink(t *testing.T) {
	connectortest.Sink(t, connectortest.SinkCase{Start: func(*testing.T) connectortest.Receiver {
		return connectortest.Receiver{New: func(_ *testing.T, h *streamtest.Host) stream.Sink { return drop.New(h) }}
	}})
}

func TestCounts(t *testing.T) {
	h := connectortest.NewHost(t)
	made, err := drop.Component().New(drop.Component().Options(), h)
	if err != nil {
		t.Fatal(err)
	}
	b := stream.NewBatch(stream.BatchLimits{})
	b.Data = append(b.Data, "one\ntwo\nthree\n"...)
	b.Origins = 3
	b.Spans = []stream.Span{{Part: &stream.Partition{ID: "p"},
		Range: stream.Range{To: stream.Position{Num: 14}}, Bytes: 14}}
	b.Split()
	b.Drop(1)
	if _, err := made.(stream.Worker).Deliver(t.Context(), stream.Attempt{Value: b}); err != nil {
		t.Errorf("Deliver: %v", err)
	}
	if records, bytes := h.Counted("records_discarded"), h.Counted("bytes_discarded"); records != 2 || bytes != 14 {
		t.Errorf("counted %d records and %d bytes, want 2 and 14", records, bytes)
	}
}

func TestEncodes(t *testing.T) {
	made, err := drop.Component().New(&drop.Options{Encode: "ndjson"}, connectortest.NewHost(t))
	if err != nil {
		t.Fatal(err)
	}
	b := stream.NewBatch(stream.BatchLimits{})
	b.Data = append(b.Data, "one\n"...)
	b.Origins = 1
	b.Spans = []stream.Span{{Part: &stream.Partition{ID: "p"},
		Range: stream.Range{To: stream.Position{Num: 4}}, Bytes: 4}}
	if err := b.Encode(made.(stream.Encoder)); err != nil || string(b.Payload) != "{\"message\":\"one\"}\n" {
		t.Errorf("the payload is %q (%v)", b.Payload, err)
	}
	if err := (&drop.Options{Encode: "xml"}).Validate(); err == nil {
		t.Error("encode: xml was taken")
	}
}
