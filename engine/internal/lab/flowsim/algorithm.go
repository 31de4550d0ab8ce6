//penstock:pure

package flowsim

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/penstock-io/penstock/engine/internal/lab/peers"
	"github.com/penstock-io/penstock/flow/dispatch"
	"github.com/penstock-io/penstock/flow/window"
)

// Spec is the flow control of a run: a window algorithm with a dispatch policy, which chooses the
// worker for each batch.
type Spec struct {
	Name     string // as requested: "linear", "fixed:10", "queue+round_robin"
	Dispatch string
	Window   window.Algorithm
	Policy   dispatch.Policy
	Reports  bool // the workers report their load and capacity to the senders
	// HidesTimes makes the workers omit from their reports how long batches waited and were served.
	HidesTimes bool
	Hedge      float64 // maximum share of hedges among the attempts; 0 means no hedges
}

// algorithm makes the window algorithm of a Spec. The parameter of make is the text after the colon
// in the requested name, such as 10 in "fixed:10", or "".
type algorithm struct {
	name    string
	option  string // description of the text allowed after a colon, for messages; "" for none
	reports bool
	make    func(option string) (window.Algorithm, error)
}

func plain(a window.Algorithm) func(string) (window.Algorithm, error) {
	return func(string) (window.Algorithm, error) { return a, nil }
}

// algorithms are the window algorithms of package window and of package peers.
var algorithms = append(registered(),
	algorithm{name: "vector_arc", make: plain(peers.VectorARC{})},
	algorithm{name: "netflix_vegas", make: plain(peers.NetflixVegas{})},
	algorithm{name: "netflix_gradient2", option: "min1: from 4, down to 1", make: gradient2},
	algorithm{name: "reno", make: plain(peers.Reno{})},
)

// registered returns the algorithms of package window.
func registered() (all []algorithm) {
	for _, e := range window.Registry() {
		a := algorithm{name: e.Name(), reports: e.Adverts, make: plain(e.Algorithm)}
		switch e.Algorithm.(type) {
		case window.Linear:
			a.option, a.make = "per_ack or a threshold, such as linear:50ms", linear
		case window.Fixed:
			a.option, a.make = "batches, such as fixed:10", fixed
		}
		all = append(all, a)
	}
	return all
}

// policies are the dispatch policies: those of package dispatch, those of package peers, and
// hashOnce.
var policies = allPolicies()

func allPolicies() (all []dispatch.Policy) {
	for _, e := range dispatch.Registry() {
		all = append(all, e.Policy)
	}
	return append(all, peers.LeastInFlight{}, peers.TwoChoices{}, peers.PeakEWMA{}, hashOnce{})
}

// hashOnce is like hash dispatch, but a batch does not wait for its lane. If that lane is not free,
// for example after a failure, the batch goes to the free lane with the next highest hash. So it
// changes its worker. A comparison with dispatch.Hash shows whether it is better that a batch
// returns to the same worker after a timeout.
type hashOnce struct{ dispatch.Hash }

func (hashOnce) Name() string                     { return "hash_once" }
func (hashOnce) New(rand.Source) dispatch.Chooser { return &free{by: dispatch.Hash{}.New(nil)} }

// free is a chooser that shows only the free lanes to another chooser, the field by.
type free struct {
	by   dispatch.Chooser
	only []dispatch.Candidate
	at   []int
}

func (f *free) Choose(now time.Duration, cost float64, key uint64, c []dispatch.Candidate) int {
	f.only, f.at = f.only[:0], f.at[:0]
	for i := range c {
		if c[i].Free {
			f.only, f.at = append(f.only, c[i]), append(f.at, i)
		}
	}
	if i := f.by.Choose(now, cost, key, f.only); i >= 0 {
		return f.at[i]
	}
	return -1
}

// DefaultDispatch is the dispatch policy if the name of an algorithm does not contain one.
const DefaultDispatch = "least_completion"

// AlgorithmNames returns the names of the algorithms that Find accepts.
func AlgorithmNames() []string {
	var names []string
	for _, a := range algorithms {
		names = append(names, a.name)
	}
	return names
}

// DispatchNames returns the names of the dispatch policies.
func DispatchNames() []string {
	var names []string
	for _, p := range policies {
		names = append(names, p.Name())
	}
	return names
}

// Find returns the Spec for a name such as "linear", "fixed:10" or "queue+round_robin". The part
// after the plus is a dispatch policy. If the name has none, the parameter policy names it. If
// policy is empty as well, DefaultDispatch is used.
func Find(name, policy string) (*Spec, error) {
	s := &Spec{Name: name, Dispatch: policy}
	base, carried, carries := strings.Cut(name, "+")
	if carries {
		s.Dispatch = carried
	}
	if s.Dispatch == "" {
		s.Dispatch = DefaultDispatch
	}
	base, option, _ := strings.Cut(base, ":")
	i := slices.IndexFunc(algorithms, func(a algorithm) bool { return a.name == base })
	if i < 0 {
		return nil, fmt.Errorf("there is no algorithm %q; the algorithms are %s", base,
			strings.Join(AlgorithmNames(), ", "))
	}
	a := &algorithms[i]
	if option != "" && a.option == "" {
		return nil, fmt.Errorf("algorithm %q has no options; remove %q", base, option)
	}
	var err error
	if s.Window, err = a.make(option); err != nil {
		return nil, fmt.Errorf("algorithm %q: %w", name, err)
	}
	s.Reports = a.reports
	i = slices.IndexFunc(policies, func(p dispatch.Policy) bool { return p.Name() == s.Dispatch })
	if i < 0 {
		return nil, fmt.Errorf("there is no dispatch %q; the dispatches are %s", s.Dispatch,
			strings.Join(DispatchNames(), ", "))
	}
	s.Policy = policies[i]
	return s, nil
}

func linear(option string) (window.Algorithm, error) {
	l := window.Linear{}
	for word := range strings.SplitSeq(option, ":") {
		if word == "" {
			continue
		}
		if word == "per_ack" {
			l.Step = window.PerAck
			continue
		}
		d, err := time.ParseDuration(word)
		if err != nil || d <= 0 {
			return nil, fmt.Errorf("%q is neither per_ack nor a threshold such as 50ms", word)
		}
		l.Threshold = d
	}
	return l, l.Validate()
}

func fixed(option string) (window.Algorithm, error) {
	f := window.Fixed{}
	if option != "" {
		n, err := strconv.Atoi(option)
		if err != nil || n < 1 {
			return nil, fmt.Errorf("%q is not a number of batches such as 10", option)
		}
		f.Size = n
	}
	return f, f.Validate()
}

// namesDispatch reports whether the requested name contains a dispatch policy, as
// "queue+round_robin" does.
func (s *Spec) namesDispatch() bool { return strings.Contains(s.Name, "+") }

// Title returns the name for display. It contains the dispatch policy if that is not the default.
func (s *Spec) Title() string {
	if s.namesDispatch() || s.Dispatch == DefaultDispatch {
		return s.Name
	}
	return s.Name + "+" + s.Dispatch
}

// gradient2 returns Netflix' algorithm Gradient2. By default, its minimum is 20 batches, which is
// more than most workers can process at once. With the option min1, it starts at 4 batches, and its
// minimum is 1.
func gradient2(option string) (window.Algorithm, error) {
	switch option {
	case "":
		return peers.NetflixGradient2{}, nil
	case "min1":
		return peers.NetflixGradient2{Initial: 4, Min: 1}, nil
	}
	return nil, fmt.Errorf("%q is not min1", option)
}
