//penstock:pure

package trace

import (
	"bytes"
	"encoding/json"
	"fmt"
	"time"

	"github.com/penstock-io/penstock/backoff"
	"github.com/penstock-io/penstock/backoff/compat"
	"github.com/penstock-io/penstock/flow/control"
	"github.com/penstock-io/penstock/flow/dispatch"
	"github.com/penstock-io/penstock/flow/window"
)

// header is the first line: all that makes one machine behave otherwise than another.
type header struct {
	Version  int             `json:"penstock_trace"`
	Route    string          `json:"route,omitempty"`
	Started  string          `json:"started,omitempty"` // RFC 3339
	Program  string          `json:"program,omitempty"`
	Arch     string          `json:"arch,omitempty"`
	Seed     uint64          `json:"seed"`
	Window   string          `json:"window,omitempty"`
	Options  json.RawMessage `json:"window_options,omitempty"` // the fields of the algorithm's Go struct
	Dispatch string          `json:"dispatch,omitempty"`
	TieBand  float64         `json:"dispatch_tie_band,omitempty"`
	Timeout  time.Duration   `json:"timeout,omitempty"`
	Retry    string          `json:"retry,omitempty"` // as package backoff writes policies
	Replay   int64           `json:"replay,omitempty"`
	Ahead    int             `json:"ahead,omitempty"`
	Failures int             `json:"breaker_failures,omitempty"`
	Shared   bool            `json:"shared,omitempty"`
	Probe    string          `json:"breaker_probe,omitempty"`
	Budget   *budget         `json:"budget,omitempty"`
	Waiting  *waiting        `json:"waiting,omitempty"`
	Defer    bool            `json:"defer,omitempty"`
	End      *end            `json:"end,omitempty"`
	Poison   *poison         `json:"poison,omitempty"`
	Hedge    *hedge          `json:"hedge,omitempty"`
	Limit    *limit          `json:"limit,omitempty"`
	Lane     *limit          `json:"lane_limit,omitempty"`
}

// budget is that of redeliveries.
type budget struct {
	Share     float64 `json:"share,omitempty"`
	PerSecond float64 `json:"per_second,omitempty"`
	Burst     float64 `json:"burst,omitempty"`
}

// waiting bounds the items that wait for another attempt.
type waiting struct {
	Cost  float64 `json:"cost,omitempty"`
	Bytes int64   `json:"bytes,omitempty"`
}

// end is when an item is given up.
type end struct {
	Attempts int           `json:"attempts,omitempty"`
	Elapsed  time.Duration `json:"elapsed,omitempty"`
}

// poison says when an item is to blame.
type poison struct {
	Deaths   int  `json:"deaths,omitempty"`
	Failures int  `json:"failures,omitempty"`
	Refuse   bool `json:"refuse,omitempty"`
}

// limit bounds the attempts of all lanes, or of each.
type limit struct {
	Rate        float64 `json:"rate,omitempty"`
	Bytes       float64 `json:"bytes,omitempty"`
	Concurrency int     `json:"concurrency,omitempty"`
}

// hedge is how many twins there are.
type hedge struct {
	Share float64 `json:"share,omitempty"`
	Least int     `json:"least,omitempty"`
}

// windows read an algorithm's options back, by its name.
var windows = map[string]func(options []byte) (window.Algorithm, error){
	"linear": options[window.Linear],
	"aimd":   options[window.AIMD],
	"queue":  options[window.Queue],
	"credit": options[window.Credit],
	"rate":   options[window.Rate],
	"fixed":  options[window.Fixed],
}

var policies = []dispatch.Policy{
	dispatch.LeastCompletion{}, dispatch.RoundRobin{}, dispatch.Hash{},
	dispatch.LeastInFlight{}, dispatch.TwoChoices{}, dispatch.PeakEWMA{},
}

func options[A window.Algorithm](text []byte) (window.Algorithm, error) {
	var a A
	dec := json.NewDecoder(bytes.NewReader(text))
	dec.DisallowUnknownFields()
	err := dec.Decode(&a)
	return a, err
}

