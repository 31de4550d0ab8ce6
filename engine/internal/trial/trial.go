// Package trial runs the processors of a route on given records, without an engine. The commands
// `penstock try`, `penstock test` and `penstock audit` use it.
//
// A [Chain] has the processors of one route. As in an engine, each processor gets the batch from
// the one before it, and may change, drop, add or dead-letter records. There is no source, sink,
// checkpoint or dead-letter file.
package trial

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/penstock-io/penstock/engine/config"
	"github.com/penstock-io/penstock/engine/internal/faultlog"
	"github.com/penstock-io/penstock/engine/kit/ndjson"
	"github.com/penstock-io/penstock/stream"
	"github.com/penstock-io/penstock/supervise"
	"github.com/penstock-io/penstock/vfs"
)

// Fate is the outcome of a record.
type Fate string

// Values of Fate.
const (
	Delivered Fate = "delivered" // it would be delivered to the sink
	Dropped   Fate = "dropped"   // a processor dropped it
	Dead      Fate = "dead"      // it would be dead-lettered
)

// Record is a record in the state after a processor.
type Record struct {
	Line   int    `json:"line"` // number of the line that it comes from; the first is 1
	Fate   Fate   `json:"fate"`
	JSON   string `json:"-"` // fields as a JSON object
	Reason string `json:"reason,omitempty"`
}

// Step is the result of one processor. The first step of a chain is the input.
type Step struct {
	Processor string // name of its component
	Records   []Record
	Changed   int // number of records that it changed, dropped, added or dead-lettered
}

// Chain has the processors of one route. Its methods must not be called concurrently.
type Chain struct {
	processors []stream.Processor
	names      []string
	host       *host
}

// New creates the processors of a route. It starts nothing.
func New(r *config.Route, log *slog.Logger, fs vfs.FS) (*Chain, error) {
	c := &Chain{host: &host{log: log, fs: fs}}
	for i, u := range r.Processors {
		made, err := u.Component.New(u.Options, c.host)
		if err != nil {
			return nil, fmt.Errorf("processor %d, %s: %w", i+1, u.Component.Name, err)
		}
		p, ok := made.(stream.Processor)
		if !ok {
			return nil, fmt.Errorf("processor %d, %s: constructor returned %T, want a processor",
				i+1, u.Component.Name, made)
		}
		c.processors, c.names = append(c.processors, p), append(c.names, u.Component.Name)
	}
	return c, nil
}

// Run calls body. The other methods of c may be called only by body, during this call. When Run
// returns, the goroutines and child processes of the processors have ended. Run returns their
// first failure, the error of body, and the faults that processors have reported.
func (c *Chain) Run(ctx context.Context, body func(context.Context) error) error {
	group := supervise.NewGroup(ctx)
	c.host.group = group
	err := body(group.Context())
	group.Stop(nil)
	return errors.Join(c.host.faults.Take(), err, group.Wait())
}

// Process passes lines through the processors as one batch. A line is given without the line end
// after it. The first step is the input. The last step has the final outcome of each record.
func (c *Chain) Process(ctx context.Context, lines [][]byte) (steps []Step, err error) {
	b := batch(lines)
	last := snapshot(b, lines)
	steps = append(steps, Step{Records: last})
	for i, p := range c.processors {
		if err := p.Process(ctx, b); err != nil {
			return steps, fmt.Errorf("processor %d, %s: %w", i+1, c.names[i], err)
		}
		now := snapshot(b, lines)
		steps = append(steps,
			Step{Processor: c.names[i], Records: now, Changed: changes(last, now)})
		last = now
	}
	return steps, nil
}

// Apply passes b through the processors. b must be split into records (see [stream.Batch.Split]).
func (c *Chain) Apply(ctx context.Context, b *stream.Batch) error {
	for i, p := range c.processors {
		if err := p.Process(ctx, b); err != nil {
			return fmt.Errorf("processor %d, %s: %w", i+1, c.names[i], err)
		}
	}
	return nil
}

// batch returns a batch with one record for each line. The text of a record has no line end after
// it, but may contain line ends, as with the framing multiline.
func batch(lines [][]byte) *stream.Batch {
	size := 0
	for _, l := range lines {
		size += len(l) + 1
	}
	b := stream.NewBatch(stream.BatchLimits{Bytes: max(1, size), Records: max(1, len(lines))})
	for _, l := range lines {
		text := bytes.TrimSuffix(bytes.TrimSuffix(l, []byte("\n")), []byte("\r"))
		r := stream.Record{Off: uint32(len(b.Data)), Len: uint32(len(text))}
		b.Data = append(append(b.Data, l...), '\n')
		r.Origin.Num = int64(len(b.Data))
		b.Records = append(b.Records, r)
	}
	b.Origins, b.Time = len(lines), time.Now()
	b.Spans = append(b.Spans, stream.Span{
		Part: &stream.Partition{ID: "input", Name: "input"}, Bytes: len(b.Data), Last: true,
		Range: stream.Range{To: stream.Position{Num: int64(len(b.Data))}},
	})
	return b
}

// snapshot returns the present records of b.
func snapshot(b *stream.Batch, lines [][]byte) []Record {
	number := map[int64]int{} // key: position after the line
	end := int64(0)
	for i, l := range lines {
		end += int64(len(l)) + 1
		number[end] = i + 1
	}
	records := make([]Record, len(b.Records))
	for i := range b.Records {
		r := Record{Line: number[b.Records[i].Origin.Num], Fate: Delivered,
			JSON: string(ndjson.AppendRecord(nil, b, i))}
		switch b.Records[i].State {
		case stream.Dropped:
			r.Fate = Dropped
		case stream.Dead:
			r.Fate = Dead
			if reason := b.Reason(i); reason != nil {
				r.Reason = stream.MaskURLs(reason.Error())
			}
		}
		records[i] = r
	}
	return records
}

// changes returns the number of records that a processor changed, added or removed. The parameter
// before has the input of the processor, and now has its output. A changed record counts once.
// Example: from a, b, c to a, x there are 2 changes, because b became x, and c was removed.
func changes(before, now []Record) int {
	rest := make(map[Record]int, len(before))
	for _, r := range before {
		rest[r]++
	}
	same := 0
	for _, r := range now {
		if rest[r] > 0 {
			rest[r]--
			same++
		}
	}
	return max(len(before), len(now)) - same
}

// host is the stream.Host of the processors. group has the goroutines of the current run.
type host struct {
	log   *slog.Logger
	fs    vfs.FS
	group *supervise.Group

	faults faultlog.Log
}

// Log implements stream.Host.
func (h *host) Log() *slog.Logger { return h.log }

// FS implements stream.Host.
func (h *host) FS() vfs.FS { return h.fs }

// Count implements stream.Host. It does nothing, because no counters are shown.
func (h *host) Count(string, int64) {}

// Go implements stream.Host.
func (h *host) Go(name string, run func(context.Context) error) { h.group.Go(name, run) }

// Fault implements stream.Host.
func (h *host) Fault(err error) { h.faults.Add(err) }
