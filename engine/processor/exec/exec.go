// Package exec implements the processor that lets child processes, written in any language, change
// records.
//
// Each instance has one child, which is started at the first batch and reused for later ones. A
// child that dies, hangs or breaks the protocol is restarted. The next child gets the unanswered
// records one at a time, so that a record that kills children is identified. After three deaths,
// that record is dead-lettered. The processor changes a record only after a complete answer, keeps
// no batch data, and runs no shell.
package exec

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"time"

	"github.com/penstock-io/penstock/backoff"
	"github.com/penstock-io/penstock/engine/kit/child"
	"github.com/penstock-io/penstock/retry"
	"github.com/penstock-io/penstock/stream"
	"github.com/penstock-io/penstock/supervise"
)

// Component returns the component for the registry.
func Component() stream.Component {
	return stream.NewComponent(stream.ProcessorRole, "exec", DefaultOptions, New)
}

// mayKill is the number of children that a record may kill before it is dead-lettered.
const mayKill = 3

// firstPause and lastPause bound the waits before a child gets failed records again.
const (
	firstPause = 100 * time.Millisecond
	lastPause  = 30 * time.Second
)

// maxStray is the number of consecutive children with stray lines at which the route stops. A
// successful answer resets the count.
const maxStray = 3

// Processor owns one child. It must be used by one goroutine.
type Processor struct {
	o     Options
	host  stream.Host
	slot  *child.Slot[*session] // nil before the first start of a child
	rand  rand.Source
	stray int // consecutive children that wrote stray lines
}

// New returns a processor. It starts no child.
func New(o Options, h stream.Host) (*Processor, error) {
	if err := o.Validate(); err != nil {
		return nil, err
	}
	return &Processor{o: o, host: h, rand: rand.NewPCG(rand.Uint64(), rand.Uint64())}, nil
}

// start starts a child, which is restarted until the route stops.
func (p *Processor) start() error {
	const name = "child"
	spec := p.o.Spec(name)
	spec.Log = p.host.Log()
	pids := ""
	if p.o.Protocol == Storm {
		var err error
		if pids, err = os.MkdirTemp("", "penstock-pids-"); err != nil {
			return fmt.Errorf("create a directory for the process ids of bolts: %w", err)
		}
	}
	fleet, err := child.NewFleet(child.FleetOptions[*session]{
		Name: "exec", Names: []string{name}, Spec: func(string) child.Spec { return spec },
		NewSession: func(c *child.Process) *session { return newSession(c, &p.o, pids, p.host) },
	})
	if err != nil {
		return err
	}
	p.slot = fleet.Slots()[0]
	p.host.Go("exec", func(ctx context.Context) error {
		err := fleet.Serve(ctx)
		if pids == "" {
			return err
		}
		return errors.Join(err, os.RemoveAll(pids))
	})
	return nil
}

// state is the progress of one record of the current batch.
type state struct {
	index   int // in the batch
	deaths  int
	done    bool
	results []result // the resulting records; none if it is dropped
	reason  error    // why the record is dead-lettered
}

// Process implements stream.Processor.
func (p *Processor) Process(ctx context.Context, b *stream.Batch) error {
	if p.slot == nil {
		if err := p.start(); err != nil {
			return err
		}
	}
	b.Split()
	var all []*state
	for i := range b.Records {
		if b.Records[i].State == stream.Kept {
			all = append(all, &state{index: i})
		}
	}
	todo := all
	alone := false
	var pause backoff.State
	for len(todo) > 0 {
		part := todo
		if alone {
			part = todo[:1]
		}
		t, err := p.slot.Await(ctx)
		if err != nil {
			return p.ended(ctx, err)
		}
		died := t.work(ctx, b, part)
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		blamed, err := p.judge(t, died)
		if err != nil {
			return err
		}
		if blamed {
			alone = true
			p.host.Count("child_deaths", 1)
			p.blame(part, died)
		}
		left := len(todo)
		todo = unfinished(todo)
		if died == nil && len(todo) == left { // the child failed all of them
			if pause, err = p.pause(ctx, pause); err != nil {
				return err
			}
		}
	}
	apply(b, all)
	return nil
}

// ended returns the error for a child that cannot be started.
func (p *Processor) ended(ctx context.Context, err error) error {
	if start, ok := errors.AsType[*child.StartError](err); ok {
		return start
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return err
}

// protocolError means that a program breaks its protocol. It stops the route, because a restart
// would not help.
type protocolError struct{ err error }

func (e *protocolError) Error() string   { return e.err.Error() }
func (e *protocolError) Unwrap() []error { return []error{e.err, supervise.ErrStop} }

// judge decides whether the unanswered records are to blame for the death of the child. They are
// not to blame if the child ended by itself after an answer, or if it wrote a stray line. The next
// child then gets these records. If maxStray children in a row have written stray lines, judge
// returns an error that stops the route.
func (p *Processor) judge(t *session, died error) (blamed bool, err error) {
	if died == nil {
		p.stray = 0
		return false, nil
	}
	if stray, ok := errors.AsType[*strayError](died); ok {
		if p.stray++; p.stray >= maxStray {
			return false, &protocolError{fmt.Errorf("%s: %d children in a row: %w", p.o.Command[0],
				p.stray, stray)}
		}
		return false, nil
	}
	worked, _ := t.Did()
	return !worked || !child.EndedCleanly(died), nil
}

// blame counts the death of a child for its unanswered records.
func (p *Processor) blame(part []*state, died error) {
	for _, s := range part {
		if s.done {
			continue
		}
		if s.deaths++; s.deaths >= mayKill {
			s.done, s.reason = true, fmt.Errorf("it killed %d children; the last error: %w",
				s.deaths, died)
		}
	}
}

func unfinished(all []*state) []*state {
	var left []*state
	for _, s := range all {
		if !s.done {
			left = append(left, s)
		}
	}
	return left
}

// pause waits before failed records are given to the child again.
func (p *Processor) pause(ctx context.Context, s backoff.State) (backoff.State, error) {
	wait, next, ok := backoff.Exponential(firstPause, 2, lastPause).Equal().Next(s, p.rand)
	if !ok {
		wait = lastPause
	}
	return next, retry.Sleep(ctx, wait)
}

// maxResults is the maximum number of records made from one record.
const maxResults = 1 << 20

// apply replaces each record by its results.
func apply(b *stream.Batch, all []*state) {
	extra, more := make([]int, len(b.Records)), false
	for _, s := range all {
		if len(s.results) > maxResults {
			s.reason = fmt.Errorf("it became %d records; the limit is %d",
				len(s.results),
				maxResults)
		}
		if s.reason == nil {
			extra[s.index] = max(0, len(s.results)-1)
			more = more || extra[s.index] > 0
		}
	}
	var index []int
	if more {
		index = b.Expand(extra)
	}
	for _, s := range all {
		i := s.index
		if more {
			i = index[s.index]
		}
		if s.reason != nil {
			b.DeadLetter(i, s.reason)
			continue
		}
		if len(s.results) == 0 {
			b.Drop(i)
		}
		for n, m := range s.results {
			m.put(b, i+n)
		}
	}
}
