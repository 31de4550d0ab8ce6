package endtoend

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"time"

	"github.com/penstock-io/penstock/stream"
)

// arrivalsOptions are the options of the source arrivals. The source sends batches of one record
// each at random times (a Poisson process). Test programs register it as an embedder does.
type arrivalsOptions struct {
	Count int64   `yaml:"count" doc:"batches in all"`
	Rate  float64 `yaml:"rate" doc:"batches per second; 0: as fast as they are asked for"`
	Seed  int64   `yaml:"seed" doc:"of the gaps"`
	Name  string  `yaml:"name" doc:"of the partition, different for each sender to one receiver"`
}

// arrivals is the source component. A record is "number planned": its number, and the time at which
// it should be sent, in nanoseconds. Latency is measured from this planned time, so that a late
// sender cannot hide its delay.
var arrivals = stream.Component{
	Role: stream.SourceRole, Name: "arrivals",
	Options: func() any { return &arrivalsOptions{Name: "arrivals"} },
	New: func(options any, _ stream.Host) (any, error) {
		return &arrivalsSource{*options.(*arrivalsOptions)}, nil
	},
}

type arrivalsSource struct{ o arrivalsOptions }

// Open implements stream.Source.
func (s *arrivalsSource) Open(_ context.Context, o stream.OpenOptions) (stream.Reader, error) {
	r := &arrivalsReader{
		o: s.o, rnd: rand.New(rand.NewPCG(uint64(s.o.Seed), 5)),
		part:    &stream.Partition{ID: s.o.Name, Name: s.o.Name},
		planned: time.Now(),
	}
	if m, ok := o.Resume(r.part.ID); ok {
		r.at = m.Watermark.Num
	}
	return r, nil
}

type arrivalsReader struct {
	o       arrivalsOptions
	rnd     *rand.Rand
	part    *stream.Partition
	at      int64
	planned time.Time
}

// Read implements stream.Reader: one record at its scheduled time.
func (r *arrivalsReader) Read(ctx context.Context, b *stream.Batch) error {
	if r.at == r.o.Count {
		return io.EOF
	}
	if r.o.Rate > 0 {
		r.planned = r.planned.Add(time.Duration(
			r.rnd.ExpFloat64() / r.o.Rate * float64(time.Second)))
	} else {
		r.planned = time.Now()
	}
	if wait := time.Until(r.planned); wait > 0 {
		timer := time.NewTimer(wait)
		defer timer.Stop()
		select {
		case <-timer.C:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	span := stream.Span{Part: r.part}
	span.From.Num = r.at
	r.at++
	span.To.Num = r.at
	b.Data = fmt.Appendf(b.Data, "%d %d\n", r.at, r.planned.UnixNano())
	span.Bytes = len(b.Data)
	b.Spans = append(b.Spans, span)
	b.Origins = 1
	return nil
}

// Commit implements stream.Reader.
func (r *arrivalsReader) Commit(context.Context, []stream.Mark) error { return nil }

// Close implements stream.Reader.
func (r *arrivalsReader) Close() error { return nil }
