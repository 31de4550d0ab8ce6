package audit

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"

	"github.com/penstock-io/penstock/engine/config"
	"github.com/penstock-io/penstock/engine/internal/pipeline"
	"github.com/penstock-io/penstock/engine/internal/trial"
	"github.com/penstock-io/penstock/flow/ledger"
	"github.com/penstock-io/penstock/stream"
)

// everything is a position after all positions of a file.
var everything = stream.Position{Num: math.MaxInt64}

// readSource reads the source from its beginning to its present end.
func (r *run) readSource(
	ctx context.Context, h *host, chain *trial.Chain, sink stream.Audit,
) (err error) {
	component := r.o.Pipeline.Source.Component
	use := config.Use{Component: component, Options: r.reread.Options}
	source, err := pipeline.Construct[stream.Source](use, h)
	if err != nil {
		return err
	}
	ctx, stop := h.start(ctx)
	defer func() { err = errors.Join(err, stop()) }()
	reader, err := source.Open(ctx, stream.OpenOptions{
		Route: h.route, Once: true,
		Resume: func(string) (stream.Mark, bool) { return stream.Mark{}, false },
		Known:  maps.Values(r.local), // so that the source recognizes its files
	})
	if err != nil {
		return fmt.Errorf("source %s: %w", component.Name, err)
	}
	defer func() { err = errors.Join(err, reader.Close()) }()
	own := r.o.Route.Batch
	limits := stream.BatchLimits{Bytes: int(own.Bytes), Records: own.Records}
	for {
		b := stream.NewBatch(limits)
		end := reader.Read(ctx, b)
		if end != nil && !errors.Is(end, io.EOF) {
			return fmt.Errorf("source %s: %w", component.Name, end)
		}
		if len(b.Spans) > 0 {
			if err := r.take(ctx, b, chain, sink); err != nil {
				return err
			}
		}
		if end != nil {
			return nil
		}
	}
}

// take counts the records of a batch, and passes the settled ones through the processors. Then it
// tells the sink's audit to expect the resulting records, without the dead letters.
func (r *run) take(
	ctx context.Context, b *stream.Batch, chain *trial.Chain, sink stream.Audit,
) error {
	b.Split()
	parts := make([]*part, len(b.Spans))
	for i := range b.Spans {
		s := &b.Spans[i]
		p := r.part(s.Part)
		parts[i] = p
		if s.From != s.To {
			p.open = ledger.Join(append(p.open, without(s.Range, p.settled)...))
		}
	}
	for i := range b.Records {
		r.report.Records++
		p := parts[b.Records[i].Span]
		if !contains(p.settled, b.Records[i].Origin) {
			r.report.Unsettled++
			p.records++
			b.Drop(i)
		}
	}
	open := len(b.Records) - b.Kept()
	if err := chain.Apply(ctx, b); err != nil {
		return err
	}
	var id []byte
	dead := 0
	for i := range b.Records {
		switch b.Records[i].State {
		case stream.Dead:
			dead++
		case stream.Kept:
			if id = b.AppendRecordID(id[:0], i); r.letters[string(id)] {
				b.Drop(i)
				dead++
			}
		}
	}
	err := sink.Expect(ctx, b)
	kept := b.Kept()
	r.report.Expected += int64(kept)
	r.report.Dead += int64(dead)
	r.report.Dropped += int64(len(b.Records) - open - dead - kept)
	if err != nil {
		return fmt.Errorf("sink %s: %w", r.o.Route.Sink.Component.Name, err)
	}
	return nil
}
