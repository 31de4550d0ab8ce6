package flow

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"runtime"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/penstock-io/penstock/flow/control"
	"github.com/penstock-io/penstock/flow/dispatch"
	"github.com/penstock-io/penstock/flow/window"
)

// stretch is the value of the fuzzer's items: the range of records from lo to hi-1. After Released
// the fuzzer reuses and overwrites its memory, so the worker or the race detector finds a read that
// comes too late.
type stretch struct{ lo, hi int }

// fuzzRun is one run of the fuzzer. Everything in it is determined by the seed and the caller,
// never by the time.
type fuzzRun struct {
	t       *testing.T
	seed    uint64
	records int
	keyed   bool
	bounded bool // by Replay: settled items must be saved
	mortal  bool // items that kill workers are dead-lettered

	mu           sync.Mutex
	pool         []*stretch
	held         map[*stretch]bool
	made         int
	released     int
	settled      []int // number of settles, by record
	deadLettered []int
	flying       map[int]int // by key
	tries        map[[2]int]int
	deaths       map[[2]int]int // of workers, by the stretch that killed them
	deadly       map[int]bool   // records that were dead-lettered because workers died of them
}

// draw returns a random generator that depends only on the seed and the numbers in about.
func (w *fuzzRun) draw(about ...int) *rand.Rand {
	h := w.seed
	for _, a := range about {
		h = (h ^ uint64(a)) * 0x9e3779b97f4a7c15
		h ^= h >> 29
	}
	return rand.New(rand.NewPCG(h, w.seed))
}

// bad reports whether a record is refused, always and by every worker.
func (w *fuzzRun) bad(record int) bool { return w.draw(1, record).IntN(25) == 0 }

func (w *fuzzRun) anyBad(lo, hi int) bool {
	for r := lo; r < hi; r++ {
		if w.bad(r) {
			return true
		}
	}
	return false
}

func (w *fuzzRun) item(lo, hi int) Item[*stretch] {
	w.mu.Lock()
	defer w.mu.Unlock()
	s := new(stretch)
	if n := len(w.pool); n > 0 {
		s = w.pool[n-1]
		w.pool = w.pool[:n-1]
	}
	s.lo, s.hi = lo, hi
	w.made++
	w.held[s] = true
	it := Item[*stretch]{Value: s, Cost: float64(hi - lo), Bytes: int64(hi-lo) * 10}
	if w.keyed {
		it.Keys = []string{fmt.Sprint(w.key(lo))}
	}
	return it
}

// key returns the key of a record. All records of one offered item have the same key.
func (w *fuzzRun) key(record int) int { return record / 16 % 3 }

func (w *fuzzRun) Next(ctx context.Context) (Item[*stretch], error) {
	w.mu.Lock()
	lo := w.records
	hi := lo + 1 + w.draw(2, lo).IntN(16-lo%16)
	w.records = min(hi, len(w.settled))
	hi = w.records
	w.mu.Unlock()
	if lo == hi {
		return Item[*stretch]{}, io.EOF
	}
	if err := sleep(ctx, time.Duration(w.draw(3, lo).IntN(40))*time.Millisecond); err != nil {
		return Item[*stretch]{}, err
	}
	return w.item(lo, hi), nil
}

func (w *fuzzRun) Settled(it Item[*stretch], s Settlement) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for r := it.Value.lo; r < it.Value.hi; r++ {
		if w.settled[r]++; w.settled[r] > 1 {
			w.t.Errorf("record %d settled %d times", r, w.settled[r])
		}
		if s.DeadLettered {
			w.deadLettered[r]++
		}
	}
}

func (w *fuzzRun) Released(it Item[*stretch]) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.held[it.Value] {
		w.t.Errorf("released what is not held: %v", *it.Value)
	}
	delete(w.held, it.Value)
	w.released++
	*it.Value = stretch{-1, -1 << 30}
	w.pool = append(w.pool, it.Value)
}

func (w *fuzzRun) bisect(it Item[*stretch], _ error) []Item[*stretch] {
	lo, hi := it.Value.lo, it.Value.hi
	if hi-lo < 2 {
		return nil
	}
	mid := (lo + hi) / 2
	return []Item[*stretch]{w.item(lo, mid), w.item(mid, hi)}
}

