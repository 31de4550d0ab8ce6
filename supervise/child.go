package supervise

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"time"

	"github.com/penstock-io/penstock/backoff"
)

// Service is one incarnation of a child: Serve works until ctx ends or it can no longer. The same method as a Service
// of github.com/thejerf/suture/v4, so that what was written for it can be supervised here.
type Service interface {
	Serve(ctx context.Context) error
}

// ServiceFunc makes a Service of a function.
type ServiceFunc func(ctx context.Context) error

// Serve calls f.
func (f ServiceFunc) Serve(ctx context.Context) error { return f(ctx) }

// Restart says which ends of a child are followed by a new start.
type Restart uint8

// The kinds of children.
const (
	Permanent Restart = iota // always
	Transient                // after a crash (an error, a panic, runtime.Goexit), not after nil
	Temporary                // never; the child leaves the tree when it ends
)

// String returns the name.
func (r Restart) String() string { return nameOf(r, "permanent", "transient", "temporary") }

// MarshalText implements encoding.TextMarshaler.
func (r Restart) MarshalText() ([]byte, error) { return []byte(r.String()), nil }

// Strategy says who is started again when one child is.
type Strategy uint8

// The strategies. In the last two the others are first stopped, in reverse order, each after the one behind it has
// returned; then all start in order.
const (
	OneForOne  Strategy = iota // that child
	OneForAll                  // all children
	RestForOne                 // that child and those that were added after it
)

// String returns the name.
func (s Strategy) String() string { return nameOf(s, "one for one", "one for all", "rest for one") }

// MarshalText implements encoding.TextMarshaler.
func (s Strategy) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

func nameOf[T ~uint8](v T, names ...string) string {
	if int(v) < len(names) {
		return names[v]
	}
	return fmt.Sprintf("unknown (%d)", v)
}

// Child is the recipe of a child. It is copied; what it points at must not change afterwards.
type Child struct {
	// Name is unique among the children of one supervisor, not empty, and has no slash.
	Name string
	// New makes an incarnation, afresh at each start, so that nothing of a broken one is left. It runs on the child's
	// own goroutine; an error or a panic of it is a crash. A *Supervisor is a Service: New(...) in here makes a subtree.
	New func() (Service, error)
	// Run is the short form for a child without a state of its own: exactly one of New and Run is set.
	Run func(ctx context.Context) error

	Restart Restart
	// Backoff is the wait before each restart; nil means Spec.Backoff. When it gives up, the supervisor escalates. Not
	// used where Spec.Decay is set.
	Backoff backoff.Policy
	// StableAfter is how long a child must have run, measured from its start, for its next crash to begin the waits anew.
	// It is judged at that crash, no timer resets anything. 0 means the longest wait of Backoff (10 minutes where that has
	// no end) or twice the last wait, whichever is longer: a child that only just outlives its waits goes on growing them.
	StableAfter time.Duration
	// Shutdown is how long the child may take to return once its context has ended; 0 means 5 s, or for a supervisor
	// what its own children may take. After that it is stuck: reported, and never started a second time beside itself.
	Shutdown time.Duration
	// Significant: when this child ends for good, the supervisor stops the others and returns its error.
	Significant bool
}

// Spec is how a supervisor treats its children. The zero value works: one for one, and no limit but the waits.
type Spec struct {
	Strategy Strategy
	// Intensity escalates to the parent when there are too many restarts; its zero value never does.
	Intensity Intensity
	// Backoff is that of children without one; nil means 100 ms, doubling to 30 s, drawn from the upper half.
	Backoff backoff.Policy
	// Decay, when set, replaces all waits by those of suture: at once, until there are too many, then a pause of all.
	Decay *Decay
	// Stagger is the least time between two restarts, so that children that crash together do not come back together. 0
	// means 1 ms, negative none. First starts do not wait.
	Stagger time.Duration
	// Spread is the longest that the stagger may make a crowd wait: beyond Spread/Stagger waiting children the gaps get
	// shorter. 0 means 20 s.
	Spread time.Duration
	// Shutdown is how long stopping one child after the other may take; then those that are left are stopped together,
	// each within its own Shutdown. 0 means 30 s.
	Shutdown time.Duration
	// OnEvent is called by the goroutine of Serve, in order, with no lock held, and must not block: meanwhile nothing is
	// restarted. It must not wait for this supervisor (Remove, the end of Serve). nil: that of the nearest supervisor
	// above, which then is called by several goroutines.
	OnEvent func(Event)
	// Rand is drawn from by the goroutine of Serve, so two supervisors must not share one that is not safe for concurrent
	// use; nil means a source seeded by the runtime.
	Rand rand.Source
}

