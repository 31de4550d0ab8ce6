package httpserver_test

import (
	"context"
	nethttp "net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/penstock-io/penstock/flow"
	"github.com/penstock-io/penstock/stream"
)

// ask pushes a body like a penstock sender, and returns the status and header of the response.
func (s *service) ask(sender, key, body string) (int, nethttp.Header) {
	s.t.Helper()
	req, err := nethttp.NewRequestWithContext(s.t.Context(), "POST", s.url, strings.NewReader(body))
	if err != nil {
		s.t.Fatal(err)
	}
	if sender != "" {
		req.Header.Set(stream.SenderHeader, sender)
	}
	if key != "" {
		req.Header.Set("Idempotency-Key", key)
	}
	res, err := s.client.Do(req)
	if err != nil {
		s.t.Fatal(err)
	}
	defer res.Body.Close()
	return res.StatusCode, res.Header
}

// TestWindow checks that a sender gets its window in records. The advertised cost of a request must
// be the real cost of its records, even if the sender has declared another cost.
func TestWindow(t *testing.T) {
	s := run(t, "")
	if _, h := s.ask("", "", "a\n"); h.Get(stream.CreditHeader) != "" {
		t.Errorf("a client that sends no %s gets %q", stream.SenderHeader, h.Get(stream.CreditHeader))
	}
	var taken uint64
	for i, c := range []struct {
		sender, body string
		cost         uint64
	}{
		{"me; unit=records; cost=3", "a\nb\nc\n", 3},
		{"me; unit=records; cost=1", "a\nb\nc\nd\n", 4},                       // too low a cost
		{"me", strings.Repeat(strings.Repeat("x", 1023)+"\n", 5), 5},          // no cost
		{"me; unit=records; cost=1", strings.Repeat("x", 10*1024) + "\n", 10}, // one long record
		{"me; unit=bytes; cost=9999999", "a\n", 1},                            // another unit
	} {
		status, h := s.ask(c.sender, "", c.body)
		grant := h.Get(stream.CreditHeader)
		r, ok := stream.ParseGrant(grant)
		taken += c.cost
		if status != 200 || !ok || r.Cost != c.cost || r.Taken != taken || r.Credit <= taken || r.Draining ||
			!strings.Contains(grant, "; unit=records") {
			t.Errorf("request %d: %d, %q; want cost %d, taken %d and more credit in records", i+1,
				status, grant, c.cost, taken)
		}
	}
	if _, h := s.ask("you; unit=records; cost=2", "",
		"a\nb\n"); !strings.Contains(h.Get(stream.CreditHeader), "taken=2;") {
		t.Errorf("another sender gets %q, want a count of its own", h.Get(stream.CreditHeader))
	}
}

// TestWindowOfRepeated checks that a repeated batch gets the stored response and a window, and is
// not delivered again.
func TestWindowOfRepeated(t *testing.T) {
	s := run(t, "")
	for range 2 {
		status, h := s.ask("me; unit=records; cost=2", "batch-1", "a\nb\n")
		if r, ok := stream.ParseGrant(h.Get(stream.CreditHeader)); status != 200 || !ok || r.Cost != 2 {
			t.Errorf("%d, %q; want 200 and a grant", status, h.Get(stream.CreditHeader))
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.got) != 2 {
		t.Errorf("%d records were delivered, want 2", len(s.got))
	}
}

// TestWindowWhileDraining checks that responses to requests in progress and refusals indicate that
// the source drains.
func TestWindowWhileDraining(t *testing.T) {
	s := run(t, "")
	delivering, release := make(chan struct{}), make(chan struct{})
	once := sync.OnceFunc(func() { close(delivering) })
	s.deliver = func(ctx context.Context, _ *stream.Batch) error {
		once() // an overdue batch is delivered twice
		select {
		case <-release:
		case <-ctx.Done():
		}
		return nil
	}
	answered := make(chan nethttp.Header, 1)
	go func() {
		_, h := s.ask("me; unit=records; cost=1", "", "a\n")
		answered <- h
	}()
	<-delivering
	s.e.Drain()
	deadline := time.Now().Add(patience)
	for !s.server.IsDraining() {
		if time.Now().After(deadline) {
			t.Fatal("the source does not drain")
		}
	}
	status, h := s.ask("me; unit=records; cost=1", "", "b\n")
	if r, _ := flow.ParseGrant(h.Get(stream.CreditHeader)); status != 503 || !r.Draining ||
		h.Get("Penstock-State") != "untaken" {
		t.Errorf("a new request: %d, %v", status, h)
	}
	close(release)
	h = <-answered
	if r, _ := flow.ParseGrant(h.Get(stream.CreditHeader)); !r.Draining || r.Cost != 1 {
		t.Errorf("the request in work: %v", h)
	}
}
