package flow_test

import (
	"fmt"
	"math/rand/v2"
	"runtime/debug"
	"slices"
	"sync"
	"testing"

	"github.com/penstock-io/penstock/flow/ledger"
	"github.com/penstock-io/penstock/internal/testsize"
)

// place is a state from which the search can continue: the state after move v from parent, or, if
// parent is nil, the start of a process.
type place struct {
	parent *place // nil: the process has just started
	v      move
	began  *beginning
}

// beginning is the state that survives a crash.
type beginning struct {
	mark  ledger.Position
	above []ledger.Range
	taken []bool
}

// stateAt returns the state at p. It replays the moves that lead there, since a machine cannot be
// copied.
func stateAt(batches int, hedges bool, p *place) *searched {
	var way []move
	for ; p.parent != nil; p = p.parent {
		way = append(way, p.v)
	}
	s := &searched{batches: batches, hedges: hedges, taken: make([]bool, batches),
		known: len(way) > 0}
	if p.began != nil {
		s.mark, s.above, s.taken, s.crashed = p.began.mark, p.began.above,
			slices.Clone(p.began.taken), true
	}
	s.boot()
	for i, v := range slices.Backward(way) {
		s.known = i > 0
		s.do(v)
	}
	return s
}

// after returns the place after move v from s at place p.
func (s *searched) after(p *place, v move) *place {
	if v.kind == 'c' {
		return &place{v: v,
			began: &beginning{mark: s.mark, above: s.above, taken: slices.Clone(s.taken)}}
	}
	return &place{parent: p, v: v}
}

func (p *place) String() string {
	way := ""
	for ; p.parent != nil; p = p.parent {
		way = fmt.Sprintf("%c%d ", p.v.kind, p.v.id) + way
	}
	if p.began != nil {
		way = fmt.Sprintf("a crash with watermark %d, ranges %v and delivered %v; ",
			p.began.mark.Num, p.began.above, p.began.taken) + way
	}
	return way
}

// tally has the numbers of states that a search has visited.
type tally struct {
	states, ended, hedged int
	all                   bool // the search has visited every state
}

// search visits the states with the given number of batches, up to a maximum number of states
// (most). From each new state it makes one random move, drawn with seed. It tries the other moves
// of the state later, in random order. So if it cannot visit all states, it visits some near the
// beginning of a run and some near its end.
func search(t *testing.T, batches int, hedges bool, most int, seed uint64) (n tally) {
	seen := make(map[string]struct{}, most)
	rnd := rand.New(rand.NewPCG(seed, uint64(batches)))
	rest := []*place{{}}
	for len(rest) > 0 && len(seen) < most {
		i := rnd.IntN(len(rest))
		p := rest[i]
		rest[i] = rest[len(rest)-1]
		rest = rest[:len(rest)-1]
		for s := stateAt(batches, hedges, p); ; {
			if s.broken != "" {
				t.Fatalf("%d batches, after %v: %s", batches, p, s.broken)
			}
			k := s.key()
			if _, old := seen[k]; old {
				break
			}
			seen[k] = struct{}{}
			list := s.moves()
			if s.hedged > 0 {
				n.hedged++
			}
			if len(s.tries) == 0 && !slices.ContainsFunc(list, func(v move) bool {
				return v.kind == 'w'
			}) {
				n.ended++
				if !s.m.Idle() || slices.Contains(s.settled, false) {
					t.Fatalf("%d batches, after %v: nothing is under way and settled are %v",
						batches, p, s.settled)
				}
			}
			if len(list) == 0 {
				break
			}
			on := rnd.IntN(len(list))
			for j, v := range list {
				if j != on {
					rest = append(rest, s.after(p, v))
				}
			}
			p = s.after(p, list[on])
			s.do(list[on])
		}
	}
	n.states, n.all = len(seen), len(rest) == 0
	t.Logf("%d batches, hedges %v: %d states, all of them: %v; in %d everything was settled, in "+
		"%d a hedge had been sent",
		batches, hedges, n.states, n.all, n.ended, n.hedged)
	return n
}

// Minimum numbers of states that the search must visit: of all states, and of those in which a
// batch is or was hedged.
const (
	leastStates = 100_000
	leastHedged = 5_000
)

// TestEveryState visits many states with the function search, and checks in each the rules that the
// type searched has. It does so with a plain machine, and with one that hedges and has a budget of
// one failed retry every 200 ms. Two states are the same if machine, ledger and checkpoint show the
// same state, apart from the time. With one or two batches, the search visits all states. With
// more, go test visits a fifth of the states of make test-full.
func TestEveryState(t *testing.T) {
	if testing.Short() {
		t.Skip("a search of 100,000 states is not short")
	}
	share := testsize.Of(5, 1) // go test visits a fifth of the states of make test-full

	defer debug.SetGCPercent(debug.SetGCPercent(800)) // most states need a new machine
	var mu sync.Mutex
	var sum tally
	t.Run("batches", func(t *testing.T) {
		for i, most := range []int{1_000, 10_000, 20_000, 15_000, 10_000, 10_000} {
			batches := i + 1
			if batches > 2 {
				most /= share
			}
			for _, hedges := range []bool{false, true} {
				t.Run(fmt.Sprintf("%d hedges=%v", batches, hedges), func(t *testing.T) {
					t.Parallel()
					n := search(t, batches, hedges, most, 1)
					if batches < 3 && !n.all {
						t.Errorf("%d states and there are more", n.states)
					}
					mu.Lock()
					defer mu.Unlock()
					sum.states, sum.ended, sum.hedged = sum.states+n.states, sum.ended+n.ended,
						sum.hedged+n.hedged
				})
			}
		}
	})
	t.Logf("%d states visited, in %d of them everything was settled, in %d a hedge had been sent, "+
		"0 violations",
		sum.states, sum.ended, sum.hedged)
	if sum.hedged < leastHedged/share {
		t.Errorf("a hedge had been sent in %d states, want at least %d", sum.hedged,
			leastHedged/share)
	}
	if sum.states < leastStates/share {
		t.Errorf("%d states visited, want at least %d", sum.states, leastStates/share)
	}
}
