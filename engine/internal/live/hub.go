// Package live provides the data for live displays of a running engine. It converts the status into
// frames once per second. It also keeps the history of the last hour and the latest log lines,
// within fixed limits.
//
// The admin server owns a [Hub]. Without subscribers the Hub only takes a status every ten seconds,
// for the history. Framer and History read no clock and do no I/O.
package live

import (
	"context"
	"encoding/json"
	"errors"
	"sync"
	"time"

	"github.com/penstock-io/penstock/engine/status"
)

const (
	frameEvery     = time.Second
	maxSubscribers = 32 // each gets every frame
)

// ErrBusy means that there are too many subscribers already.
var ErrBusy = errors.New("too many clients are watching this process")

// Hub creates frames and passes them to subscribers. It is safe for concurrent use.
type Hub struct {
	status func() status.Status
	wake   chan struct{}

	mu          sync.Mutex // guards the fields below
	history     History
	subscribers map[chan []byte]bool
	last        []byte // the latest frame; nil if it is older than frameEvery
	ended       bool
}

// NewHub returns a Hub that creates frames from the results of status, which must be safe for
// concurrent use. It starts nothing before Run.
func NewHub(status func() status.Status) *Hub {
	return &Hub{status: status, wake: make(chan struct{}, 1), subscribers: make(map[chan []byte]bool)}
}

// Run creates frames until ctx is done: every second while there are subscribers, otherwise every
// ten seconds for the history. At the end it ends all subscriptions.
func (h *Hub) Run(ctx context.Context) error {
	defer h.end()
	var framer Framer
	recorded := time.Now()
	s := h.status()
	if err := h.publish(framer.Next(&s, recorded), false); err != nil { // no rates yet
		return err
	}
	tick := time.NewTicker(frameEvery)
	defer tick.Stop()
	for {
		now := time.Now()
		due := now.Sub(recorded) >= HistoryStep-frameEvery/2
		if due || h.watched() {
			s = h.status()
			f := framer.Next(&s, now)
			if due {
				recorded = now
			}
			if err := h.publish(f, due); err != nil {
				return err
			}
		} else {
			h.forget()
		}
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		case <-h.wake:
		}
	}
}

func (h *Hub) watched() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.subscribers) > 0
}

// forget drops the latest frame, so that a new subscriber does not get an outdated one.
func (h *Hub) forget() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.last = nil
}

func (h *Hub) publish(f *Frame, record bool) error {
	text, err := json.Marshal(f)
	if err != nil {
		return err
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if record {
		h.history.Add(f)
	}
	h.last = text
	for c := range h.subscribers {
		select {
		case <-c: // replace a frame that a slow client has not received
		default:
		}
		c <- text
	}
	return nil
}

func (h *Hub) end() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.ended = true
	for c := range h.subscribers {
		close(c)
	}
	h.subscribers = nil
}

// Subscribe returns a channel with encoded frames, which is closed when the Hub ends, and a function
// that ends the subscription. The frames must not be changed.
func (h *Hub) Subscribe() (frames <-chan []byte, cancel func(), err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	c := make(chan []byte, 1)
	if h.ended {
		close(c)
		return c, func() {}, nil
	}
	if len(h.subscribers) >= maxSubscribers {
		return nil, nil, ErrBusy
	}
	h.subscribers[c] = true
	if h.last != nil {
		c <- h.last
	}
	select {
	case h.wake <- struct{}{}:
	default:
	}
	return c, func() {
		h.mu.Lock()
		defer h.mu.Unlock()
		delete(h.subscribers, c)
	}, nil
}

// History returns the history of a route. If worker is not empty, it returns the history of this
// worker of the route.
func (h *Hub) History(route, worker string) Series {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.history.Of(route, worker)
}
