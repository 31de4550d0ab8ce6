// Package exec holds the sink that hands batches to child processes, in any language, each a
// worker.
//
// Three protocols: `lines` starts a process for each batch, with the records on its standard input;
// `ndjson` and `storm` keep children running and talk to them. A child that dies is started again
// for as long as the route runs; what it had is retryable and goes to the others at once. A child
// that hangs is killed with its process group when flow abandons the attempt. The sink owns its
// children. It decides nothing about when to try again (flow does), gives nothing to a shell, and
// believes no child that it has delivered what it has not answered for.
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

// Component is the sink's line in the list of components.
func Component() stream.Component {
	return stream.Component{
		Role:    stream.SinkRole,
		Name:    "exec",
		Options: func() any { return DefaultOptions() },
		New:     func(o any, h stream.Host) (any, error) { return New(*o.(*Options), h) },
	}
}

// Sink hands batches to child processes. It implements stream.Sink and stream.Encoder.
type Sink struct {
	o       Options
	host    stream.Host
	scratch sync.Pool     // *[]byte: what pieces are encoded into
	pids    string        // of storm: the folder in which bolts leave their process ids; made by Open
	starts  atomic.Uint32 // of children with ndjson
	grants  atomic.Bool   // one of them has said a credit: so will the next, which gets one batch until it has
}

// New returns a sink that has started nothing.
func New(o Options, h stream.Host) (*Sink, error) {
	if err := o.Validate(); err != nil {
		return nil, err
	}
	s := &Sink{o: o, host: h}
	s.scratch.New = func() any { return new([]byte) }
	return s, nil
}

// Open implements stream.Sink: one lane for each worker, named worker-1, worker-2, ... A program
// that cannot be started is no error here: its workers are down, and say why.
func (s *Sink) Open(_ context.Context, o stream.SinkOptions) error {
	names := make([]string, s.o.Workers)
	for i := range names {
		names[i] = fmt.Sprintf("worker-%d", i+1)
	}
	lanes := make([]stream.Lane, 0, len(names))
	var workers []stream.Worker
	switch s.o.Protocol {
	case Lines:
		for _, name := range names {
			workers = append(workers, &linesLane{sink: s, spec: s.spec(name)})
		}
	case NDJSON:
		fleet, err := child.NewFleet(child.FleetOptions[*talk]{Name: "children", Names: names, Spec: s.spec, Talk: s.newTalk})
		if err != nil {
			return err
		}
		for _, slot := range fleet.Slots() {
			workers = append(workers, &ndjsonLane{sink: s, slot: slot})
		}
		s.host.Go("children", fleet.Serve)
	case Storm:
		var err error
		if s.pids, err = os.MkdirTemp("", "penstock-pids-"); err != nil {
			return fmt.Errorf("a folder for the process ids of bolts: %w", err)
		}
		fleet, err := child.NewFleet(child.FleetOptions[*multilang.Bolt]{
			Name: "children", Names: names, Spec: s.spec, Talk: s.newBolt(o.Pipeline),
		})
		if err != nil {
			return err
		}
		for _, slot := range fleet.Slots() {
			workers = append(workers, &boltLane{sink: s, slot: slot})
		}
		s.host.Go("children", fleet.Serve)
	}
	for i, w := range workers {
		limits := stream.Limits{InFlight: 1}
		switch s.o.Protocol {
		case NDJSON:
			limits.InFlight = s.o.InFlight
		case Storm:
			limits.InFlight = boltInFlight
		}
		lanes = append(lanes, stream.Lane{Name: names[i], Worker: w, Limits: limits})
	}
	o.Lanes(lanes)
	return nil
}

func (s *Sink) spec(worker string) child.Spec {
	spec := s.o.Spec(worker)
	spec.Log = s.host.Log()
	return spec
}

// Close implements stream.Sink. The children ended with the goroutines that the host has waited
// for.
func (s *Sink) Close() error {
	if s.pids == "" {
		return nil
	}
	dir := s.pids
	s.pids = ""
	return os.RemoveAll(dir)
}

// Encodes implements stream.Encoder.
func (s *Sink) Encodes() stream.Encoding { return stream.EncodeAll }

// Encode implements stream.Encoder: what a child reads of a batch. Raw lines of which nothing was
// changed are sent from the batch's own bytes.
func (s *Sink) Encode(dst []byte, b *stream.Batch) ([]byte, error) {
	switch {
	case s.o.Protocol == NDJSON:
		return appendRecords(dst, b), nil
	case s.o.Protocol == Storm:
		b.Split() // here, where it has one owner: several attempts of it may run at once
		return nil, nil
	case s.o.Format == JSON:
		return ndjson.Append(dst, b), nil
	}
	if _, ok := b.Whole(); ok {
		return nil, nil
	}
	return b.AppendRaw(dst), nil
}

// bodyOf returns what a child reads of b: its payload, its own bytes, or, for a piece, what is
// encoded into scratch.
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

// down is the outcome of an attempt at a worker whose child does not run: a gate that is closed
// until it will be back; but a program that cannot be started at all is the config's fault.
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
