// Package exec holds the processor that has child processes change records, in any language.
//
// Each instance keeps one child, which is started at its first batch and used again for the next
// ones. A child that dies, hangs or says what it may not is started again, and what it has not
// answered for is given to the next one: one record at a time, so that the one that kills is found;
// after three deaths it is a dead letter. The processor changes no record for which it has no whole
// answer, keeps nothing of a batch, and gives nothing to a shell.
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

// Component is the processor's line in the list of components.
func Component() stream.Component {
	return stream.Component{
		Role:    stream.ProcessorRole,
		Name:    "exec",
		Options: func() any { return DefaultOptions() },
		New:     func(o any, h stream.Host) (any, error) { return New(*o.(*Options), h) },
	}
}

// mayKill is how many children a record may kill before it is a dead letter.
const mayKill = 3

// firstPause and lastPause bound the waits before records that a child has failed are given to it
// again.
const (
	firstPause = 100 * time.Millisecond
	lastPause  = 30 * time.Second
)

// maxStray is how many children in a row may write stray lines, without one answer that counts,
// before the route stops.
const maxStray = 3

// Processor has one child. It serves one goroutine.
type Processor struct {
	o     Options
	host  stream.Host
	slot  *child.Slot[*talk] // nil: no child was ever started
	rand  rand.Source
	stray int // children in a row that wrote stray lines
}

// New returns a processor that has started nothing.
func New(o Options, h stream.Host) (*Processor, error) {
	if err := o.Validate(); err != nil {
		return nil, err
	}
	return &Processor{o: o, host: h, rand: rand.NewPCG(rand.Uint64(), rand.Uint64())}, nil
}

// start has a child kept running until the route stops.
func (p *Processor) start() error {
	const name = "child"
	spec := p.o.Spec(name)
	spec.Log = p.host.Log()
	pids := ""
	if p.o.Protocol == Storm {
		var err error
		if pids, err = os.MkdirTemp("", "penstock-pids-"); err != nil {
			return fmt.Errorf("a folder for the process ids of bolts: %w", err)
		}
	}
	fleet, err := child.NewFleet(child.FleetOptions[*talk]{
		Name: "exec", Names: []string{name}, Spec: func(string) child.Spec { return spec },
		Talk: func(c *child.Process) *talk { return newTalk(c, &p.o, pids, p.host) },
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

// state is what is known of one record while its batch is worked on.
type state struct {
	index  int // in the batch
	deaths int
	done   bool
	made   []made // what has become of it; none: it is dropped
	reason error  // it is to be buried
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
		if died == nil && len(todo) == left { // it failed all of them
			if pause, err = p.rest(ctx, pause); err != nil {
				return err
			}
		}
	}
	apply(b, all)
	return nil
}

// ended is why no child can be had.
func (p *Processor) ended(ctx context.Context, err error) error {
	if start, ok := errors.AsType[*child.StartError](err); ok {
		return start
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return err
}

// protocolError is a program that cannot keep its protocol. It stops the route: a restart would not
// help.
type protocolError struct{ err error }

func (e *protocolError) Error() string   { return e.err.Error() }
func (e *protocolError) Unwrap() []error { return []error{e.err, supervise.ErrStop} }

// judge decides whether the records that a child had are to blame for its death. They are not if it
// ended by itself after an answer, or wrote a stray line: then the next child gets them. The error
// stops the route: every child writes stray lines.
func (p *Processor) judge(t *talk, died error) (blamed bool, err error) {
	if died == nil {
		p.stray = 0
		return false, nil
	}
	if stray, ok := errors.AsType[*strayError](died); ok {
		if p.stray++; p.stray >= maxStray {
			return false, &protocolError{fmt.Errorf("%s: %d children in a row: %w", p.o.Command[0], p.stray, stray)}
		}
		return false, nil
	}
	worked, _ := t.Did()
	return !worked || !child.EndedCleanly(died), nil
}

// blame books the death of a child against the records that it had not answered for.
func (p *Processor) blame(part []*state, died error) {
	for _, s := range part {
		if s.done {
			continue
		}
		if s.deaths++; s.deaths >= mayKill {
			s.done, s.reason = true, fmt.Errorf("%d children died of it, the last of this: %w", s.deaths, died)
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

// rest waits before what a child has failed is given to it again.
func (p *Processor) rest(ctx context.Context, s backoff.State) (backoff.State, error) {
	wait, next, ok := backoff.Exponential(firstPause, 2, lastPause).Equal().Next(s, p.rand)
	if !ok {
		wait = lastPause
	}
	return next, retry.Sleep(ctx, wait)
}

// maxMade is how many records may be made of one.
const maxMade = 1 << 20

// apply makes each record what has become of it.
func apply(b *stream.Batch, all []*state) {
	extra, more := make([]int, len(b.Records)), false
	for _, s := range all {
		if len(s.made) > maxMade {
			s.reason = fmt.Errorf("%d records were made of it; at most %d are taken", len(s.made), maxMade)
		}
		if s.reason == nil {
			extra[s.index] = max(0, len(s.made)-1)
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
			b.Bury(i, s.reason)
			continue
		}
		if len(s.made) == 0 {
			b.Drop(i)
		}
		for n, m := range s.made {
			m.put(b, i+n)
		}
	}
}
