package cluster

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"
)

// store is a key with compare-and-set. While it is down it carries out no request.
type store struct {
	entry Entry
	down  bool
	takes []uint64 // epochs, in order
}

func (s *store) write(c Command) (Result, uint64) {
	matches := s.entry.Found && c.Revision == s.entry.Revision
	if c.Kind == Create && s.entry.Found || c.Kind == Update && !matches {
		return Conflict, 0
	}
	if c.Value.Owner != "" && (!s.entry.Found || c.Value.Owner != s.entry.Value.Owner) {
		s.takes = append(s.takes, c.Value.Epoch)
	}
	s.entry = Entry{Found: true, Revision: s.entry.Revision + 1, Value: c.Value}
	return Done, s.entry.Revision
}

// peer is a process in virtual time. Its requests take effect at one time, and their responses
// arrive at a later time.
type peer struct {
	l                 *Lease
	clock             float64 // speed
	dead              bool
	suspended         time.Duration // until
	cut               time.Duration // no request arrives before this time
	busy              bool
	command           Command
	effect, answer    time.Duration
	done, losesAnswer bool
	result            Result
	entry             Entry
	revision          uint64
}

func (p *peer) now(t time.Duration) time.Duration { return time.Duration(float64(t) * p.clock) }

// fixture simulates a lease and the processes that want it. A step of the simulation is 10 ms.
type fixture struct {
	t     *testing.T
	rnd   *rand.Rand
	now   time.Duration
	store store
	peers []*peer
	late  []Command // requests without an answer that are carried out later
	loss  float64   // share of requests without an answer
	owned time.Duration
}

const tick = 10 * time.Millisecond

func newFixture(t *testing.T, seed uint64, peers int) *fixture {
	w := &fixture{t: t, rnd: rand.New(rand.NewPCG(seed, 1))}
	for i := range peers {
		w.peers = append(w.peers, &peer{
			l: NewLease(fmt.Sprint("p", i)), clock: 0.97 + 0.06*w.rnd.Float64(),
		})
	}
	return w
}

func (w *fixture) step() {
	w.now += tick
	if len(w.late) > 0 && !w.store.down && w.rnd.IntN(50) == 0 {
		w.store.write(w.late[0])
		w.late = w.late[1:]
	}
	owners := 0
	for _, p := range w.peers {
		if p.dead || w.now < p.suspended {
			continue
		}
		w.stepPeer(p)
		if p.l.Owns(p.now(w.now)) {
			owners++
		}
	}
	if owners > 1 {
		w.t.Fatalf("at %v %d processes own the lease", w.now, owners)
	}
	if owners == 1 {
		w.owned += tick
	}
}

// stepPeer lets a process send a request, or receive its answer.
func (w *fixture) stepPeer(p *peer) {
	if !p.busy {
		if p.command = p.l.Next(p.now(w.now)); p.command.Kind == Wait {
			return
		}
		p.busy, p.done = true, false
		p.effect = w.now + time.Duration(w.rnd.IntN(100))*time.Millisecond
		p.answer = p.effect + time.Duration(w.rnd.IntN(100))*time.Millisecond
		p.losesAnswer = w.rnd.Float64() < w.loss
	}
	if !p.done && w.now >= p.effect {
		p.done, p.result, p.entry, p.revision = true, Unknown, Entry{}, 0
		switch {
		case w.store.down, w.now < p.cut, p.losesAnswer:
			if p.answer = w.now + time.Second; p.command.Kind != Read && w.rnd.IntN(2) == 0 {
				w.late = append(w.late, p.command)
			}
		case p.command.Kind == Read:
			p.result, p.entry = Done, w.store.entry
		default:
			p.result, p.revision = w.store.write(p.command)
		}
	}
	if p.done && w.now >= p.answer {
		p.busy = false
		if p.command.Kind == Read {
			p.l.ReadDone(p.now(w.now), p.result, p.entry)
		} else {
			p.l.Wrote(p.result, p.revision)
		}
	}
}

func (w *fixture) run(d time.Duration) {
	for end := w.now + d; w.now < end; {
		w.step()
	}
}

// owner returns the index of the process that owns the lease; -1 if none does.
func (w *fixture) owner() int {
	for i, p := range w.peers {
		if !p.dead && p.l.Owns(p.now(w.now)) {
			return i
		}
	}
	return -1
}

func (w *fixture) checkEpochs() {
	w.t.Helper()
	for i := 1; i < len(w.store.takes); i++ {
		if w.store.takes[i] <= w.store.takes[i-1] {
			w.t.Fatalf("the epochs are %v", w.store.takes)
		}
	}
}

// TestLeaseModel checks that two processes never own the lease at the same time. Requests and
// responses are lost or late. Processes die, are suspended and return. The network is cut for one
// or all of them.
func TestLeaseModel(t *testing.T) {
	for seed := range uint64(150) {
		w := newFixture(t, seed, 3)
		w.loss = float64(seed%4) * 0.1
		for round := range 40 {
			p := w.peers[w.rnd.IntN(len(w.peers))]
			switch w.rnd.IntN(8) {
			case 6, 7:
				p.cut = w.now + time.Duration(w.rnd.IntN(30_000))*time.Millisecond
			case 0:
				p.suspended = w.now + time.Duration(w.rnd.IntN(20_000))*time.Millisecond
			case 1:
				*p = peer{l: NewLease(fmt.Sprint("restarted", w.now, round)), clock: p.clock} // kill, restart
			case 2:
				w.store.down = true
			case 3, 4, 5:
				w.store.down = false
			}
			w.run(time.Duration(w.rnd.IntN(10_000)) * time.Millisecond)
		}
		w.store.down, w.loss = false, 0
		w.run(30 * time.Second) // the last cut ends
		w.run(30 * time.Second)
		if w.owner() < 0 {
			t.Fatalf("seed %d: nobody owns the lease in the end", seed)
		}
		w.checkEpochs()
	}
}

