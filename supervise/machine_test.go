package supervise

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/penstock-io/penstock/backoff"
)

// TestIntensityAgainstAList compares the ring with a list of all restarts.
func TestIntensityAgainstAList(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for range 200 {
		limit := Intensity{Max: r.IntN(6) + 1, Within: time.Duration(r.IntN(50) + 1)}
		ring, now := recent{Intensity: limit}, time.Duration(0)
		var all []time.Duration
		for range 200 {
			now += time.Duration(r.IntN(15))
			all = append(all, now)
			within := 0
			for _, at := range all {
				if now-at <= limit.Within {
					within++
				}
			}
			if got := ring.allow(now); got != (within <= limit.Max) {
				t.Fatalf("%+v at %d: allow = %v after %v", limit, now, got, all)
			}
		}
	}
}

// negative is a policy with negative delays, as some of package compat have.
type negative struct{}

func (negative) Next(s backoff.State, _ rand.Source) (time.Duration, backoff.State, bool) {
	return -time.Hour, s.After(-time.Hour), true
}

func (negative) Bounds(int) (lowest, mean, highest time.Duration) {
	return -time.Hour, -time.Hour, -time.Hour
}

// TestNegativeDelay checks that a child is restarted at once if its policy has a negative delay, and
// that the policy starts over when the child has run.
func TestNegativeDelay(t *testing.T) {
	early := backoff.Limit(negative{}, 3)
	m := newMachine("m", mustSpec(t, Spec{Backoff: early, Stagger: -1}))
	if err := m.add(0, idleChild("a")); err != nil {
		t.Fatal(err)
	}
	m.begin(0)
	for i := range 5 {
		now := time.Duration(i) * time.Second
		m.ended(now, m.first, errBroken)
		m.tick(now)
		if m.first.state != Running {
			t.Fatalf("at %v the child is %v, want running", now, m.first.state)
		}
	}
}

// TestStaggerOfACrowd checks that all gaps between restarts shrink equally if so many children wait
// that the usual gaps would exceed Spread.
func TestStaggerOfACrowd(t *testing.T) {
	m := newMachine("m",
		mustSpec(t, Spec{Backoff: backoff.Fixed(0), Stagger: time.Second,
			Spread: 10 * time.Second}))
	for i := range 101 {
		if err := m.add(0, idleChild(fmt.Sprint(i))); err != nil {
			t.Fatal(err)
		}
	}
	m.begin(0)
	for c := m.first; c != nil; c = c.next {
		m.ended(0, c, errBroken)
	}
	m.take()
	gap := 10 * time.Second / 101
	for i := range 101 {
		at := m.wake()
		if want := time.Duration(i) * gap; at != want {
			t.Fatalf("restart %d at %v, want %v", i, at, want)
		}
		m.tick(at)
		if n := len(m.take()); n != 2 { // a start and its event
			t.Fatalf("restart %d: %d commands", i, n)
		}
	}
	if m.crowd != 0 {
		t.Errorf("the crowd is still %d", m.crowd)
	}
	// A late supervisor makes up for catchUp missed restarts at once, and for no more.
	for c := m.first; c != nil; c = c.next {
		m.ended(20*time.Second, c, errBroken)
	}
	m.take()
	m.tick(25 * time.Second)
	if n := len(m.take()) / 2; n != catchUp+1 {
		t.Errorf("%d restarts at once after a delay, want %d", n, catchUp+1)
	}
}

