package flow

import (
	"context"
	"errors"
	"io"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/penstock-io/penstock/backoff"
	"github.com/penstock-io/penstock/flow/control"
)

// memoryStore is a WaitStore in memory.
type memoryStore struct {
	mu      sync.Mutex // guards the fields below
	waiting []storedItem
	noted   int
	most    int // items held at once
	closed  bool
	changed chan struct{}
}

type storedItem struct {
	item Item[int]
	wait Wait
	due  time.Time
}

func newMemoryStore() *memoryStore { return &memoryStore{changed: make(chan struct{})} }

func (s *memoryStore) Note(Item[int], Wait) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.noted++
}

func (s *memoryStore) Take(it Item[int], w Wait) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.waiting = append(s.waiting, storedItem{it, w, time.Now().Add(w.After)})
	s.most = max(s.most, len(s.waiting))
	s.change()
	return true
}

func (s *memoryStore) change() {
	close(s.changed)
	s.changed = make(chan struct{})
}

func (s *memoryStore) close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	s.change()
}

func (s *memoryStore) Held() (n int, cost float64, bytes int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, w := range s.waiting {
		cost += max(1, w.item.Cost)
		bytes += w.item.Bytes
	}
	return len(s.waiting), cost, bytes
}

func (s *memoryStore) Next(ctx context.Context, suspect bool) (Item[int], History, error) {
	for {
		s.mu.Lock()
		at, next := -1, time.Hour
		for i, w := range s.waiting {
			if wait := time.Until(w.due); w.wait.History.Suspect == suspect && wait < next {
				at, next = i, wait
			}
		}
		closed, changed := s.closed, s.changed
		if !closed && at >= 0 && next <= 0 {
			w := s.waiting[at]
			s.waiting = slices.Delete(s.waiting, at, at+1)
			s.mu.Unlock()
			return w.item, w.wait.History, nil
		}
		s.mu.Unlock()
		if closed {
			return Item[int]{}, History{}, io.EOF
		}
		select {
		case <-ctx.Done():
			return Item[int]{}, History{}, context.Cause(ctx)
		case <-changed:
		case <-time.After(next):
		}
	}
}

// TestWaitStore checks that a waiting item leaves the sender, comes back when it is due and not
// before, and keeps its number of attempts.
func TestWaitStore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const wait = 20 * time.Second
		d, s := newLog[int](t), newMemoryStore()
		var mu sync.Mutex
		tried := map[int][]time.Duration{}
		start := time.Now()
		o := d.options(d.lane("a",
			WorkerFunc[int](func(ctx context.Context, a Attempt[int]) (Report, error) {
				if err := sleep(ctx, 10*time.Millisecond); err != nil {
					return Report{}, err
				}
				mu.Lock()
				defer mu.Unlock()
				tried[a.Value] = append(tried[a.Value], time.Since(start))
				if n := len(tried[a.Value]); a.Number != n {
					t.Errorf("attempt %d of %d says that it is number %d", n, a.Value, a.Number)
				}
				if a.Value%4 == 0 && len(tried[a.Value]) < 3 {
					return Report{}, errors.New("no")
				}
				return Report{}, nil
			})))
		o.Waiting, o.Control.Retry = s, backoff.Fixed(wait)
		o.Released = nil // the Sender releases a waiting item, and later gets it back
		var items []int
		for i := range 400 {
			items = append(items, i)
		}
		runs(t, o, these(values(items...)...))
		for v, at := range tried {
			for i := 1; i < len(at); i++ {
				if gap := at[i] - at[i-1]; gap < wait {
					t.Errorf("item %d was sent again after %v, want at least %v", v, gap, wait)
				}
			}
		}
		if len(d.settled) != len(items) {
			t.Errorf("%d items were settled, want %d", len(d.settled), len(items))
		}
		for v, settled := range d.settled {
			want := 1
			if v%4 == 0 {
				want = 3
			}
			if settled.Attempts != want {
				t.Errorf("item %d was settled by attempt %d, want %d", v, settled.Attempts, want)
			}
		}
		if n, _, _ := s.Held(); n > 0 || s.most < 50 || s.noted < 200 {
			t.Errorf("%d items are left, at most %d were held, %d waits noted; want 0, at least "+
				"50, at least 200", n, s.most, s.noted)
		}
	})
}

// TestWaitStoreBound checks that Control.Waiting counts the items of the store, including those
// that it holds at the start.
func TestWaitStoreBound(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const bound, inFlight = 10, 4
		d, s := newLog[int](t), newMemoryStore()
		s.Take(Item[int]{Value: -1}, Wait{After: time.Minute, History: History{Attempts: 7}})
		o := d.options(d.lane("a",
			WorkerFunc[int](func(_ context.Context, a Attempt[int]) (Report, error) {
				if a.Value < 0 && a.Number != 8 {
					t.Errorf("the item that was held from the start is sent as attempt %d, want 8",
						a.Number)
				}
				if a.Value >= 0 && a.Number == 1 {
					return Report{}, errors.New("no")
				}
				return Report{}, nil
			})))
		o.Lanes[0].Limits.InFlight = inFlight
		o.Released = nil
		o.Waiting, o.Control.Retry = s, backoff.Fixed(30*time.Second)
		o.Control.Waiting = control.Waiting{Cost: bound}
		o.Control.Poison.Failures = -1
		o.Control.Breaker.Failures = -1
		var items []int
		for i := range 100 {
			items = append(items, i)
		}
		runs(t, o, these(values(items...)...))
		if len(d.settled) != 101 {
			t.Errorf("%d items were settled, want 101", len(d.settled))
		}
		if s.most > bound+inFlight || s.most < bound {
			t.Errorf("at most %d items were held at once, want %d to %d", s.most, bound,
				bound+inFlight)
		}
	})
}

// TestWaitStoreCloses checks that Run returns when WaitStore.Next returns io.EOF, and that the
// store keeps its items for the next start.
func TestWaitStoreCloses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, s := newLog[int](t), newMemoryStore()
		o := d.options(d.lane("a",
			WorkerFunc[int](func(_ context.Context, a Attempt[int]) (Report, error) {
				if a.Value == 3 {
					return Report{}, errors.New("no")
				}
				return Report{}, nil
			})))
		o.Waiting, o.Control.Retry = s, backoff.Fixed(time.Hour)
		time.AfterFunc(time.Minute, s.close)
		began := time.Now()
		runs(t, o, these(values(1, 2, 3)...))
		if n, _, _ := s.Held(); n != 1 || time.Since(began) != time.Minute {
			t.Errorf("after %v the store holds %d items, want 1 after %v", time.Since(began), n,
				time.Minute)
		}
	})
}

func runs(t *testing.T, o Options[int], p Producer[int]) {
	t.Helper()
	s, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Run(t.Context(), p); err != nil {
		t.Fatal(err)
	}
}
