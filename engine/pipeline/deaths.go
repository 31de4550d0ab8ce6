package pipeline

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"sync"

	"github.com/penstock-io/penstock"
	"github.com/penstock-io/penstock/flow"
)

// mayKill is how many workers a batch, or in the end a record, may kill before it is cut or buried.
const mayKill = 3

// deaths counts the workers that died with a batch in their hands: a panic in Deliver, or a *penstock.DiedError. A batch of
// which mayKill have died is refused, so that flow cuts it. A piece of such a batch is cut at the first death, because one of
// the pieces will kill again; but a record is buried only after mayKill deaths while it was alone: what dies beside it, or
// by somebody's hand, is no proof.
type deaths struct {
	mu sync.Mutex // guards of
	of map[*penstock.Batch]death
}

// death is what one batch has on its account.
type death struct {
	count   int
	suspect bool // cut from a batch that killed mayKill workers
	last    error
}

// limit is how many workers may die of b before it is refused.
func (d death) limit(b *penstock.Batch) int {
	if d.suspect && b.Middle() > 0 {
		return 1
	}
	return mayKill
}

// died books a death of b, and returns its refusal where it was one too many; else nil.
func (d *deaths) died(b *penstock.Batch, err error) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.of == nil {
		d.of = make(map[*penstock.Batch]death)
	}
	was := d.of[b]
	was.count++
	was.last = err
	d.of[b] = was
	return was.refusal(b)
}

func (d death) refusal(b *penstock.Batch) error {
	if d.count < d.limit(b) {
		return nil
	}
	times := "1 worker died of it"
	if d.count > 1 {
		times = fmt.Sprintf("%d workers died of it", d.count)
	}
	return &flow.Rejected{Err: fmt.Errorf("%s, the last of this: %w", times, d.last)}
}

// refused says whether b has killed enough, without another one dying of it.
func (d *deaths) refused(b *penstock.Batch) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if was, ok := d.of[b]; ok && was.count > 0 {
		return was.refusal(b)
	}
	return nil
}

// cut hands the suspicion of b on to its pieces.
func (d *deaths) cut(b *penstock.Batch, pieces []flow.Item[*penstock.Batch]) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if was := d.of[b]; was.count == 0 {
		return
	}
	for _, p := range pieces {
		d.of[p.Value] = death{suspect: true}
	}
}

// forget drops the account of a batch that is released.
func (d *deaths) forget(b *penstock.Batch) {
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.of, b)
}

// mortal is a worker whose deaths are counted.
type mortal struct {
	name   string
	worker penstock.Worker
	deaths *deaths
	count  func(name string, n int64)
}

// Deliver implements penstock.Worker.
func (m *mortal) Deliver(ctx context.Context, a penstock.Attempt) (flow.Report, error) {
	if err := m.deaths.refused(a.Value); err != nil {
		return flow.Report{}, err
	}
	report, err := m.deliver(ctx, a)
	if err == nil {
		return report, nil
	}
	culprit := a.Value
	if e, ok := errors.AsType[*penstock.DiedError](err); ok {
		if e.Culprit != nil {
			culprit = e.Culprit
		}
	} else if _, ok := errors.AsType[*flow.PanicError](err); !ok {
		return report, err
	}
	m.count("worker_deaths", 1)
	if refusal := m.deaths.died(culprit, err); refusal != nil && culprit == a.Value {
		return report, refusal
	}
	return report, err
}

// deliver makes an error of a panic. runtime.Goexit cannot be stopped: flow answers for the goroutine that it ends.
func (m *mortal) deliver(ctx context.Context, a penstock.Attempt) (report flow.Report, err error) {
	returned := false
	defer func() {
		if returned {
			return
		}
		v := recover()
		report, err = flow.Report{}, &flow.PanicError{Where: fmt.Sprintf("worker %q", m.name), Value: v, Stack: debug.Stack()}
		if v == nil {
			m.count("worker_deaths", 1)
			_ = m.deaths.died(a.Value, err) // refused at the next attempt
		}
	}()
	report, err = m.worker.Deliver(ctx, a)
	returned = true
	return report, err
}

// mortals wraps the workers of lanes.
func (r *route) mortals(lanes []penstock.Lane) []penstock.Lane {
	wrapped := make([]penstock.Lane, len(lanes))
	for i, l := range lanes {
		l.Worker = &mortal{name: l.Name, worker: l.Worker, deaths: &r.deaths, count: r.host.Count}
		wrapped[i] = l
	}
	return wrapped
}
