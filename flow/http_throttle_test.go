package flow_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"time"

	"github.com/penstock-io/penstock/flow"
)

// TestEverySeventhRequestThrottled sends items one at a time to an HTTP server that answers each
// seventh request with 429, without Retry-After. All must be delivered in half the time that they
// would take with a wait of 0.25 s after each refusal.
func TestEverySeventhRequestThrottled(t *testing.T) {
	var requests, delivered atomic.Int64
	seventh := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if requests.Add(1)%7 == 0 {
			w.WriteHeader(http.StatusTooManyRequests)
			return
		}
		delivered.Add(1)
	})
	server := httptest.NewServer(seventh)
	defer server.Close()
	client := server.Client()
	post := func(ctx context.Context, _ flow.Attempt[int]) (flow.Report, error) {
		r, err := http.NewRequestWithContext(ctx, http.MethodPost, server.URL, http.NoBody)
		if err != nil {
			return flow.Report{}, err
		}
		response, err := client.Do(r)
		if err != nil {
			return flow.Report{}, err
		}
		return flow.Report{}, errors.Join(flow.HTTPOutcome(response), response.Body.Close())
	}
	sender, err := flow.New(flow.Options[int]{Lanes: []flow.Lane[int]{
		{Name: "a", Worker: flow.WorkerFunc[int](post), Limits: flow.Limits{InFlight: 1}},
	}})
	if err != nil {
		t.Fatal(err)
	}
	const items, most = 1000, 20 * time.Second // with waits of .25 s, they would take 40 s
	ctx, cancel := context.WithTimeout(t.Context(), most)
	defer cancel()
	n := 0
	err = sender.Run(ctx, flow.ProducerFunc[int](func(context.Context) (flow.Item[int], error) {
		if n == items {
			return flow.Item[int]{}, io.EOF
		}
		n++
		return flow.Item[int]{Value: n, Bytes: 1}, nil
	}))
	if err != nil || delivered.Load() != items {
		t.Errorf("%d of %d items after %d requests: %v", delivered.Load(), items, requests.Load(),
			err)
	}
}
