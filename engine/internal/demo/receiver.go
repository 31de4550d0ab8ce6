// Package demo has the receivers of `penstock demo`. They are slow HTTP servers on loopback, which
// the demo can kill and restart. They count the records that they have accepted. So the "lost 0"
// that the demo prints was measured at the receivers, not claimed by the sender.
package demo

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/penstock-io/penstock/retry"
	"github.com/penstock-io/penstock/supervise"
)

// atOnce is the number of requests that a receiver processes at the same time. Further requests
// wait.
const atOnce = 4

// Tally counts how often each record was accepted by any receiver. If a request has the
// Idempotency-Key of an earlier accepted request, its records are not counted again. A Tally is
// safe for concurrent use.
type Tally struct {
	mu    sync.Mutex          // guards the fields below
	keys  map[string]struct{} // Idempotency-Keys of the accepted requests
	again int                 // number of requests with a key that was known
	taken []int32             // how often each record was accepted, by number of the record
}

// NewTally returns a Tally for records with the numbers 0 to n-1.
func NewTally(n int) *Tally { return &Tally{keys: make(map[string]struct{}), taken: make([]int32, n)} }

// take counts the records in the body of a request. Each line begins with the number of a record.
func (t *Tally) take(key, body string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if _, known := t.keys[key]; known {
		t.again++
		return
	}
	if key != "" {
		t.keys[key] = struct{}{}
	}
	for line := range strings.Lines(body) {
		number, _, _ := strings.Cut(line, " ")
		if n, err := strconv.Atoi(number); err == nil && n >= 0 && n < len(t.taken) {
			t.taken[n]++
		}
	}
}

// Count returns the number of records that were never accepted, and the number of repetitions.
func (t *Tally) Count() (lost, repeated int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, n := range t.taken {
		if n == 0 {
			lost++
		} else {
			repeated += int(n) - 1
		}
	}
	return lost, repeated
}

// Recognised returns the number of requests that were not counted because a request with the same
// Idempotency-Key was accepted before.
func (t *Tally) Recognised() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.again
}

// Receiver is one HTTP server.
type Receiver struct {
	service time.Duration // duration of a request
	tally   *Tally
	slots   chan struct{}
	addr    string

	mu     sync.Mutex // guards server
	server *http.Server
	group  *supervise.Group
}

// NewReceiver returns a receiver that takes the duration service for each request. The receiver
// starts when Revive is called.
func NewReceiver(service time.Duration, tally *Tally) *Receiver {
	return &Receiver{service: service, tally: tally, slots: make(chan struct{}, atOnce), addr: "127.0.0.1:0"}
}

// URL returns the URL of the receiver. It is valid after the first call of Revive.
func (r *Receiver) URL() string { return "http://" + r.addr + "/in" }

// Revive starts the receiver. Later calls use the address of the first one.
func (r *Receiver) Revive(ctx context.Context) error {
	l, err := net.Listen("tcp", r.addr)
	if err != nil {
		return err
	}
	r.addr = l.Addr().String()
	server := &http.Server{Handler: r, ReadHeaderTimeout: 5 * time.Second}
	group := supervise.NewGroup(ctx)
	group.Go("receiver "+r.addr, func(context.Context) error {
		if err := server.Serve(l); !errors.Is(err, http.ErrServerClosed) {
			return err
		}
		return nil
	})
	r.mu.Lock()
	defer r.mu.Unlock()
	r.server, r.group = server, group
	return nil
}

// Kill closes the port and all connections. Requests in progress are not accepted. If the receiver
// is not running, Kill does nothing.
func (r *Receiver) Kill() error {
	r.mu.Lock()
	server, group := r.server, r.group
	r.server = nil
	r.mu.Unlock()
	if server == nil {
		return nil
	}
	return errors.Join(server.Close(), group.Wait())
}

// ServeHTTP implements http.Handler.
func (r *Receiver) ServeHTTP(_ http.ResponseWriter, req *http.Request) {
	body, err := io.ReadAll(req.Body)
	if err != nil {
		return
	}
	select {
	case r.slots <- struct{}{}:
		defer func() { <-r.slots }()
	case <-req.Context().Done():
		return
	}
	if retry.Sleep(req.Context(), r.service) == nil {
		r.tally.take(req.Header.Get("Idempotency-Key"), string(body))
	}
}
