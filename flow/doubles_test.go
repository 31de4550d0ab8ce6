package flow

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/penstock-io/penstock/flow/control"
)

// takes returns a worker that delivers each item after d.
func takes[T any](d time.Duration) WorkerFunc[T] {
	return func(ctx context.Context, _ Attempt[T]) (Report, error) {
		return Report{}, sleep(ctx, d)
	}
}

// hangs is a worker that returns only when its context ends.
func hangs[T any]() WorkerFunc[T] {
	return func(ctx context.Context, _ Attempt[T]) (Report, error) {
		<-ctx.Done()
		return Report{}, context.Cause(ctx)
	}
}

func sleep(ctx context.Context, d time.Duration) error {
	if d <= 0 {
		return nil
	}
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// these returns a producer of items, which ends with io.EOF.
func these[T any](items ...Item[T]) ProducerFunc[T] {
	return func(context.Context) (Item[T], error) {
		if len(items) == 0 {
			return Item[T]{}, io.EOF
		}
		it := items[0]
		items = items[1:]
		return it, nil
	}
}

// values makes an item of each value.
func values[T any](v ...T) (items []Item[T]) {
	for _, one := range v {
		items = append(items, Item[T]{Value: one, Bytes: 1})
	}
	return items
}

// idle returns a producer that has no items and waits until its context ends.
func idle[T any]() ProducerFunc[T] {
	return func(ctx context.Context) (Item[T], error) {
		<-ctx.Done()
		return Item[T]{}, context.Cause(ctx)
	}
}

// deliveryLog records how a Sender handles items of type T, with the time since its start. It
// checks the unconditional promises of Options: an item is settled at most once, and released
// exactly once, when no attempt of it runs.
type deliveryLog[T comparable] struct {
	t     testing.TB
	start time.Time

	mu       sync.Mutex // guards the fields below, which workers write, too
	settled  map[T]Settlement
	at       map[T]time.Duration
	order    []T // in the order of their settles
	released map[T]int
	replaced map[T]bool // by pieces
	running  map[T]int
	starts   []string // "value lane", in the order of the starts
	failures []Failure
}

func newLog[T comparable](t testing.TB) *deliveryLog[T] {
	return &deliveryLog[T]{
		t: t, start: time.Now(), settled: make(map[T]Settlement), at: make(map[T]time.Duration),
		released: make(map[T]int),
		replaced: make(map[T]bool), running: make(map[T]int),
	}
}

// lane returns a lane with recorded attempts.
func (d *deliveryLog[T]) lane(name string, w Worker[T]) Lane[T] {
	return Lane[T]{Name: name,
		Worker: WorkerFunc[T](func(ctx context.Context, a Attempt[T]) (Report, error) {
			d.mu.Lock()
			d.running[a.Value]++
			d.starts = append(d.starts, fmt.Sprintf("%v %s", a.Value, name))
			if d.released[a.Value] > 0 {
				d.t.Errorf("attempt %d of %v starts after its release", a.Number, a.Value)
			}
			d.mu.Unlock()
			defer func() {
				d.mu.Lock()
				d.running[a.Value]--
				d.mu.Unlock()
			}()
			return w.Deliver(ctx, a)
		})}
}

// options returns options that record everything, without timeouts; the test adds the rest.
func (d *deliveryLog[T]) options(lanes ...Lane[T]) Options[T] {
	return Options[T]{
		Lanes:   lanes,
		Control: control.Config{Timeout: -1},
		Settled: func(it Item[T], s Settlement) {
			d.mu.Lock()
			defer d.mu.Unlock()
			if _, again := d.settled[it.Value]; again {
				d.t.Errorf("%v settled twice", it.Value)
			}
			if d.released[it.Value] > 0 {
				d.t.Errorf("%v settled after its release", it.Value)
			}
			d.settled[it.Value] = s
			d.at[it.Value] = time.Since(d.start)
			d.order = append(d.order, it.Value)
		},
		Released: func(it Item[T]) {
			d.mu.Lock()
			defer d.mu.Unlock()
			d.released[it.Value]++
			if n := d.released[it.Value]; n > 1 {
				d.t.Errorf("%v released %d times", it.Value, n)
			}
			if n := d.running[it.Value]; n > 0 {
				d.t.Errorf("%v released while %d attempts run", it.Value, n)
			}
		},
		Failed: func(_ context.Context, it Item[T], f Failure) {
			d.mu.Lock()
			defer d.mu.Unlock()
			d.failures = append(d.failures, f)
		},
	}
}

// wantSettled checks that exactly these values were settled, and that all items were released.
func (d *deliveryLog[T]) wantSettled(want ...T) {
	d.t.Helper()
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, v := range want {
		if _, ok := d.settled[v]; !ok {
			d.t.Errorf("%v was not settled", v)
		}
		if d.released[v] != 1 {
			d.t.Errorf("%v was released %d times, want once", v, d.released[v])
		}
	}
	if len(d.settled) != len(want) {
		d.t.Errorf("settled %v, want %v", slices.Collect(maps.Keys(d.settled)), want)
	}
}

func (d *deliveryLog[T]) wantAt(v T, want time.Duration) {
	d.t.Helper()
	if got, ok := d.at[v]; !ok || got != want {
		d.t.Errorf("%v settled at %v (%v), want %v", v, got, ok, want)
	}
}

// mustRun runs a Sender with options o and fails the test if Run returns an error.
func mustRun[T any](t testing.TB, o Options[T], p Producer[T]) {
	t.Helper()
	if err := mustSender(t, o).Run(t.Context(), p); err != nil {
		t.Fatalf("Run: %v", err)
	}
}

func mustSender[T any](t testing.TB, o Options[T]) *Sender[T] {
	t.Helper()
	s, err := New(o)
	if err != nil {
		t.Fatalf("New: %v", err)
	}
	return s
}

var errRefused = errors.New("no")
