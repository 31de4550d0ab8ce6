//penstock:pure

package trace

import (
	"bytes"
	"encoding/json"
	"fmt"
	"reflect"
	"time"

	"github.com/penstock-io/penstock/backoff"
	"github.com/penstock-io/penstock/backoff/compat"
	"github.com/penstock-io/penstock/flow/control"
	"github.com/penstock-io/penstock/flow/dispatch"
	"github.com/penstock-io/penstock/flow/window"
)

// header is the first line of a trace. It has all settings on which the decisions of flow control
// depend.
type header struct {
	Version int    `json:"penstock_trace"`
	Route   string `json:"route,omitempty"`
	Started string `json:"started,omitempty"` // RFC 3339
	Program string `json:"program,omitempty"`
	Arch    string `json:"arch,omitempty"`
	Seed    uint64 `json:"seed"`
	Window  string `json:"window,omitempty"`
	// Options has the fields of the window algorithm's Go struct.
	Options  json.RawMessage `json:"window_options,omitempty"`
	Dispatch string          `json:"dispatch,omitempty"`
	TieBand  float64         `json:"dispatch_tie_band,omitempty"`
	Timeout  time.Duration   `json:"timeout,omitempty"`
	Retry    string          `json:"retry,omitempty"` // policy in the syntax of backoff/compat
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

// budget is the retry budget: the limit on repeated deliveries.
type budget struct {
	Share     float64 `json:"share,omitempty"`
	PerSecond float64 `json:"per_second,omitempty"`
	Burst     float64 `json:"burst,omitempty"`
}

// waiting has the limits on the items (batches) that wait for another attempt.
type waiting struct {
	Cost  float64 `json:"cost,omitempty"`
	Bytes int64   `json:"bytes,omitempty"`
}

// end has the limits after which an item (a batch) that fails is dead-lettered.
type end struct {
	Attempts int           `json:"attempts,omitempty"`
	Elapsed  time.Duration `json:"elapsed,omitempty"`
}

// poison has the limits after which an item (a batch) counts as the cause of its failures.
type poison struct {
	Deaths   int  `json:"deaths,omitempty"`
	Failures int  `json:"failures,omitempty"`
	Refuse   bool `json:"refuse,omitempty"`
}

// limit has the limits on the attempts of all lanes (places of workers) together, or of each lane.
type limit struct {
	Rate        float64 `json:"rate,omitempty"`
	Bytes       float64 `json:"bytes,omitempty"`
	Concurrency int     `json:"concurrency,omitempty"`
}

// hedge has the limit on hedges: second attempts for a batch while the first one is still running.
type hedge struct {
	Share float64 `json:"share,omitempty"`
	Least int     `json:"least,omitempty"`
}

// unlessZero returns a pointer to v, or nil for the zero value, which a trace omits.
func unlessZero[T comparable](v T) *T {
	if v == *new(T) {
		return nil
	}
	return &v
}

// orZero is the inverse of unlessZero.
func orZero[T any](p *T) (v T) {
	if p != nil {
		v = *p
	}
	return v
}

// ReadWindow returns the window algorithm with the given name and options.
func ReadWindow(name string, options []byte) (window.Algorithm, error) {
	e := window.Find(name)
	if e == nil {
		return nil, fmt.Errorf("there is no window algorithm %q", name)
	}
	a := reflect.New(reflect.TypeOf(e.Algorithm))
	dec := json.NewDecoder(bytes.NewReader(options))
	dec.DisallowUnknownFields()
	if err := dec.Decode(a.Interface()); err != nil {
		return nil, fmt.Errorf("options of %s windows: %w", name, err)
	}
	return a.Elem().Interface().(window.Algorithm), nil
}

func headerOf(c *control.Config, a *About) (header, error) {
	h := header{
		Version: Version, Route: a.Route, Program: a.Program, Arch: a.Arch,
		Seed: c.Seed, Timeout: c.Timeout, Replay: c.Replay, Ahead: c.Ahead,
		Failures: c.Breaker.Failures, Shared: c.Shared,
		Defer: c.Defer, Budget: unlessZero(budget(c.Budget)), End: unlessZero(end(c.End)),
		Waiting: unlessZero(waiting(c.Waiting)), Poison: unlessZero(poison(c.Poison)),
		Hedge: unlessZero(hedge(c.Hedge)), Limit: unlessZero(limit(c.Limit)),
		Lane: unlessZero(limit(c.LaneLimit)),
	}
	if !a.Started.IsZero() {
		h.Started = a.Started.UTC().Format(time.RFC3339Nano)
	}
	var err error
	if c.Window != nil {
		h.Window = c.Window.Name()
		if e := window.Find(h.Window); e == nil || !sameType(e.Algorithm, c.Window) {
			return h, fmt.Errorf("trace: %s windows cannot be recorded, because penstock has "+
				"no such windows", h.Window)
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
		if p := dispatch.Find(h.Dispatch, dispatch.Options{}); p == nil ||
			!sameType(p, c.Dispatch) {
			return h, fmt.Errorf("trace: %s dispatch cannot be recorded, because penstock has "+
				"no such dispatch", h.Dispatch)
		}
	}
	if h.Retry, err = spec(c.Retry); err != nil {
		return h, fmt.Errorf("trace: retry policy: %w", err)
	}
	if h.Probe, err = spec(c.Breaker.Probe); err != nil {
		return h, fmt.Errorf("trace: breaker's probe policy: %w", err)
	}
	return h, nil
}

// sameType reports whether a and b have the same type. It is not enough to compare the names of two
// algorithms, because an algorithm of an embedder may have the same name as one of this program.
func sameType(a, b any) bool { return reflect.TypeOf(a) == reflect.TypeOf(b) }

// spec returns a policy as text in the syntax of package backoff/compat, or "" if p is nil. It
// returns an error if the policy has no text, or the text cannot be parsed again.
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
		Budget:  control.Budget(orZero(h.Budget)), Waiting: control.Waiting(orZero(h.Waiting)),
		End: control.End(orZero(h.End)), Poison: control.Poison(orZero(h.Poison)),
		Hedge: control.Hedge(orZero(h.Hedge)), Limit: control.Limit(orZero(h.Limit)),
		LaneLimit: control.Limit(orZero(h.Lane)),
	}
	if h.Version != Version {
		return c, fmt.Errorf("is version %d, and this program knows %d", h.Version, Version)
	}
	var err error
	if h.Window != "" {
		if c.Window, err = ReadWindow(h.Window, h.Options); err != nil {
			return c, err
		}
	}
	if h.Dispatch != "" {
		c.Dispatch = dispatch.Find(h.Dispatch, dispatch.Options{Band: h.TieBand})
		if c.Dispatch == nil {
			return c, fmt.Errorf("there is no dispatch %q", h.Dispatch)
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
