// Package demo contains the receivers of `penstock demo`: HTTP servers on loopback that are slow,
// fail and restart. They count the accepted records, so that "lost 0" is measured at the receiving
// end.
//
// A [Receiver] belongs to the demo. It stores only a count for each record.
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

// atOnce is the number of requests that a receiver serves concurrently; further requests queue.
const atOnce = 4

// Tally is the store behind the receivers, and counts how often each record was accepted. A request
// that repeats the Idempotency-Key of an accepted one is recognized and not counted again. Tally is
// safe for concurrent use.
type Tally struct {
	mu    sync.Mutex          // guards the fields below
	keys  map[string]struct{} // keys of the accepted requests
	again int                 // repeated requests, recognized by their key
	taken []int32             // count by record number
}

// NewTally returns a Tally for records numbered from 0 to n-1.
func NewTally(n int) *Tally { return &Tally{keys: make(map[string]struct{}), taken: make([]int32, n)} }

// take counts the records of a body. Each line begins with the number of its record.
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

// Count returns the number of records that never arrived, and the number of repetitions.
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

// Recognised returns the number of repeated requests that were recognized by their key.
func (t *Tally) Recognised() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.again
}

// Receiver is one endpoint.
type Receiver struct {
	service time.Duration // of a request
	tally   *Tally
	slots   chan struct{}
	addr    string

	mu     sync.Mutex // guards server
	server *http.Server
	group  *supervise.Group
}

// NewReceiver returns a receiver that takes the time service for each request. It starts to listen
// with Revive.
func NewReceiver(service time.Duration, tally *Tally) *Receiver {
	return &Receiver{service: service, tally: tally, slots: make(chan struct{}, atOnce), addr: "127.0.0.1:0"}
}

// URL returns the receiver's URL, which is known after the first Revive.
func (r *Receiver) URL() string { return "http://" + r.addr + "/in" }

// Revive starts listening, at the same address as before.
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

// Kill closes every connection. Requests in progress are not accepted. Kill may be called twice.
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
