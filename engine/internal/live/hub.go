// Package live provides data for displays of a running engine. While somebody watches, it makes a
// [Frame] from the status of the engine once per second. It keeps the history of the last hour and
// the last lines of the log, within fixed limits.
//
// The admin server owns a [Hub]. If nobody watches, the Hub gets a status only every ten seconds,
// for the history. [Framer] and [History] read no clock and do no I/O.
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
	maxSubscribers = 32
)

// ErrBusy means that there are too many subscribers already.
var ErrBusy = errors.New("too many clients are watching this process")

// Hub makes frames and sends them to all subscribers. A [Frame] is the state of the engine for a
// display. A Hub is safe for concurrent use.
type Hub struct {
	status func() status.Status
	wake   chan struct{}

	mu          sync.Mutex // guards the fields below
	history     History
	subscribers map[chan []byte]bool
	last        []byte // last frame; nil if it is older than frameEvery
	ended       bool
}

// NewHub returns a Hub, which begins its work when Run is called. The Hub makes frames from the
// results of the function status, which must be safe for concurrent use.
func NewHub(status func() status.Status) *Hub {
	return &Hub{status: status, wake: make(chan struct{}, 1), subscribers: make(map[chan []byte]bool)}
}

// Run makes frames until ctx is done: each second while there are subscribers, otherwise every ten
// seconds for the history. Before it returns, it ends all subscriptions.
func (h *Hub) Run(ctx context.Context) error {
	defer h.end()
	var framer Framer
	recorded := time.Now()
	s := h.status()
	if err := h.publish(framer.Next(&s, recorded), false); err != nil { // there are no rates yet
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

// forget deletes the last frame when it is outdated, so that a new subscriber does not get it.
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

// Subscribe returns a channel of encoded frames, and a function that ends the subscription. The
// channel is closed when the Hub ends. A subscriber that is slow gets only the newest frame. It
// must not change the frames. Subscribe returns ErrBusy if there are too many subscribers.
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

// History returns the history of a route. If worker is not "", it returns the history of this
// worker of the route.
func (h *Hub) History(route, worker string) Series {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.history.Of(route, worker)
}