func mustSpec(t testing.TB, s Spec) Spec {
	t.Helper()
	s, err := s.withDefaults()
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func idleChild(name string) Child {
	return Child{Name: name, New: func() (Service, error) { return nil, nil }}
}

// FuzzMachine reads the settings and the steps of a machine from bytes, and checks the invariants
// after every step. A child is alive at most once. It is told to stop only while it runs and after
// the children that were added after it have ended, except for Remove, Restart and an overdue
// shutdown. The machine is over when all children have returned or are stuck.
func FuzzMachine(f *testing.F) {
	f.Add([]byte{0, 3, 0x10, 0x21, 0x90, 0x12, 0x33, 0x91, 0x50})
	f.Add([]byte{1, 4, 0x10, 0x11, 0x92, 0x20, 0x93, 0x40, 0x10, 0x70, 0x99, 0x60})
	f.Add([]byte{2, 5, 0x12, 0x9f, 0x9f, 0x13, 0x50, 0x9f, 0x9f, 0x9f})
	f.Add([]byte{5, 2, 0x10, 0x80, 0x10, 0x80, 0x10, 0x80, 0x9f, 0x10})
	f.Fuzz(fuzzOne)
}

func fuzzOne(t *testing.T, in []byte) {
	if len(in) < 2 {
		return
	}
	spec := Spec{
		Strategy: Strategy(in[0] % 3), Backoff: backoff.Exponential(time.Second, 2, time.Minute),
		Intensity: Intensity{3, 10 * time.Second},
		Shutdown:  20 * time.Second, Rand: rand.NewPCG(1, 1),
	}
	if in[0]&4 != 0 {
		spec.Decay = &Decay{}
	}
	d := &driven{t: t, m: newMachine("m", mustSpec(t, spec)), alive: map[*child]bool{}}
	for i := range in[1]%8 + 1 {
		c := idleChild(fmt.Sprint(i))
		c.Restart = Restart(i % 3)
		if err := d.m.add(0, c); err != nil {
			t.Fatal(err)
		}
	}
	d.m.begin(0)
	d.carryOut()
	for _, b := range in[2:] {
		d.step(b)
		d.carryOut()
	}
	d.end()
}

// driven is a machine that a test drives, together with the states of its children. The test
// derives these states from the commands of the machine.
type driven struct {
	t     *testing.T
	m     *machine
	now   time.Duration
	alive map[*child]bool
	added int
}

// pick returns the nth live child in the machine's order.
func (d *driven) pick(n int) *child {
	var list []*child
	for c := d.m.first; c != nil; c = c.next {
		if d.alive[c] {
			list = append(list, c)
		}
	}
	if len(list) == 0 {
		return nil
	}
	return list[n%len(list)]
}

func (d *driven) step(b byte) {
	n := int(b & 15)
	errs := map[byte]error{1: errBroken, 2: nil, 3: ErrStop, 4: fmt.Errorf("x: %w", ErrEscalate)}
	switch op := b >> 4; op {
	case 1, 2, 3, 4: // a child ends
		if c := d.pick(n); c != nil {
			delete(d.alive, c)
			d.m.ended(d.now, c, errs[op])
		}
	case 5:
		d.m.stop(d.now, ErrStopped, ErrStopped)
	case 6:
		d.added++
		_ = d.m.add(d.now, idleChild(fmt.Sprint("added", d.added))) // refused at the end
	case 7:
		_ = d.m.remove(d.now, fmt.Sprint(n)) // there may be none
	case 8:
		_ = d.m.restart(d.now, fmt.Sprint(n))
	default: // time passes, to the next thing that is due or a little
		if at := d.m.wake(); at != never && n&1 == 1 {
			d.now = max(d.now, at)
		} else {
			d.now += time.Duration(n) * 300 * time.Millisecond
		}
	}
	d.m.tick(d.now)
}

func (d *driven) carryOut() {
	for _, c := range d.m.take() {
		switch c.kind {
		case commandStart:
			if d.alive[c.child] {
				d.t.Fatalf("a second incarnation of %s", c.child.Name)
			}
			d.alive[c.child] = true
		case commandCancel:
			if !d.alive[c.child] {
				d.t.Fatalf("%s is told to stop and is not alive", c.child.Name)
			}
			if c.cause == ErrRemoved || c.child.afterEnd == thenRestart || d.m.overdue {
				continue
			}
			for x := c.child.next; x != nil; x = x.next {
				if d.alive[x] && x.state != Hanging {
					d.t.Fatalf("%s is told to stop before %s, which is %v", c.child.Name, x.Name,
						x.state)
				}
			}
		}
	}
	if at := d.m.wake(); at <= d.now && d.m.phase < over {
		d.t.Fatalf("at %v it wants to be called at %v: it would spin", d.now, at)
	}
}

// end stops the machine. At first no child returns, so that some count as stuck. Then all return.
func (d *driven) end() {
	d.m.stop(d.now, ErrStopped, ErrStopped)
	d.carryOut()
	for steps := 0; d.m.phase != over; steps++ {
		at := d.m.wake()
		if at == never || steps > 1000 {
			d.t.Fatalf("it never ends: %d alive", d.m.alive)
		}
		d.now = max(d.now, at)
		d.m.tick(d.now)
		d.carryOut()
	}
	for c := range d.alive {
		d.m.ended(d.now, c, nil)
	}
	if d.m.alive != 0 || len(d.m.waits) > 0 || len(d.m.stops) > 0 {
		d.t.Fatalf("at the end: %d alive, %d waiting, %d stopping", d.m.alive, len(d.m.waits),
			len(d.m.stops))
	}
}
