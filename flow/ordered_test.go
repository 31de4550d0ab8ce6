package flow

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/penstock-io/penstock/flow/control"
	"github.com/penstock-io/penstock/flow/window"
)

// appender is the worker of an Ordered lane: its Deliver calls run concurrently and take effect in
// the order of Index. After a failed attempt, the rest of its Run fails. appender checks the rules
// on which a file sink relies.
type appender struct {
	t     *testing.T
	fails func(a Attempt[int]) bool

	mu     sync.Mutex
	turn   *sync.Cond
	run    uint32
	place  uint32 // the next to take effect
	broken bool   // an attempt of run has failed
	inside int
	most   int // largest number of concurrent Deliver calls
	runs   int
	log    []int
}

func newAppender(t *testing.T, fails func(Attempt[int]) bool) *appender {
	s := &appender{t: t, fails: fails}
	s.turn = sync.NewCond(&s.mu)
	return s
}

func (s *appender) Deliver(ctx context.Context, a Attempt[int]) (Report, error) {
	s.mu.Lock()
	s.inside++
	s.most = max(s.most, s.inside)
	if a.Run != s.run {
		if s.inside > 1 {
			s.t.Errorf("run %d begins with %d Delivers of run %d still inside", a.Run, s.inside-1,
				s.run)
		}
		if a.Run < s.run {
			s.t.Errorf("run %d comes after run %d", a.Run, s.run)
		}
		s.run, s.place, s.broken = a.Run, 0, false
		s.runs++
	}
	s.mu.Unlock()
	err := sleep(ctx, time.Duration(a.Value*7919%13)*10*time.Millisecond) // the network reorders
	s.mu.Lock()
	defer s.mu.Unlock()
	defer func() {
		s.inside--
		s.turn.Broadcast()
	}()
	for a.Index != s.place {
		s.turn.Wait()
	}
	s.place++
	if s.broken = s.broken || err != nil || s.fails(a); s.broken {
		return Report{}, fmt.Errorf("place %d of run %d is refused", a.Index, a.Run)
	}
	s.log = append(s.log, a.Value)
	return Report{ResumeToken: strconv.Itoa(len(s.log))}, nil
}

// inOrder checks that got has n values, and that the values of each of the keys are in sequence.
func inOrder(t *testing.T, what string, got []int, n, keys int) {
	t.Helper()
	next := make([]int, keys)
	for i := range next {
		next[i] = i
	}
	for _, v := range got {
		if v != next[v%keys] {
			t.Fatalf("order of %s is %v: %d where %d was due", what, got, v, next[v%keys])
		}
		next[v%keys] += keys
	}
	if len(got) != n {
		t.Fatalf("%d %s, want %d", len(got), what, n)
	}
}

func TestOrderedLane(t *testing.T) {
	const n = 150
	for seed := range uint64(6) {
		synctest.Test(t, func(t *testing.T) {
			keys := 1 + int(seed%3)
			rnd := rand.New(rand.NewPCG(seed, 0))
			sink := newAppender(t, func(Attempt[int]) bool { return rnd.IntN(12) == 0 })
			var settled []int
			o := Options[int]{
				Lanes: []Lane[int]{{Name: "file", Worker: sink,
					Limits: Limits{InFlight: 4, Ordered: true}}},
				Control: control.Config{Window: window.Fixed{Size: 8},
					Timeout: 50 * time.Millisecond},
				Settled: func(it Item[int], s Settlement) {
					settled = append(settled, it.Value)
					if s.ResumeToken != strconv.Itoa(len(settled)) || s.Lane != "file" {
						t.Errorf("%d settled as %+v; the file stood at %d after it", it.Value, s,
							len(settled))
					}
				},
			}
			var list []Item[int]
			for v := range n {
				list = append(list, Item[int]{Value: v, Keys: []string{fmt.Sprint("part", v%keys)}})
			}
			mustRun(t, o, these(list...))
			inOrder(t, "effects", sink.log, n, keys)
			inOrder(t, "settles", settled, n, keys)
			if sink.most != 4 || sink.runs < 3 {
				t.Errorf("seed %d: %d Delivers at once, %d runs; want 4 and several", seed,
					sink.most, sink.runs)
			}
		})
	}
}

// TestOrderedLaneFlaps removes an Ordered lane and adds it again while its Deliver calls still run.
// The new lane must wait for them, because both write to the same file.
func TestOrderedLaneFlaps(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sink := newAppender(t, func(Attempt[int]) bool { return false })
		var settled int
		file := Lane[int]{Name: "file", Worker: sink, Limits: Limits{InFlight: 4, Ordered: true}}
		o := Options[int]{Lanes: []Lane[int]{file}, Settled: func(Item[int], Settlement) {
			settled++
		}}
		o.Control.Window = window.Fixed{Size: 4}
		s := mustSender(t, o)
		for i := range 40 {
			time.AfterFunc(time.Duration(i)*53*time.Millisecond, func() {
				list := []Lane[int]{file}
				if i%2 == 0 {
					list = nil
				}
				if err := s.SetLanes(list); err != nil {
					t.Error(err)
				}
			})
		}
		var list []Item[int]
		for n := range 200 {
			list = append(list, Item[int]{Value: n, Keys: []string{"part"}})
		}
		if err := s.Run(t.Context(), these(list...)); err != nil {
			t.Fatal(err)
		}
		inOrder(t, "effects", sink.log, 200, 1)
		if settled != 200 || sink.runs < 2 {
			t.Errorf("%d settled in %d runs, want 200 in several", settled, sink.runs)
		}
	})
}