// worker returns a worker that misbehaves in every permitted way: it is slow, fails, panics, hangs,
// throttles, refuses, splits, and delivers after its context has ended. From the eighth attempt of
// the same records (a stretch) on, it behaves well.
func (w *fuzzRun) worker(lane int) WorkerFunc[*stretch] {
	return func(ctx context.Context, a Attempt[*stretch]) (Report, error) {
		lo, hi := a.Value.lo, a.Value.hi
		if w.keyed {
			w.fly(lo, 1)
			defer w.fly(lo, -1)
		}
		defer func() {
			if a.Value.lo != lo || a.Value.hi != hi {
				w.t.Errorf("seed %d: attempt %d reads [%d, %d), which was [%d, %d)", w.seed,
					a.Number, a.Value.lo, a.Value.hi, lo, hi)
			}
		}()
		try := w.try(lo, hi)
		rnd := w.draw(4, lane, lo, hi, try)
		deaf := rnd.IntN(4) == 0
		wait := time.Duration(rnd.IntN(1500)) * time.Millisecond
		if rnd.IntN(8) > 0 {
			wait /= 20
		}
		if deaf {
			time.Sleep(wait)
		} else if err := sleep(ctx, wait); err != nil {
			return Report{}, err
		}
		if try < 8 {
			switch rnd.IntN(16) {
			case 0, 1:
				return Report{}, errors.New("reset by peer")
			case 2:
				return Report{}, fmt.Errorf("%w",
					&Throttled{After: time.Duration(rnd.IntN(2000)-200) * time.Millisecond})
			case 3:
				w.die(lo, hi)
				panic("worker")
			case 4:
				w.die(lo, hi)
				runtime.Goexit()
			case 5:
				<-ctx.Done()
				return Report{}, context.Cause(ctx)
			case 6:
				return Report{}, errors.Join(errors.New("401"), &Misconfigured{Err: errRefused})
			case 7:
				return Report{}, &Split[*stretch]{Err: errRefused} // accounts for nothing
			case 8, 9, 10:
				return Report{}, w.split(rnd, lo, hi)
			}
		}
		if w.anyBad(lo, hi) {
			return Report{}, fmt.Errorf("post: %w", &Rejected{Err: errRefused})
		}
		return Report{}, nil
	}
}

// try counts an attempt of an item with exactly the records from lo to hi-1, and returns the number
// of such attempts so far.
func (w *fuzzRun) try(lo, hi int) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.tries[[2]int{lo, hi}]++
	return w.tries[[2]int{lo, hi}]
}

func (w *fuzzRun) fly(lo, delta int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	key := w.key(lo)
	if w.flying[key] += delta; w.flying[key] > 1 {
		w.t.Errorf("seed %d: %d items of key %d in flight", w.seed, w.flying[key], key)
	}
}

// die counts a death of a worker that tried to deliver a stretch.
func (w *fuzzRun) die(lo, hi int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.deaths[[2]int{lo, hi}]++
}

