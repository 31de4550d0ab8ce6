// Package exec implements the sink that delivers batches to child processes, which run programs in
// any language. Each child is a worker. (The source exec is in this package as well.)
//
// The sink has three protocols. With `lines`, it starts a process for each batch and writes the
// batch to its standard input. With `ndjson` and `storm`, children keep running and exchange
// messages with the sink.
//
// A batch is delivered only if the child has acknowledged it. The sink does not retry; package
// flow does. With `ndjson` and `storm`, a child that ends while the route runs is restarted. Its
// unanswered batches can go to other workers at once. If package flow abandons an attempt because
// the child hangs, the child is killed with its process group. Programs run without a shell.
//
// An answer is the message of a child about one batch: it acknowledges, refuses or fails records.
// The answer may state a credit: the number of records that the child accepts in all. If a child
// dies, normally its oldest unanswered batch is blamed. A batch that is blamed several times is
// halved until the record at fault is found. This record is refused.
package exec

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"sync/atomic"

	"github.com/penstock-io/penstock/engine/kit/child"
	"github.com/penstock-io/penstock/engine/kit/child/multilang"
	"github.com/penstock-io/penstock/engine/kit/ndjson"
	"github.com/penstock-io/penstock/stream"
)

// Component returns the sink's entry in the list of components.
func Component() stream.Component {
	return stream.NewComponent(stream.SinkRole, "exec", DefaultOptions, New)
}

// Sink delivers batches to child processes. It implements stream.Sink and stream.Encoder.
type Sink struct {
	o       Options
	host    stream.Host
	scratch sync.Pool // *[]byte: encode buffers for pieces
	// with storm: the directory in which bolts store their process ids; created by Open
	pids   string
	starts atomic.Uint32 // with ndjson: number of children started so far
}

// New returns a sink. It does not start children.
func New(o Options, h stream.Host) (*Sink, error) {
	if err := o.Validate(); err != nil {
		return nil, err
	}
	s := &Sink{o: o, host: h}
	s.scratch.New = func() any { return new([]byte) }
	switch o.Protocol {
	case Lines:
		h.Count("processes_started", 0)
	case Storm:
		multilang.RegisterCounters(h.Count)
	}
	return s, nil
}

// Open implements stream.Sink. It creates one lane for each worker. The lanes are named worker-1,
// worker-2, ... If the program cannot be started, Open succeeds, and the attempts fail.
func (s *Sink) Open(_ context.Context, o stream.SinkOptions) (err error) {
	names := make([]string, s.o.Workers)
	for i := range names {
		names[i] = fmt.Sprintf("worker-%d", i+1)
	}
	var workers []stream.Worker
	inFlight := 1
	switch s.o.Protocol {
	case Lines:
		for _, name := range names {
			workers = append(workers, &linesLane{sink: s, spec: s.spec(name)})
		}
	case NDJSON:
		inFlight = s.o.InFlight
		workers, err = start(s, names, s.newSession,
			func(slot *child.Slot[*session]) stream.Worker { return &ndjsonLane{s, slot} })
	case Storm:
		inFlight = boltInFlight
		if s.pids, err = os.MkdirTemp("", "penstock-pids-"); err != nil {
			return fmt.Errorf("create a directory for the process ids of bolts: %w", err)
		}
		workers, err = start(s, names, s.newBolt(o.Pipeline),
			func(slot *child.Slot[*multilang.Bolt]) stream.Worker { return &boltLane{s, slot} })
	}
	if err != nil {
		return err
	}
	lanes := make([]stream.Lane, len(workers))
	for i, w := range workers {
		lanes[i] = stream.Lane{Name: names[i], Worker: w,
			Limits: stream.Limits{InFlight: inFlight}}
	}
	o.Lanes(lanes)
	return nil
}

// start makes the host run a fleet with a child for each of the names, and returns the workers that
// deliver to these children.
func start[S child.Session](s *Sink, names []string, newSession func(*child.Process) S,
	worker func(*child.Slot[S]) stream.Worker) (workers []stream.Worker, err error) {
	fleet, err := child.NewFleet(child.FleetOptions[S]{
		Name: "children", Names: names, Spec: s.spec, NewSession: newSession,
	})
	if err != nil {
		return nil, err
	}
	for _, slot := range fleet.Slots() {
		workers = append(workers, worker(slot))
	}
	s.host.Go("children", fleet.Serve)
	return workers, nil
}

func (s *Sink) spec(worker string) child.Spec {
	spec := s.o.Spec(worker)
	spec.Log = s.host.Log()
	return spec
}

// Close implements stream.Sink. It removes the directory of the bolts' process ids. The children
// have already ended, because the host waits for their goroutines before it calls Close.
func (s *Sink) Close() error {
	if s.pids == "" {
		return nil
	}
	dir := s.pids
	s.pids = ""
	return os.RemoveAll(dir)
}

// Encodes implements stream.Encoder. Encode is called for every batch.
func (s *Sink) Encodes() stream.Encoding { return stream.EncodeAll }

// Encode implements stream.Encoder. With `lines`, it appends the input of a child to dst, but
// nothing for unchanged raw lines, which are sent from the batch's own bytes. With `ndjson`, it
// appends the records of the input, without the part before them (see appendHead). With `storm`, it
// appends nothing.
func (s *Sink) Encode(dst []byte, b *stream.Batch) ([]byte, error) {
	switch {
	case s.o.Protocol == NDJSON:
		return appendRecords(dst, b), nil
	case s.o.Protocol == Storm:
		b.Split() // now, while no other goroutine uses the batch
		return nil, nil
	case s.o.Format == JSON:
		return ndjson.Append(dst, b), nil
	}
	if _, ok := b.Whole(); ok {
		return nil, nil
	}
	return b.AppendRaw(dst), nil
}

// bodyOf returns the input of a child for b. With `ndjson`, the part before the records is missing
// (see appendHead). The input is the payload from Encode if there is one. For unchanged raw lines,
// it is the batch's own bytes. Otherwise, bodyOf encodes the records into scratch.
func (s *Sink) bodyOf(b *stream.Batch, scratch *[]byte) ([]byte, error) {
	if len(b.Payload) > 0 {
		return b.Payload, nil
	}
	body, err := s.Encode((*scratch)[:0], b)
	if body == nil && err == nil {
		body, _ = b.Whole()
		return body, nil
	}
	*scratch = body
	return body, err
}

// down returns the outcome of an attempt at a child that is not running. err is the reason. The
// outcome is Throttled until the next start of the child, or Misconfigured if the program cannot be
// started.
func down(err error) error {
	e, ok := errors.AsType[*child.DownError](err)
	if !ok {
		return err
	}
	if start, ok := errors.AsType[*child.StartError](err); ok {
		return &stream.Misconfigured{Err: start}
	}
	return &stream.Throttled{After: e.Next, Err: err}
}
