// Package tap provides samples of live records for display. Records are sampled at the source,
// after each processor, and at the sink, where the sample has the outcome.
//
// The pipeline offers its batches to a [Route]. Without a subscription an offer costs one atomic
// load. A [Subscription] bounds its samples by rate, size and queue length. A slow reader loses
// samples, which are counted, and never slows down a route.
package tap

import (
	"encoding/json"
	"errors"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"
)

// The bounds of subscriptions.
const (
	maxSubscriptions = 8    // of a process
	maxQueued        = 256  // samples of a subscription
	maxPerOffer      = 3    // samples of one batch at one stage
	MaxRate          = 1000 // samples per second and stage
	MaxText          = 8 << 10
)

// ErrBusy means that the process already has maxSubscriptions.
var ErrBusy = errors.New("this process already has 8 tap clients; end one of them")

// Stage is a point in a route at which records are sampled: the source, a processor or the sink.
type Stage struct {
	Index int    // 0 is the source, -1 the sink, others are processors
	Name  string // of the component
}

// String names the stage: "source", "1:where" or "sink".
func (s Stage) String() string {
	switch {
	case s.Index == 0:
		return "source"
	case s.Index < 0:
		return "sink"
	}
	return strconv.Itoa(s.Index) + ":" + s.Name
}

// Matches reports whether text selects s. An empty text selects every stage. Otherwise text is
// "source", "sink", the number of a processor, its component, or both as in "1:where".
func (s Stage) Matches(text string) bool {
	return text == "" || text == s.String() || s.Index > 0 && (text == strconv.Itoa(s.Index) || text == s.Name)
}

// Sample is one record at one stage.
type Sample struct {
	At    time.Time `json:"at"`
	Route string    `json:"route"`
	Stage string    `json:"stage"`
	ID    string    `json:"id"` // of the record; the same at all stages
	// Outcome is read, kept, dropped, dead or delivered, or the text of an attempt's failure.
	Outcome string          `json:"outcome"`
	Worker  string          `json:"worker,omitempty"`  // at the sink
	Attempt int             `json:"attempt,omitempty"` // at the sink
	Reason  string          `json:"reason,omitempty"`
	Record  json.RawMessage `json:"record,omitempty"` // the record as JSON
	// Truncated is the beginning of a record that is larger than 8 KiB. Record is then empty.
	Truncated string `json:"truncated,omitempty"`
	Skipped   uint64 `json:"skipped,omitempty"` // samples that a slow reader has missed
}

// Registry holds the routes of a process, by "pipeline/route". The zero value is empty.
type Registry struct {
	mu     sync.Mutex // guards the fields below
	routes map[string]*Route
	count  int // of subscriptions
}

// Route returns the route with the given name. It always returns the same one.
func (g *Registry) Route(name string) *Route {
	if g == nil {
		return nil
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	r := g.routes[name]
	if r == nil {
		if g.routes == nil {
			g.routes = make(map[string]*Route)
		}
		r = &Route{name: name}
		g.routes[name] = r
	}
	return r
}

// Subscribe begins a subscription to a route. stage is as in [Stage.Matches]. rate bounds the
// samples per second at each stage.
func (g *Registry) Subscribe(route, stage string, rate int) (*Subscription, error) {
	r := g.Route(route)
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.count >= maxSubscriptions {
		return nil, ErrBusy
	}
	g.count++
	s := &Subscription{
		registry: g, route: r, stage: stage, rate: min(max(rate, 1), MaxRate), queue: make(chan Sample, maxQueued),
		used: make(map[string]*allowance),
	}
	r.change(func(all []*Subscription) []*Subscription { return append(slices.Clone(all), s) })
	return s, nil
}

// Route is a route that can be tapped. A nil Route is never active. It is safe for concurrent use.
type Route struct {
	name          string
	subscriptions atomic.Pointer[[]*Subscription] // nil if there are none; replaced, never modified
}

// change replaces the subscriptions. The caller holds the registry's mu.
func (r *Route) change(by func([]*Subscription) []*Subscription) {
	var all []*Subscription
	if p := r.subscriptions.Load(); p != nil {
		all = *p
	}
	if all = by(all); len(all) == 0 {
		r.subscriptions.Store(nil)
		return
	}
	r.subscriptions.Store(&all)
}

// Active reports whether the route has a subscription.
func (r *Route) Active() bool { return r != nil && r.subscriptions.Load() != nil }

// Offer offers n records at a stage. It calls sample for the indexes of a few of them.
func (r *Route) Offer(stage Stage, n int, sample func(i int) Sample) {
	all := r.subscriptions.Load()
	if all == nil || n == 0 {
		return
	}
	now := time.Now()
	for _, s := range *all {
		if !stage.Matches(s.stage) {
			continue
		}
		for _, i := range picks(n, s.allow(stage.String(), now)) {
			out := sample(i)
			out.At, out.Route, out.Stage = now.UTC(), r.name, stage.String()
			if len(out.Record) > MaxText {
				out.Truncated, out.Record = string(out.Record[:MaxText]), nil
			}
			s.send(out)
		}
	}
}

// picks returns up to k of n indexes, which depend only on k and n. Stages with the same k and n
// therefore sample the same records.
func picks(n, k int) []int {
	switch min(n, k) {
	case 0:
		return nil
	case 1:
		return []int{0}
	case 2:
		return []int{0, n - 1}
	}
	return []int{0, n / 2, n - 1}
}

// Subscription receives samples. C is never closed.
type Subscription struct {
	registry *Registry
	route    *Route
	stage    string
	rate     int
	queue    chan Sample
	skipped  atomic.Uint64

	mu   sync.Mutex            // guards the fields below
	used map[string]*allowance // by stage
}

// allowance counts the samples of a stage in one second.
type allowance struct {
	second int64
	used   int
}

// C returns the channel of samples.
func (s *Subscription) C() <-chan Sample { return s.queue }

// Close ends the subscription. It may be called once.
func (s *Subscription) Close() {
	s.registry.mu.Lock()
	defer s.registry.mu.Unlock()
	s.registry.count--
	s.route.change(func(all []*Subscription) []*Subscription {
		return slices.DeleteFunc(slices.Clone(all), func(x *Subscription) bool { return x == s })
	})
}

// allow returns the number of samples of a batch that the rate still permits, and counts them as
// used.
func (s *Subscription) allow(stage string, now time.Time) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	a := s.used[stage]
	if a == nil {
		a = new(allowance)
		s.used[stage] = a
	}
	if second := now.Unix(); a.second != second {
		*a = allowance{second: second}
	}
	k := min(maxPerOffer, s.rate-a.used)
	a.used += k
	return k
}

func (s *Subscription) send(x Sample) {
	x.Skipped = s.skipped.Swap(0)
	select {
	case s.queue <- x:
	default:
		s.skipped.Add(x.Skipped + 1)
	}
}