func headerOf(c *control.Config, a *About) (header, error) {
	h := header{
		Version: Version, Route: a.Route, Program: a.Program, Arch: a.Arch,
		Seed: c.Seed, Timeout: c.Timeout, Replay: c.Replay, Ahead: c.Ahead, Failures: c.Breaker.Failures, Shared: c.Shared,
		Defer: c.Defer,
	}
	if !a.Started.IsZero() {
		h.Started = a.Started.UTC().Format(time.RFC3339Nano)
	}
	var err error
	if c.Window != nil {
		h.Window = c.Window.Name()
		if read := windows[h.Window]; read == nil || !sameType(read, c.Window) {
			return h, fmt.Errorf("trace: a machine with %s windows could not be replayed: it is not one of the product's", h.Window)
		}
		if h.Options, err = json.Marshal(c.Window); err != nil {
			return h, fmt.Errorf("trace: write the options of %s windows: %w", h.Window, err)
		}
	}
	if c.Dispatch != nil {
		h.Dispatch = c.Dispatch.Name()
		if p, ok := c.Dispatch.(dispatch.LeastCompletion); ok {
			h.TieBand = p.Band
		}
		if p := policy(h.Dispatch); p == nil || fmt.Sprintf("%T", p) != fmt.Sprintf("%T", c.Dispatch) {
			return h, fmt.Errorf("trace: a machine with %s dispatch could not be replayed: it is not one of the product's", h.Dispatch)
		}
	}
	if b := budget(c.Budget); b != (budget{}) {
		h.Budget = &b
	}
	if w := waiting(c.Waiting); w != (waiting{}) {
		h.Waiting = &w
	}
	if x := end(c.End); x != (end{}) {
		h.End = &x
	}
	if p := poison(c.Poison); p != (poison{}) {
		h.Poison = &p
	}
	if x := hedge(c.Hedge); x != (hedge{}) {
		h.Hedge = &x
	}
	if x := limit(c.Limit); x != (limit{}) {
		h.Limit = &x
	}
	if x := limit(c.LaneLimit); x != (limit{}) {
		h.Lane = &x
	}
	if h.Retry, err = spec(c.Retry); err != nil {
		return h, fmt.Errorf("trace: retry policy: %w", err)
	}
	if h.Probe, err = spec(c.Breaker.Probe); err != nil {
		return h, fmt.Errorf("trace: breaker's probe policy: %w", err)
	}
	return h, nil
}

// sameType says whether what read makes is of a's type: another's algorithm may have the same name.
func sameType(read func([]byte) (window.Algorithm, error), a window.Algorithm) bool {
	own, err := read([]byte("{}"))
	return err == nil && fmt.Sprintf("%T", own) == fmt.Sprintf("%T", a)
}

// spec writes a policy as text from which it can be read back.
func spec(p backoff.Policy) (string, error) {
	if p == nil {
		return "", nil
	}
	s, ok := p.(fmt.Stringer)
	if !ok {
		return "", fmt.Errorf("%T cannot be written as text", p)
	}
	if _, err := compat.Parse(s.String()); err != nil {
		return "", fmt.Errorf("%s cannot be read back: %w", s, err)
	}
	return s.String(), nil
}

func policy(name string) dispatch.Policy {
	for _, p := range policies {
		if p.Name() == name {
			return p
		}
	}
	return nil
}

func (h *header) about() (About, error) {
	a := About{Route: h.Route, Program: h.Program, Arch: h.Arch}
	var err error
	if h.Started != "" {
		if a.Started, err = time.Parse(time.RFC3339Nano, h.Started); err != nil {
			err = fmt.Errorf("started: %w", err)
		}
	}
	return a, err
}

func (h *header) config() (control.Config, error) {
	c := control.Config{
		Seed: h.Seed, Timeout: h.Timeout, Replay: h.Replay, Ahead: h.Ahead, Shared: h.Shared,
		Defer:   h.Defer,
		Breaker: control.Breaker{Failures: h.Failures},
	}
	if h.Budget != nil {
		c.Budget = control.Budget(*h.Budget)
	}
	if h.Waiting != nil {
		c.Waiting = control.Waiting(*h.Waiting)
	}
	if h.End != nil {
		c.End = control.End(*h.End)
	}
	if h.Poison != nil {
		c.Poison = control.Poison(*h.Poison)
	}
	if h.Hedge != nil {
		c.Hedge = control.Hedge(*h.Hedge)
	}
	if h.Limit != nil {
		c.Limit = control.Limit(*h.Limit)
	}
	if h.Lane != nil {
		c.LaneLimit = control.Limit(*h.Lane)
	}
	if h.Version != Version {
		return c, fmt.Errorf("is version %d, and this program knows %d", h.Version, Version)
	}
	var err error
	if h.Window != "" {
		read := windows[h.Window]
		if read == nil {
			return c, fmt.Errorf("there is no window algorithm %q", h.Window)
		}
		if c.Window, err = read(h.Options); err != nil {
			return c, fmt.Errorf("options of %s windows: %w", h.Window, err)
		}
	}
	if h.Dispatch != "" {
		if c.Dispatch = policy(h.Dispatch); c.Dispatch == nil {
			return c, fmt.Errorf("there is no dispatch %q", h.Dispatch)
		}
		if _, ok := c.Dispatch.(dispatch.LeastCompletion); ok {
			c.Dispatch = dispatch.LeastCompletion{Band: h.TieBand}
		}
	}
	if h.Retry != "" {
		if c.Retry, err = compat.Parse(h.Retry); err != nil {
			return c, fmt.Errorf("retry policy: %w", err)
		}
	}
	if h.Probe != "" {
		if c.Breaker.Probe, err = compat.Parse(h.Probe); err != nil {
			return c, fmt.Errorf("breaker's probe policy: %w", err)
		}
	}
	return c, nil
}
