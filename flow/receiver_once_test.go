package flow_test

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"runtime"
	"testing"
	"time"

	"github.com/penstock-io/penstock/flow"
)

// TestReceiverCountsOnce checks that a second call of serve or done, such as by a defer, has no
// effect.
func TestReceiverCountsOnce(t *testing.T) {
	r := &flow.Receiver{Slots: 2}
	serve, done := r.Begin("s", 1, 0)
	serve()
	serve()
	first := done()
	if again := done(); again != first {
		t.Errorf("done gives %v, and again %v", first, again)
	}
	for n := range 5 {
		_, done := r.Begin("s", 1, 0)
		if g := done(); g.Taken != uint64(n+2) || g.QueueLen != 0 {
			t.Errorf("batch %d: taken %d, %d waiting", n+2, g.Taken, g.QueueLen)
		}
	}
}

// TestReceiverEarlyHints checks that an interim response does not count as the response: the batch
// counts as served when the final response begins.
func TestReceiverEarlyHints(t *testing.T) {
	inside := make(chan struct{})
	finish := make(chan struct{})
	r := &flow.Receiver{Slots: 1}
	server := httptest.NewServer(
		r.Handler(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(http.StatusEarlyHints)
			close(inside)
			<-finish
			_, _ = io.WriteString(w, "ok")
		})))
	defer server.Close()
	answers := make(chan *http.Response)
	go func() {
		answer, err := http.Post(server.URL, "text/plain", nil)
		if err != nil {
			t.Error(err)
		}
		answers <- answer
	}()
	<-inside
	const served = 3 * time.Millisecond
	for from := time.Now(); time.Since(from) < served; {
		runtime.Gosched()
	}
	close(finish)
	answer := <-answers
	if answer == nil {
		return
	}
	defer answer.Body.Close()
	g, ok := flow.ParseGrant(answer.Header.Get(flow.CreditHeader))
	if !ok || g.Taken != 1 || g.Service < served {
		t.Errorf("the answer grants %+v, %v, after a service of at least %v", g, ok, served)
	}
	if all := answer.Header.Values(flow.CreditHeader); len(all) != 1 {
		t.Errorf("the answer has %d grants", len(all))
	}
}

// TestReceiverCanceled checks that a request that is canceled while it waits does not count as
// served.
func TestReceiverCanceled(t *testing.T) {
	inside, finish := make(chan struct{}), make(chan struct{})
	r := &flow.Receiver{Slots: 1}
	handler := r.Handler(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		close(inside)
		<-finish
	}))
	request := func(ctx context.Context, code int) (flow.Report, bool) {
		req := httptest.NewRequestWithContext(ctx, http.MethodPost, "/", nil)
		req.Header.Set(flow.SenderHeader, "s")
		w := httptest.NewRecorder()
		handler.ServeHTTP(w, req)
		if w.Code != code {
			t.Errorf("status %d, want %d", w.Code, code)
		}
		return flow.ParseGrant(w.Header().Get(flow.CreditHeader))
	}
	type grant struct {
		flow.Report
		ok bool
	}
	served := make(chan grant)
	go func() {
		report, ok := request(t.Context(), http.StatusOK)
		served <- grant{report, ok}
	}()
	<-inside
	canceled, cancel := context.WithCancel(t.Context())
	cancel()
	for range 10 {
		request(canceled, http.StatusServiceUnavailable)
	}
	close(finish)
	if g := <-served; !g.ok || g.Taken != 1 || g.QueueLen != 0 {
		t.Errorf("the grant is %+v, want 1 taken and none waiting", g)
	}
}

// TestReceiverFlush checks that a response that begins with a flush has a grant.
func TestReceiverFlush(t *testing.T) {
	r := &flow.Receiver{Slots: 1}
	server := httptest.NewServer(
		r.Handler(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			if err := http.NewResponseController(w).Flush(); err != nil {
				t.Error(err)
			}
		})))
	defer server.Close()
	resp, err := http.Post(server.URL, "text/plain", nil)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if _, ok := flow.ParseGrant(resp.Header.Get(flow.CreditHeader)); !ok {
		t.Errorf("the header is %v, want a grant", resp.Header)
	}
}
