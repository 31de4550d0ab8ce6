package connectortest

import (
	"context"
	"testing"
	"time"

	"github.com/penstock-io/penstock/stream"
	"github.com/penstock-io/penstock/stream/streamtest"
)

// SinkProcess is a sink in the role of one of several processes. It uses the first lane of the
// sink.
type SinkProcess[S stream.Sink] struct {
	T    *testing.T
	Sink S
	Host *streamtest.Host

	lane stream.Lane
	run  uint32
}

// OpenSink makes a sink and opens it as the route "main". The test closes it at its end.
func OpenSink[S stream.Sink](t *testing.T, newSink func(stream.Host) (S, error),
	o stream.SinkOptions) *SinkProcess[S] {
	t.Helper()
	p := &SinkProcess[S]{T: t, Host: NewHost(t)}
	var err error
	if p.Sink, err = newSink(p.Host); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = p.Sink.Close() })
	o.Route = "main"
	o.Lanes = func(l []stream.Lane) { p.lane = l[0] }
	if err := p.Sink.Open(t.Context(), o); err != nil {
		t.Fatal(err)
	}
	return p
}

// Deliver encodes a batch if the sink needs it, and delivers it. Each call belongs to a run of its
// own.
func (p *SinkProcess[S]) Deliver(b *stream.Batch) error {
	if e, ok := any(p.Sink).(stream.Encoder); ok {
		if err := b.Encode(e); err != nil {
			return err
		}
	}
	p.run++
	ctx, cancel := context.WithTimeout(p.T.Context(), time.Minute)
	defer cancel()
	_, err := p.lane.Worker.Deliver(ctx, stream.Attempt{Value: b, Run: p.run})
	return err
}
