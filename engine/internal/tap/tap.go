// Package tap samples the records of running routes, to show them to a user. It samples them at the
// source, after each processor, and at the sink. At the sink, it samples them after each failed
// attempt, and when they are settled.
//
// The pipeline offers each batch to a [Route]. Without a subscription, this costs one atomic load.
// A [Subscription] limits the rate and the size of its samples. If its reader is slow, samples are
// dropped and counted. A route never waits for a reader.
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

// Limits of subscriptions.
const (
	maxSubscriptions = 8       // maximum number in a process
	maxQueued        = 256     // maximum number of waiting samples of a subscription
	maxPerOffer      = 3       // maximum number of samples of one batch at one stage
	MaxRate          = 1000    // maximum number of samples per second at a stage
	MaxText          = 8 << 10 // maximum bytes of the JSON of a sample's record
)

// ErrBusy means that the process has the maximum number of subscriptions.
var ErrBusy = errors.New("this process already has 8 tap clients; end one of them")

// Stage is a point in a route at which records are sampled: the source, a processor or the sink.
type Stage struct {
	Index int    // 0 is the source, -1 the sink; all other numbers are processors
	Name  string // name of the component
}

// String returns the name of the stage, such as "source", "1:where" or "sink".
func (s Stage) String() string {
	switch {
	case s.Index == 0:
		return "source"
	case s.Index < 0:
		return "sink"
	}
	return strconv.Itoa(s.Index) + ":" + s.Name
}

// Matches reports whether text selects s. An empty text selects every stage. Other texts are
// "source", "sink", the number of a processor, the name of its component, or both, as in "1:where".
func (s Stage) Matches(text string) bool {
	return text == "" || text == s.String() || s.Index > 0 && (text == strconv.Itoa(s.Index) || text == s.Name)
}

// Sample is one record at one stage.
type Sample struct {
	At    time.Time `json:"at"`
	Route string    `json:"route"`
	Stage string    `json:"stage"`
	ID    string    `json:"id"` // id of the record; the same at all stages
	// Outcome is read, kept, dropped, dead, delivered, or the outcome of a failed attempt, such as
	// throttled.
	Outcome string          `json:"outcome"`
	Worker  string          `json:"worker,omitempty"`  // only at the sink
	Attempt int             `json:"attempt,omitempty"` // only at the sink
	Reason  string          `json:"reason,omitempty"`
	Record  json.RawMessage `json:"record,omitempty"` // the record as JSON
	// Truncated is the beginning of a record that is larger than 8 KiB. Record is then empty.
	Truncated string `json:"truncated,omitempty"`
	Skipped   uint64 `json:"skipped,omitempty"` // samples dropped for a slow reader
}

// Registry has the routes of a process by name, "pipeline/route". The zero value is empty.
type Registry struct {
	mu     sync.Mutex // guards the fields below
	routes map[string]*Route
	count  int // number of subscriptions
}

// Route returns the route with the given name. The first call for a name creates the route.
func (g *Registry) Route(name string) *Route {
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

// Subscribe begins a subscription to a route. stage selects the stages (see [Stage.Matches]). rate
// is the maximum number of samples per second at each stage.
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

// Route samples the records of a route. It is safe for concurrent use.
type Route struct {
	name          string
	subscriptions atomic.Pointer[[]*Subscription] // nil if none; replaced, never changed
}

// change replaces the list of subscriptions by update(list). The caller holds the registry's mu.
func (r *Route) change(update func([]*Subscription) []*Subscription) {
	var all []*Subscription
	if p := r.subscriptions.Load(); p != nil {
		all = *p
	}
	if all = update(all); len(all) == 0 {
		r.subscriptions.Store(nil)
		return
	}
	r.subscriptions.Store(&all)
}

// Active reports whether the route has a subscription.
func (r *Route) Active() bool { return r.subscriptions.Load() != nil }

// Offer offers the n records of a batch at a stage to the subscriptions. For a few of the records,
// it calls the function sample with the index of the record.
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

// picks returns up to k indexes below n. They depend only on k and n. So if two stages have equally
// many records, and the rate permits equally many samples, the same records are sampled.
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

// Subscription has a queue of samples, the channel that C returns. The channel is never closed.
type Subscription struct {
	registry *Registry
	route    *Route
	stage    string
	rate     int
	queue    chan Sample
	skipped  atomic.Uint64

	mu   sync.Mutex            // guards the fields below
	used map[string]*allowance // by name of the stage
}

// allowance counts the samples of a stage in the current second.
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

// allow returns how many samples of a batch the rate still permits. It counts them as used.
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
