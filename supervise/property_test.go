package supervise_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/penstock-io/penstock/backoff"
	"github.com/penstock-io/penstock/supervise"
)

// treeModel is a random tree of supervisors, with the state of each child as derived from events
// and running goroutines.
type treeModel struct {
	t    *testing.T
	seed uint64

	mu    sync.Mutex
	rand  *rand.Rand
	alive map[string]int // incarnations by path
	index map[string]int // place among the siblings
	// events maps each supervisor to its children that run according to its events. It maps the
	// name of each of these children to its place among its siblings.
	events map[string]map[string]int
	starts int
	stuck  int
}

func (w *treeModel) n(n int) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.rand.IntN(n)
}

func (w *treeModel) spec() supervise.Spec {
	s := supervise.Spec{
		Strategy: supervise.Strategy(w.n(3)),
		Backoff: backoff.Exponential(time.Duration(w.n(300)+1)*time.Millisecond, 2,
			5*time.Second).Full(),
		Stagger: time.Duration(w.n(4)-1) * time.Millisecond,
		Rand:    rand.NewPCG(w.seed, uint64(w.n(1000))),
		OnEvent: w.event,
	}
	if w.n(2) == 0 {
		s.Intensity = supervise.Intensity{Max: w.n(8) + 1,
			Within: time.Duration(w.n(20)+1) * time.Second}
	}
	if w.n(4) == 0 {
		s.Decay = &supervise.Decay{Pause: time.Duration(w.n(5000)+1) * time.Millisecond}
	}
	return s
}

// event checks the rules for the events of one supervisor.
func (w *treeModel) event(_ context.Context, e supervise.Event) {
	w.mu.Lock()
	defer w.mu.Unlock()
	alive := w.events[e.Supervisor]
	if alive == nil {
		alive = map[string]int{}
		w.events[e.Supervisor] = alive
	}
	switch e.Kind {
	case supervise.Started:
		w.starts++
		if _, twice := alive[e.Child]; twice {
			w.t.Errorf("seed %d: %s/%s started while it was alive", w.seed, e.Supervisor, e.Child)
		}
		alive[e.Child] = w.index[e.Supervisor+"/"+e.Child]
	case supervise.Ended:
		delete(alive, e.Child)
	case supervise.Stuck:
		w.stuck++
	case supervise.Stopping:
		if errors.Is(e.Err, supervise.ErrRemoved) || e.Supervisor == "root" &&
			errors.Is(e.Err, supervise.ErrRestarting) {
			return // the test's own Remove and Restart take one child
		}
		for name, place := range alive {
			if place > alive[e.Child] {
				w.t.Errorf("seed %d: %s/%s was stopped (%v) before %s", w.seed, e.Supervisor,
					e.Child, e.Err, name)
			}
		}
	}
}

// child makes a random child at path. At most depth levels of children may follow below it.
func (w *treeModel) child(path string, place, depth int) supervise.Child {
	w.mu.Lock()
	w.index[path] = place
	w.mu.Unlock()
	c := supervise.Child{
		Name:    path[strings.LastIndex(path, "/")+1:],
		Restart: supervise.Restart(max(0, w.n(5)-2)), Significant: w.n(25) == 0,
	}
	if depth > 0 && w.n(3) == 0 {
		spec, size := w.spec(), w.n(4)+1
		var below []supervise.Child
		for i := range size {
			below = append(below, w.child(fmt.Sprintf("%s/%d", path, i), i, depth-1))
		}
		if w.n(2) == 0 { // one supervisor, which serves again and again
			sub, err := supervise.New(c.Name, spec, below...)
			if err != nil {
				w.t.Fatal(err)
			}
			c.Service = sub
			return c
		}
		c.New = func() (supervise.Service, error) { return supervise.New(c.Name, spec, below...) }
		return c
	}
	c.Run = func(ctx context.Context) error { return w.live(ctx, path) }
	return c
}

