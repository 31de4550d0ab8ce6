package http_test

import (
	"context"
	nethttp "net/http"
	"testing"

	"github.com/penstock-io/penstock/engine/connector/http"
	"github.com/penstock-io/penstock/stream"
)

// TestConflict delivers a batch to a receiver that responds with 409 while it processes an earlier
// request with the same key. The earlier request fails in the end, so the 409 is no delivery.
func TestConflict(t *testing.T) {
	began, fail, failed := make(chan struct{}), make(chan struct{}), make(chan struct{})
	first, busy := true, true
	url := answering(t, func(w nethttp.ResponseWriter, r *nethttp.Request) {
		switch {
		case first:
			first = false
			close(began)
			<-fail
			busy = false
			w.WriteHeader(nethttp.StatusInternalServerError)
			close(failed)
		case busy:
			w.WriteHeader(nethttp.StatusConflict)
		}
	})
	lane := rawTo(t, url, nil)
	accepting := rawTo(t, url, func(o *http.Options) { o.Accept = "status == 409" })
	b := lines(new(stream.Pool), 10, 20)
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		<-began
		cancel() // the time limit of the attempt
	}()
	if err := deliver(ctx, lane, b); err == nil {
		t.Fatal("an interrupted attempt counts as delivered")
	}
	checkRetryable(t, deliver(t.Context(), lane, b))
	if err := deliver(t.Context(), accepting, b); err != nil {
		t.Errorf("with accept: %v", err)
	}
	close(fail)
	<-failed
	if err := deliver(t.Context(), lane, b); err != nil {
		t.Errorf("after the failure of the first request: %v", err)
	}
}
