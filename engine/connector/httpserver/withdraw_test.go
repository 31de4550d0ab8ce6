package httpserver_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/penstock-io/penstock/engine/connector/httpserver"
	"github.com/penstock-io/penstock/stream"
)

// TestWithdrawUnsent checks requests that reach their deadline while all workers are busy. A
// response with the state untaken (header Penstock-State) means that no worker has got the
// request. Such a request must not have been sent to a worker, and must not be delivered until the
// client repeats it.
func TestWithdrawUnsent(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		more   []string
		noKeys bool
	}{
		"read ahead":   {more: []string{"batch: {records: 1}"}},
		"without keys": {more: []string{"batch: {records: 1}"}, noKeys: true},
		"processed": {more: []string{"batch: {records: 1}",
			`processors: [{set: {seen: '"yes"'}}]`}},
		"several requests in a batch": {more: []string{"batch: {records: 3}"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := run(t, "format: ndjson, deadline: 2s",
				append(c.more, "flow: {timeout: 60s, abandon: 120s, window: fixed, size: 1}")...)
			w := &unsentRun{service: s, noKeys: c.noKeys, sent: make(map[string]bool),
				open: make(chan struct{})}
			s.setDeliver(w.receive)
			w.sendAll()
			w.repeat()
			if records := slices.Compact(s.records()); len(records) != unsentRequests {
				t.Errorf("%d records arrived, want %d", len(records), unsentRequests)
			}
		})
	}
}

const unsentRequests = 40

// unsentRun sends requests while no worker answers.
type unsentRun struct {
	*service
	noKeys bool
	open   chan struct{} // closed when workers answer
	states [unsentRequests]string

	mu   sync.Mutex // guards sent
	sent map[string]bool
}

// receive is the delivery function of the sink.
func (w *unsentRun) receive(ctx context.Context, b *stream.Batch) error {
	w.mu.Lock()
	for _, i := range b.AppendKept(nil) {
		w.sent[strings.TrimSpace(string(b.Text(i)))] = true
	}
	w.mu.Unlock()
	select {
	case <-w.open:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// request returns the body and a header of a request.
func (w *unsentRun) request(k int) (text, header string) {
	text = fmt.Sprintf(`{"n":%d}`, k)
	if w.noKeys {
		return text, "No-Key: x"
	}
	return text, fmt.Sprintf("Idempotency-Key: %d", k)
}

// sendAll sends all requests at once, and checks their states.
func (w *unsentRun) sendAll() {
	w.t.Helper()
	var group sync.WaitGroup
	for k := range unsentRequests {
		group.Go(func() {
			text, header := w.request(k)
			a, err := w.try("/", strings.NewReader(text), header)
			if err != nil || a.status != 503 {
				w.t.Errorf("request %d: %v %v", k, a, err)
				return
			}
			w.states[k] = a.header.Get(httpserver.StateHeader)
		})
	}
	group.Wait()
	w.mu.Lock()
	defer w.mu.Unlock()
	untaken := 0
	for k, state := range w.states {
		if state == "untaken" {
			untaken++
			if text, _ := w.request(k); w.sent[text] {
				w.t.Errorf("request %d was sent to a worker, and its state is untaken", k)
			}
		}
	}
	if untaken == 0 || len(w.sent) == 0 {
		w.t.Errorf("%d requests untaken, %d sent; want some of both", untaken, len(w.sent))
	}
}

// repeat lets the workers answer, and repeats the requests.
func (w *unsentRun) repeat() {
	w.t.Helper()
	close(w.open)
	for k, state := range w.states {
		if w.noKeys && state == "unknown" {
			continue // it is delivered without a repetition
		}
		text, header := w.request(k)
		if a := w.persist("/", text, header); a.status != 200 {
			w.t.Errorf("repeated request %d: %d %s", k, a.status, a.body)
		}
	}
}