// live is one incarnation of a leaf: it lives for a random time and ends in a random way.
func (w *treeModel) live(ctx context.Context, path string) error {
	w.mu.Lock()
	if w.alive[path]++; w.alive[path] > 1 {
		w.t.Errorf("seed %d: %d incarnations of %s", w.seed, w.alive[path], path)
	}
	life := time.Duration(w.rand.ExpFloat64() * float64(10*time.Second))
	slow := time.Duration(w.rand.IntN(300)) * time.Millisecond
	end := w.rand.IntN(100)
	w.mu.Unlock()
	defer func() {
		w.mu.Lock()
		w.alive[path]--
		w.mu.Unlock()
	}()
	select {
	case <-ctx.Done():
		time.Sleep(slow)
		if end == 0 {
			panic("while it stops")
		}
		return context.Cause(ctx)
	case <-time.After(life):
	}
	switch {
	case end < 20:
		return nil
	case end < 30:
		panic("x")
	case end < 40:
		runtime.Goexit()
	case end < 44:
		return supervise.ErrStop
	case end < 48:
		return fmt.Errorf("%w: of no use", supervise.ErrEscalate)
	}
	return errCrash
}

// disturb adds, removes and restarts random children of the root for a while.
func (w *treeModel) disturb(ctx context.Context, root *supervise.Supervisor, children int) {
	for place := children; ctx.Err() == nil; place++ {
		time.Sleep(time.Duration(w.n(20_000)) * time.Millisecond)
		name := fmt.Sprint(w.n(place))
		switch w.n(4) {
		case 0:
			_ = root.Add(w.child(fmt.Sprintf("root/%d", place), place, 1)) // it may have ended
		case 1:
			short, cancel := context.WithTimeout(ctx, time.Duration(w.n(200))*time.Millisecond)
			_ = root.Remove(short, name)
			cancel()
		default:
			_ = root.Restart(name)
		}
		if text := root.Status().String(); !strings.HasPrefix(text, "root") {
			w.t.Errorf("status %q", text)
		}
	}
}

// TestRandomTrees checks random trees with random crashes. A child never has two incarnations, and
// children stop in reverse order. No goroutine is left when Serve has returned: synctest fails
// otherwise, and the test also counts goroutines.
func TestRandomTrees(t *testing.T) {
	starts, escalated, before := 0, 0, runtime.NumGoroutine()
	seeds := uint64(400)
	if testing.Short() {
		seeds = 60
	}
	for seed := range seeds {
		synctest.Test(t, func(t *testing.T) {
			w := &treeModel{
				t: t, seed: seed, rand: rand.New(rand.NewPCG(seed, 7)), alive: map[string]int{},
				index:  map[string]int{},
				events: map[string]map[string]int{},
			}
			var children []supervise.Child
			for i := range w.n(5) + 1 {
				children = append(children, w.child(fmt.Sprintf("root/%d", i), i, 2))
			}
			root, err := supervise.New("root", w.spec(), children...)
			if err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithTimeoutCause(t.Context(),
				time.Duration(w.n(600))*time.Second, supervise.ErrStopped)
			defer cancel()
			var wg sync.WaitGroup
			wg.Go(func() { w.disturb(ctx, root, len(children)) })
			err = root.Serve(ctx)
			for path, n := range w.alive {
				if n != 0 {
					t.Errorf("seed %d: %d incarnations of %s after Serve", seed, n, path)
				}
			}
			if _, ok := errors.AsType[*supervise.EscalatedError](err); ok {
				escalated++
			}
			if w.stuck > 0 {
				t.Errorf("seed %d: %d children were reported stuck; all stop within 300 ms", seed,
					w.stuck)
			}
			for path, alive := range w.events {
				if len(alive) > 0 {
					t.Errorf("seed %d: by the events of %s there still run %v", seed, path, alive)
				}
			}
			cancel()
			wg.Wait()
			starts += w.starts
		})
		if t.Failed() {
			return
		}
	}
	t.Logf("%d starts, %d of %d trees escalated to the root", starts, escalated, seeds)
	if starts < int(seeds)*20 || escalated == 0 || escalated == int(seeds) {
		t.Errorf("%d starts and %d escalations: the trees are too tame, or too wild, to show "+
			"anything", starts, escalated)
	}
	if after := runtime.NumGoroutine(); after > before+2 { // the test framework's own come and go
		t.Errorf("%d goroutines before, %d after", before, after)
	}
}
