// Package exec implements the processor that passes records to a child process and replaces them by
// the child's results. The child can run a program in any language.
//
// Each instance of the processor has one child. The instance starts its child at the first batch
// and uses it for all batches. A child that ends, hangs or breaks the protocol is replaced by
// another one. If a child dies, the next one gets the unanswered records one by one, so that the
// record that kills children is found. After this record has killed three children, it is
// dead-lettered.
//
// The processor changes a record only after a complete answer. The program runs without a shell.
package exec

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"time"

	"github.com/penstock-io/penstock/backoff"
	"github.com/penstock-io/penstock/engine/kit/child"
	"github.com/penstock-io/penstock/engine/kit/child/multilang"
	"github.com/penstock-io/penstock/retry"
	"github.com/penstock-io/penstock/stream"
	"github.com/penstock-io/penstock/supervise"
)

// Component returns the component for the registry.
func Component() stream.Component {
	return stream.NewComponent(stream.ProcessorRole, "exec", DefaultOptions, New)
}

// mayKill is the number of children that a record must kill to be dead-lettered.
const mayKill = 3

// firstPause and lastPause are the first and the longest interval of the exponential backoff before
// failed records are passed to the child again. Jitter shortens a wait by up to half.
const (
	firstPause = 100 * time.Millisecond
	lastPause  = 30 * time.Second
)

// maxStray is the number of consecutive children that have written stray lines, after which the
// route stops. A stray line is output that belongs to no answer. A successful answer resets the
// count.
const maxStray = 3

// Processor has one child. It must be used by one goroutine.
type Processor struct {
	o     Options
	host  stream.Host
	slot  *child.Slot[*session] // nil before the child is first started
	rand  rand.Source
	stray int       // number of consecutive children that wrote stray lines
	said  time.Time // when a failure of a child was logged last
}

// New returns a processor. It does not start the child.
func New(o Options, h stream.Host) (*Processor, error) {
	if err := o.Validate(); err != nil {
		return nil, err
	}
	h.Count("child_deaths", 0)
	if o.Protocol == Storm {
		multilang.RegisterCounters(h.Count)
	} else {
		h.Count("stray_lines", 0)
	}
	return &Processor{o: o, host: h, rand: rand.NewPCG(rand.Uint64(), rand.Uint64())}, nil
}

// start starts a child. The child is restarted when it ends, until the route stops.
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

// state is the state of one record of the current batch.
type state struct {
	index   int // in the batch
	deaths  int
	done    bool
	results []result // the records by which the record is replaced; none if it is dropped
	reason  error    // why the record is dead-lettered
}

// Process implements stream.Processor.
func (p *Processor) Process(ctx context.Context, b *stream.Batch) error {
	if p.slot == nil {
		if err := p.start(); err != nil {
			return err
		}
	}
	var all []*state
	for _, i := range b.AppendKept(nil) {
		all = append(all, &state{index: i})
	}
	todo := slices.Clone(all)
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
			p.report("child died; its records are passed to the next child one at a time", died)
		}
		left := len(todo)
		todo = slices.DeleteFunc(todo, func(s *state) bool { return s.done })
		if died == nil && len(todo) == left { // all records have failed
			p.report("child failed all records; they are passed to it again", t.refusal)
			if pause, err = p.pause(ctx, pause); err != nil {
				return err
			}
		}
	}
	apply(b, all)
	return nil
}

// ended returns the error to report when Await has returned err instead of a child. If the program
// cannot be started, ended returns the StartError within err. Otherwise, if ctx has ended, ended
// returns the cause of ctx.
func (p *Processor) ended(ctx context.Context, err error) error {
	if start, ok := errors.AsType[*child.StartError](err); ok {
		return start
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return err
}

// judge decides whether the unanswered records are blamed for the end of a child. died is the
// reason of this end, or nil if the child lives.
//
// In two cases, the records are not blamed, and the next child gets them: the child has ended by
// itself with status 0 after an answer, or it was ended because of a stray line (output that
// belongs to no answer). If maxStray children in a row have written stray lines, judge returns an
// error, and the route stops.
func (p *Processor) judge(t *session, died error) (blamed bool, err error) {
	if died == nil {
		p.stray = 0
		return false, nil
	}
	if stray, ok := errors.AsType[*strayError](died); ok {
		if p.stray++; p.stray >= maxStray {
			// A restart does not help, because the program does not follow its protocol.
			return false, supervise.Final(fmt.Errorf("%s: %d children in a row: %w", p.o.Command[0],
				p.stray, stray))
		}
		return false, nil
	}
	worked, _ := t.Did()
	return !worked || !child.EndedCleanly(died), nil
}

// blame is called with the records that were passed to a child that died. It counts a death for
// each unanswered record. If a record has caused mayKill deaths, blame dead-letters it.
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

// report logs a failure of a child, at most once in reportEvery.
func (p *Processor) report(message string, err error) {
	if now := time.Now(); now.Sub(p.said) >= reportEvery {
		p.said = now
		p.host.Log().Warn(message, "program", p.o.Command[0], "error", err)
	}
}

// reportEvery is the minimum time between two log messages about failures of children.
const reportEvery = time.Second

// pause waits before failed records are passed to the child again.
func (p *Processor) pause(ctx context.Context, s backoff.State) (backoff.State, error) {
	wait, next, _ := backoff.Exponential(firstPause, 2, lastPause).Equal().Next(s, p.rand)
	return next, retry.Sleep(ctx, wait)
}

// maxResults is the maximum number of records by which one record can be replaced.
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
		off, n := b.Records[i].Off, b.Records[i].Len
		for k, m := range s.results {
			r := &b.Records[i+k]
			r.Off, r.Len = off, n // for a dead letter, if the result has fields
			m.put(b, i+k)
		}
	}
}
