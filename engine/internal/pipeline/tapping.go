package pipeline

import (
	"fmt"
	"slices"
	"strings"

	"github.com/penstock-io/penstock/engine/internal/admin"
	"github.com/penstock-io/penstock/engine/internal/tap"
	"github.com/penstock-io/penstock/engine/kit/ndjson"
	"github.com/penstock-io/penstock/flow"
	"github.com/penstock-io/penstock/stream"
)

// tapSource samples a batch that was just read. No other goroutine uses the batch yet.
func (c *core) tapSource(b *stream.Batch) {
	if !c.observed.tapped() {
		return
	}
	b.Split()
	c.observed.tap.Offer(tap.Stage{}, len(b.Records), func(i int) tap.Sample { return sampleOf(b, i, "read") })
}

// tapProcessor samples a batch after the processor with the given index has processed it.
func (c *core) tapProcessor(b *stream.Batch, i int) {
	if !c.observed.tapped() {
		return
	}
	b.Split()
	stage := tap.Stage{Index: i + 1, Name: c.cfg.Processors[i].Component.Name}
	c.observed.tap.Offer(stage, len(b.Records), func(i int) tap.Sample { return sampleOf(b, i, "kept") })
}

// tapFailed samples a batch after a failed attempt.
func (c *core) tapFailed(it flow.Item[*stream.Batch], f flow.Failure) {
	if !c.observed.tapped() {
		return
	}
	c.tapSink(it.Value, func(s *tap.Sample) {
		s.Outcome, s.Worker, s.Attempt = f.Outcome.String(), f.Lane, f.Number
		if f.Err != nil {
			s.Reason = stream.MaskURLs(firstLine(f.Err))
		}
	})
}

// tapSettled samples a batch after it was delivered or dead-lettered.
func (c *core) tapSettled(it flow.Item[*stream.Batch], s flow.Settlement) {
	if !c.observed.tapped() {
		return
	}
	c.tapSink(it.Value, func(x *tap.Sample) {
		x.Outcome, x.Worker, x.Attempt = "delivered", s.Lane, s.Attempts
		if s.DeadLettered {
			x.Outcome = "dead"
		}
	})
}

// tapSink samples the records of a batch after an attempt of the batch, or after the batch has
// settled. If sampling began after the batch was read, the batch may not be split into records.
// tapSink omits such a batch: it cannot be split now, because workers may still be reading it.
// tapSink calls outcome for the sample of each record that is neither dropped nor dead.
func (c *core) tapSink(b *stream.Batch, outcome func(*tap.Sample)) {
	c.observed.tap.Offer(tap.Stage{Index: -1}, len(b.Records), func(i int) tap.Sample {
		s := sampleOf(b, i, "")
		if s.Outcome == "" {
			outcome(&s)
		}
		return s
	})
}

// sampleOf returns a sample of record i. The argument kept is the outcome in the sample if the
// record is kept.
func sampleOf(b *stream.Batch, i int, kept string) tap.Sample {
	s := tap.Sample{
		ID: string(b.AppendRecordID(nil, i)), Outcome: kept, Record: ndjson.AppendRecord(nil, b, i),
	}
	switch b.Records[i].State {
	case stream.Dropped:
		s.Outcome = "dropped"
	case stream.Dead:
		s.Outcome = "dead"
		if reason := b.Reason(i); reason != nil {
			s.Reason = stream.MaskURLs(reason.Error())
		}
	}
	return s
}

// Tap starts to sample the records of a route, "pipeline/route". stage selects the stages, such as
// "source" (see tap.Stage.Matches), and rate is the maximum number of samples per second and stage.
func (e *Engine) Tap(route, stage string, rate int) (*tap.Subscription, error) {
	pipeline, name, _ := strings.Cut(route, "/")
	s := e.find(pipeline, name)
	if s == nil {
		return nil, admin.ErrNoRoute
	}
	stages := []tap.Stage{{}, {Index: -1}}
	for i, p := range s.cfg.Processors {
		stages = append(stages, tap.Stage{Index: i + 1, Name: p.Component.Name})
	}
	if !slices.ContainsFunc(stages, func(x tap.Stage) bool { return x.Matches(stage) }) {
		return nil, fmt.Errorf("the route has no stage %q; it has %v", stage, stages)
	}
	return e.o.taps.Subscribe(route, stage, rate)
}