// Intensity limits restarts: more than Max within Within, both ends included, is too many. Max 0 means no limit.
type Intensity struct {
	Max    int
	Within time.Duration
}

// The defaults that the zero values above stand for.
const (
	defaultStagger       = time.Millisecond
	defaultSpread        = 20 * time.Second
	defaultShutdown      = 30 * time.Second
	defaultChildShutdown = 5 * time.Second
	endlessStable        = 10 * time.Minute
)

func (s Spec) withDefaults() (Spec, error) {
	if s.Strategy > RestForOne {
		return s, fmt.Errorf("strategy %v: want OneForOne, OneForAll or RestForOne", s.Strategy)
	}
	if s.Intensity.Max < 0 || s.Intensity.Within < 0 || s.Intensity.Max > 0 && s.Intensity.Within == 0 {
		return s, fmt.Errorf("intensity of %d within %v: want a Max of 0 or more and a Within above 0", s.Intensity.Max, s.Intensity.Within)
	}
	if s.Spread < 0 || s.Shutdown < 0 {
		return s, fmt.Errorf("spread %v, shutdown %v: want 0 or more", s.Spread, s.Shutdown)
	}
	if s.Decay != nil {
		d, err := s.Decay.withDefaults()
		if err != nil {
			return s, err
		}
		s.Decay = &d
	}
	if s.Backoff == nil {
		s.Backoff = backoff.Exponential(100*time.Millisecond, 2, 30*time.Second).Equal()
	}
	if err := backoff.Validate(s.Backoff); err != nil {
		return s, fmt.Errorf("backoff: %w", err)
	}
	if s.Rand == nil {
		s.Rand = rand.NewPCG(rand.Uint64(), rand.Uint64())
	}
	s.Stagger = max(0, or(s.Stagger, defaultStagger))
	s.Spread = or(s.Spread, defaultSpread)
	s.Shutdown = or(s.Shutdown, defaultShutdown)
	return s, nil
}

func or(d, instead time.Duration) time.Duration {
	if d == 0 {
		return instead
	}
	return d
}

func (c Child) withDefaults(s Spec) (Child, error) {
	switch {
	case c.Name == "":
		return c, errors.New("a child has no name")
	case hasSlash(c.Name):
		return c, fmt.Errorf("child %q: a slash in a name would look like a path", c.Name)
	case (c.New == nil) == (c.Run == nil):
		return c, fmt.Errorf("child %q: want exactly one of New and Run", c.Name)
	case c.Restart > Temporary:
		return c, fmt.Errorf("child %q: restart %v: want Permanent, Transient or Temporary", c.Name, c.Restart)
	case c.StableAfter < 0 || c.Shutdown < 0:
		return c, fmt.Errorf("child %q: stable after %v, shutdown %v: want 0 or more", c.Name, c.StableAfter, c.Shutdown)
	}
	if c.Backoff == nil {
		c.Backoff = s.Backoff
	}
	if err := backoff.Validate(c.Backoff); err != nil {
		return c, fmt.Errorf("child %q: backoff: %w", c.Name, err)
	}
	if run := c.Run; c.New == nil {
		c.New = func() (Service, error) { return ServiceFunc(run), nil }
	}
	return c, nil
}

func hasSlash(name string) bool {
	for i := range len(name) {
		if name[i] == '/' {
			return true
		}
	}
	return false
}

// longest returns the longest wait that p can give; for a policy that does not tell, or has no end, 10 minutes.
func longest(p backoff.Policy) time.Duration {
	top := time.Duration(0)
	for n := 0; n >= 0 && n < math.MaxInt32; n = stepAfter(n) {
		_, _, highest := backoff.Bounds(p, n)
		top = max(top, highest)
	}
	if top == math.MaxInt64 {
		return endlessStable
	}
	return top
}

// stepAfter visits the first 128 steps, in which tables and limits end, and then powers of two.
func stepAfter(n int) int {
	if n < 128 {
		return n + 1
	}
	return n * 2
}