// TestLeaseTakeover checks that another process takes over a dead owner's lease after about 9 s.
// It must first see the lease unchanged for 8 s, without the time that its requests take. In this
// test the requests take up to 200 ms of each second.
func TestLeaseTakeover(t *testing.T) {
	var took []time.Duration
	for seed := range uint64(51) {
		w := newFixture(t, seed, 3)
		w.run(5*time.Second + time.Duration(w.rnd.IntN(1000))*time.Millisecond)
		first := w.owner()
		if first < 0 {
			t.Fatal("nobody owns the lease")
		}
		w.peers[first].dead = true
		killed := w.now
		for w.owner() < 0 && w.now < killed+time.Minute {
			w.step()
		}
		took = append(took, w.now-killed)
		w.checkEpochs()
	}
	slices.Sort(took)
	least, median, most := took[0], took[len(took)/2], took[len(took)-1]
	t.Logf("least %v, median %v, most %v", least, median, most)
	if least < 7*time.Second || median > 10*time.Second || most > 11*time.Second {
		t.Errorf("takeovers took %v to %v, median %v", least, most, median)
	}
}

// TestLeaseStays checks that the owner keeps its lease while the stream's leader changes and does
// not respond for 15 s.
func TestLeaseStays(t *testing.T) {
	for seed := range uint64(50) {
		w := newFixture(t, seed, 3)
		w.run(5 * time.Second)
		first := w.owner()
		for range 5 {
			w.store.down = true
			w.run(15 * time.Second)
			if w.owner() >= 0 {
				t.Fatalf("seed %d: the owner goes on without renewals", seed)
			}
			w.store.down = false
			w.run(20 * time.Second)
			if w.owner() != first {
				t.Fatalf("seed %d: the owner was %d and is %d", seed, first, w.owner())
			}
		}
		if len(w.store.takes) != 1 {
			t.Fatalf("seed %d: takeovers with the epochs %v", seed, w.store.takes)
		}
	}
}

// TestLeaseRelease checks that a lease that is given back is taken over within two periods.
func TestLeaseRelease(t *testing.T) {
	w := newFixture(t, 1, 2)
	w.run(5 * time.Second)
	first := w.owner()
	for w.peers[first].busy {
		w.step()
	}
	w.store.write(w.peers[first].l.Release())
	w.peers[first].dead = true
	w.run(2 * time.Second)
	if w.owner() != 1-first {
		t.Errorf("the owner is %d", w.owner())
	}
	w.checkEpochs()
}

// TestLeaseTable checks single steps of a Lease.
func TestLeaseTable(t *testing.T) {
	s := func(n float64) time.Duration { return time.Duration(n * float64(time.Second)) }
	other := Entry{Found: true, Revision: 7, Value: Value{Owner: "b", Epoch: 3, Count: 9}}
	l := NewLease("a")
	if c := l.Next(0); c.Kind != Read {
		t.Fatalf("the first command is %v", c)
	}
	l.ReadDone(s(0.1), Done, other)
	if c := l.Next(s(0.5)); c.Kind != Wait || c.At != s(1) {
		t.Fatalf("before its time: %v", c)
	}
	at := s(1)
	for ; ; at += s(1) {
		c := l.Next(at)
		if c.Kind == Update {
			if want := (Value{Owner: "a", Epoch: 8, Count: 1}); c.Value != want || c.Revision != 7 {
				t.Fatalf("the takeover is %v", c)
			}
			break
		}
		l.ReadDone(at+s(0.1), Done, other)
		if c := l.Next(at); c.Kind == Update {
			break
		}
	}
	if at < s(8) || at > s(10) {
		t.Errorf("the takeover is at %v", at)
	}
	l.Wrote(Unknown, 0)
	if l.Owns(at) {
		t.Error("it owns the lease without an answer")
	}
	sent := at
	if at += s(1); l.Next(at).Kind != Read {
		t.Fatal("a write without an answer is not checked")
	}
	l.ReadDone(at, Done, Entry{Found: true, Revision: 8,
		Value: Value{Owner: "a", Epoch: 8, Count: 1}})
	if until, ok := l.OwnedUntil(); !ok || until != sent+s(6) || l.Epoch() != 8 {
		t.Errorf("owned until %v %v, epoch %d; sent at %v", until, ok, l.Epoch(), sent)
	}
	at += s(1)
	if c := l.Next(at); c.Kind != Update || c.Revision != 8 || c.Value != (Value{Owner: "a", Epoch: 8, Count: 2}) {
		t.Errorf("the renewal is %v", c)
	}
	l.Wrote(Conflict, 0)
	if l.Owns(at) {
		t.Error("it owns the lease after a conflict")
	}
	if c := l.Release(); c.Kind != Wait {
		t.Errorf("it gives back %v", c)
	}
}