// mayDeadLetter reports whether the records from lo to hi-1 may be dead-lettered with this refusal:
// a worker has refused them and one of them is bad, or there is only one record and it has killed
// three workers.
func (w *fuzzRun) mayDeadLetter(lo, hi int, refusal error) bool {
	if errors.Is(refusal, errRefused) && w.anyBad(lo, hi) {
		return true
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.mortal || hi-lo != 1 || w.deaths[[2]int{lo, hi}] < 3 {
		return false
	}
	w.deadly[lo] = true
	return true
}

// split returns a Split of the records from lo to hi-1: it refuses bad records, delivers the others
// up to a random point and leaves the rest.
func (w *fuzzRun) split(rnd *rand.Rand, lo, hi int) error {
	s := &Split[*stretch]{Err: errRefused}
	done := lo + rnd.IntN(hi-lo+1)
	for r := lo; r < hi; r++ {
		switch it := w.item(r, r+1); {
		case w.bad(r):
			s.Refused = append(s.Refused, it)
		case r < done:
			s.Done = append(s.Done, it)
		default:
			s.Rest = append(s.Rest, it)
		}
	}
	if n := len(s.Rest); n > 0 && rnd.IntN(3) == 0 {
		s.Died = 1 + rnd.IntN(n)
		w.die(s.Rest[s.Died-1].Value.lo, s.Rest[s.Died-1].Value.hi)
	}
	return s
}

// lanes draws the nth list of lanes.
func (w *fuzzRun) lanes(n int) []Lane[*stretch] {
	rnd := w.draw(5, n)
	var list []Lane[*stretch]
	for i := range 6 {
		if n < 0 || rnd.IntN(2) == 0 {
			list = append(list,
				Lane[*stretch]{Name: fmt.Sprint("w", i), Worker: w.worker(i),
					Limits: Limits{InFlight: rnd.IntN(4)}})
		}
	}
	return list
}

func (w *fuzzRun) options() Options[*stretch] {
	rnd := w.draw(6)
	perAck := window.Linear{Step: window.PerAck, Threshold: time.Second}
	o := Options[*stretch]{
		AwaitRepair: true,
		Lanes:       w.lanes(0), Bisect: w.bisect, Settled: w.Settled, Released: w.Released,
		Abandon:  20 * time.Second,
		MaxBytes: []int64{0, 100, 1000, -1}[rnd.IntN(4)],
		Control: control.Config{
			Seed: w.seed,
			Window: []window.Algorithm{window.Linear{}, perAck,
				window.Fixed{Size: 3}}[rnd.IntN(3)],
			Dispatch: []dispatch.Policy{dispatch.LeastCompletion{}, dispatch.RoundRobin{},
				dispatch.Hash{}}[rnd.IntN(3)],
			Timeout: []time.Duration{0, 300 * time.Millisecond, 5 * time.Second, -1}[rnd.IntN(4)],
		},
	}
	if w.bounded {
		o.Control.Replay = 500
	}
	if w.mortal = rnd.IntN(2) == 0; !w.mortal {
		o.Control.Poison.Deaths = -1
	}
	o.DeadLetter = func(ctx context.Context, it Item[*stretch], refusal error) error {
		if !w.mayDeadLetter(it.Value.lo, it.Value.hi, refusal) {
			w.t.Errorf("seed %d: [%d, %d) is to be dead-lettered for %v", w.seed, it.Value.lo,
				it.Value.hi,
				refusal)
		}
		return sleep(ctx, 5*time.Millisecond)
	}
	return o
}

// live runs the fuzzer's run of this seed, and checks that every item was settled and released as
// promised. If stop is above 0, it stops the run at that time.
func live(t *testing.T, seed uint64, records int, stop time.Duration) {
	w := &fuzzRun{t: t, seed: seed, settled: make([]int, records),
		deadLettered: make([]int, records)}
	w.held, w.flying, w.tries = make(map[*stretch]bool), make(map[int]int), make(map[[2]int]int)
	w.deaths, w.deadly = make(map[[2]int]int), make(map[int]bool)
	w.keyed, w.bounded = w.draw(7).IntN(3) == 0, w.draw(8).IntN(3) == 0
	o := w.options()
	var s *Sender[*stretch]
	if w.bounded {
		o.Settled = func(it Item[*stretch], st Settlement) {
			w.Settled(it, st)
			n := it.Bytes
			time.AfterFunc(100*time.Millisecond, func() { s.Saved(n) })
		}
	}
	s = mustSender(t, o)
	ctx, cancel := context.WithCancelCause(t.Context())
	defer cancel(nil)
	for n := 1; n <= 12; n++ {
		time.AfterFunc(time.Duration(n)*700*time.Millisecond, func() {
			list := w.lanes(n)
			if n == 12 {
				list = w.lanes(-1)
			}
			if err := s.SetLanes(list); err != nil {
				t.Error(err)
			}
			if st, names := s.Status(); len(st.Lanes) > len(names) {
				t.Errorf("seed %d: %d lanes and %d names", seed, len(st.Lanes), len(names))
			}
		})
	}
	stopped := errors.New("stopped")
	if stop > 0 {
		time.AfterFunc(stop, func() { cancel(stopped) })
	}
	err := s.Run(ctx, w)
	switch {
	case stop > 0 && err == stopped:
		w.books(false)
	case err != nil:
		t.Errorf("seed %d: Run: %v", seed, err)
	default:
		w.books(true)
	}
}

func (w *fuzzRun) books(whole bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for r, n := range w.settled {
		if whole && n != 1 {
			w.t.Errorf("seed %d: record %d settled %d times, want once", w.seed, r, n)
		}
		if bad := w.bad(r); n > 0 && (w.deadLettered[r] > 0) != (bad || w.deadly[r]) {
			w.t.Errorf("seed %d: record %d was dead-lettered %d times, bad is %v", w.seed, r,
				w.deadLettered[r],
				bad)
		}
	}
	if len(w.held) > 0 || w.made != w.released {
		w.t.Errorf("seed %d: %d items made, %d released, %d held", w.seed, w.made, w.released,
			len(w.held))
	}
}

func TestConformance(t *testing.T) {
	for seed := range uint64(24) {
		stop := time.Duration(0)
		if seed%4 == 3 {
			stop = time.Duration(seed*173) * time.Millisecond
		}
		t.Run(fmt.Sprint("seed", seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { live(t, seed, 250, stop) })
		})
	}
}

func FuzzConformance(f *testing.F) {
	for seed := range uint64(8) {
		f.Add(seed, uint16(100+40*seed), uint16(seed*1000))
	}
	f.Fuzz(func(t *testing.T, seed uint64, records, stopMS uint16) {
		synctest.Test(t, func(t *testing.T) {
			live(t, seed, int(records)%500, time.Duration(stopMS/2)*time.Millisecond)
		})
	})
}
