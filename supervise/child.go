package supervise

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"time"

	"github.com/penstock-io/penstock/backoff"
)

// Service runs as a child. It has the method of the Service of github.com/thejerf/suture/v4, so
// services written for suture can be children. They must return ErrStop and ErrEscalate instead of
// suture's ErrDoNotRestart and ErrTerminateSupervisorTree.
type Service interface {
	// Serve works until ctx ends or until it fails. It must return soon after ctx has ended.
	Serve(ctx context.Context) error
}

// runFunc adapts Child.Run to Service.
type runFunc func(ctx context.Context) error

func (f runFunc) Serve(ctx context.Context) error { return f(ctx) }

// Restart selects which ends of a child are followed by a restart.
type Restart uint8

// The kinds of children.
const (
	Permanent Restart = iota // restarted after an error, a panic, runtime.Goexit or nil
	// Transient means that the child is restarted after an error, a panic or runtime.Goexit, but
	// not after nil.
	Transient
	Temporary // restarted only by Supervisor.Restart; leaves the supervisor when it ends
)

// String returns the name, such as "permanent".
func (r Restart) String() string { return nameOf(r, "permanent", "transient", "temporary") }

// MarshalText implements encoding.TextMarshaler.
func (r Restart) MarshalText() ([]byte, error) { return []byte(r.String()), nil }

// Strategy selects which children are restarted when one of them is.
type Strategy uint8

// The strategies. OneForAll and RestForOne first stop the other affected children one by one,
// beginning with the child that was added last. They wait for the return of each child before they
// stop the next. Then they start the affected children in the order in which they were added,
// except for Temporary children.
const (
	OneForOne  Strategy = iota // that child
	OneForAll                  // all children that are not done
	RestForOne                 // that child and those added after it that are not done
)

// String returns the name, such as "one for one".
func (s Strategy) String() string { return nameOf(s, "one for one", "one for all", "rest for one") }

// MarshalText implements encoding.TextMarshaler.
func (s Strategy) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

func nameOf[T ~uint8](v T, names ...string) string {
	if int(v) < len(names) {
		return names[v]
	}
	return fmt.Sprintf("unknown (%d)", v)
}

// Child describes a child. New and Add copy it. Exactly one of Run, Service and New is set.
type Child struct {
	// Name is unique among the children of a supervisor and contains no slash. It may be empty if
	// Service is a fmt.Stringer. The name is then the result of String.
	Name string
	// Run is called at each start.
	Run func(ctx context.Context) error
	// Service is the same value for all starts. Its Serve must therefore support several calls, one
	// after the other. A *Supervisor does.
	Service Service
	// New makes a new Service at each start, so that the state of a failed Service cannot affect
	// the next one. It runs on the child's own goroutine. An error or a panic in New is a failure
	// of the child.
	New func() (Service, error)

	Restart Restart
	// Backoff is the delay before each restart. Nil means Spec.Backoff. If the policy gives up
	// after a failure, the supervisor escalates. Backoff is not used if Spec.Decay is set. It is
	// called under the supervisor's lock, so it must not call the supervisor.
	Backoff backoff.Policy
	// StableAfter is the run time after which a failure starts the sequence of delays from the
	// beginning. Example: with a StableAfter of 1 minute, a child that fails after 2 minutes waits
	// as long as after its first failure.
	//
	// Zero means the longest delay of Backoff (or 10 minutes if Backoff has no longest delay), or
	// twice the last delay if that is more.
	StableAfter time.Duration
	// Shutdown bounds the time from the end of the child's context until the child returns. A child
	// that takes longer is stuck: it is reported, and is not started again before it has returned.
	// Zero means 5 s, with one exception: if supervisors or resenders run inside the child, zero
	// means the time that they need to stop their own children.
	Shutdown time.Duration
	// Significant means that the supervisor stops the other children and returns when this child
	// ends by itself and is not restarted.
	Significant bool
}

// Spec configures a Supervisor. The zero value is valid: one for one, without a limit on restarts.
type Spec struct {
	Strategy Strategy
	// Intensity limits the restarts. Zero means no limit.
	Intensity Intensity
	// Backoff is used for children that set none. Nil means 100 ms, doubling to 30 s, with equal
	// jitter. Like Child.Backoff, it must not call the supervisor.
	Backoff backoff.Policy
	// Decay, if not nil, replaces the Backoff of all children by suture's policy.
	Decay *Decay
	// Stagger is the time between two restarts of any children of the supervisor, so that children
	// that fail at the same time do not all restart at the same time. Zero means 1 ms. A negative
	// value means that restarts are not staggered. First starts never are.
	Stagger time.Duration
	// Spread bounds the delay that Stagger adds to a restart. If more than Spread/Stagger children
	// wait, the time between two restarts is shorter than Stagger. Zero means 20 s.
	Spread time.Duration
	// Shutdown bounds the time for stopping the children one by one at the end of Serve. When this
	// time has passed, the remaining children are stopped at the same time, each within its own
	// Shutdown. Zero means 30 s.
	Shutdown time.Duration
	// PassPanics makes a panic in a child crash the process with the original stack, after OnEvent
	// has got the Ended event. A panic in a Group that a child runs crashes the process at once.
	// PassPanics also applies to the supervisors inside this one, but not to the child of a
	// Resender. If it is false, a panic is a failure like an error.
	PassPanics bool
	// OnEvent is called for each event, in order. It runs on the goroutine of Serve and gets
	// Serve's context, which may have ended. It must not block, and must not wait for this
	// supervisor. Nil means the OnEvent of the nearest supervisor above, which may then be called
	// by several goroutines at a time.
	OnEvent func(ctx context.Context, e Event)
	// Rand is the source of jitter, used on the goroutine of Serve. Nil means one with a random
	// seed.
	Rand rand.Source
}

// Intensity limits restarts: the supervisor gives up instead of making more than Max restarts
// within the time Within. If the time between two restarts is exactly Within, both count. If Max is
// 0, there is no limit. Example: Intensity{Max: 3, Within: time.Minute} allows 3 restarts, and
// gives up at a fourth within a minute.
type Intensity struct {
	Max    int
	Within time.Duration
}

// Defaults of Spec and Child.
const (
	defaultStagger       = time.Millisecond
	defaultSpread        = 20 * time.Second
	defaultShutdown      = 30 * time.Second
	defaultChildShutdown = 5 * time.Second
	endlessStable        = 10 * time.Minute // StableAfter if the backoff is unbounded
)

func (s Spec) withDefaults() (Spec, error) {
	if s.Strategy > RestForOne {
		return s, fmt.Errorf("strategy %v: want OneForOne, OneForAll or RestForOne", s.Strategy)
	}
	if i := s.Intensity; i.Max < 0 || i.Within < 0 || i.Max > 0 && i.Within == 0 {
		return s, fmt.Errorf("intensity of %d within %v: want a Max of 0 or more and a Within "+
			"above 0", i.Max, i.Within)
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
	s.Stagger = max(0, cmp.Or(s.Stagger, defaultStagger))
	s.Spread = cmp.Or(s.Spread, defaultSpread)
	s.Shutdown = cmp.Or(s.Shutdown, defaultShutdown)
	return s, nil
}

func (c Child) withDefaults(s Spec) (Child, error) {
	if named, ok := c.Service.(fmt.Stringer); ok && c.Name == "" {
		c.Name = named.String()
	}
	switch {
	case c.Name == "" && c.Service != nil:
		return c, errors.New("a child has no name, and its Service has no String method")
	case c.Name == "":
		return c, errors.New("a child has no name")
	case strings.Contains(c.Name, "/"):
		return c, fmt.Errorf("child %q: a name must not contain a slash, which separates names "+
			"in paths", c.Name)
	case c.waysToStart() != 1:
		return c, fmt.Errorf("child %q: want exactly one of Run, Service and New", c.Name)
	case c.Restart > Temporary:
		return c, fmt.Errorf("child %q: restart %v: want Permanent, Transient or Temporary", c.Name,
			c.Restart)
	case c.StableAfter < 0 || c.Shutdown < 0:
		return c, fmt.Errorf("child %q: stable after %v, shutdown %v: want 0 or more", c.Name,
			c.StableAfter, c.Shutdown)
	}
	if c.Backoff == nil {
		c.Backoff = s.Backoff
	}
	if err := backoff.Validate(c.Backoff); err != nil {
		return c, fmt.Errorf("child %q: backoff: %w", c.Name, err)
	}
	if run := c.Run; run != nil {
		c.Service = runFunc(run)
	}
	if service := c.Service; service != nil {
		c.New = func() (Service, error) { return service, nil }
	}
	return c, nil
}

func (c Child) waysToStart() (n int) {
	for _, set := range []bool{c.Run != nil, c.Service != nil, c.New != nil} {
		if set {
			n++
		}
	}
	return n
}

// longest returns the longest delay that p can give, or 10 minutes if p is unbounded or does not
// report its bound.
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

// stepAfter returns the step that longest checks after step n. The first 128 steps are checked one
// by one, because tables and limits usually end among them. After them, only powers of two are
// checked.
func stepAfter(n int) int {
	if n < 128 {
		return n + 1
	}
	return n * 2
}
