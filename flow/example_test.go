package flow_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync/atomic"

	"github.com/penstock-io/penstock/flow"
)

// Example posts words to five URLs, each at the pace that its server can bear.
func Example() {
	var received atomic.Int64
	var urls []string
	for range 5 {
		server := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
			received.Add(1)
		}))
		defer server.Close()
		urls = append(urls, server.URL)
	}
	words := slices.Values(strings.Fields("the quick brown fox jumps over the lazy dog"))
	err := flow.Each(context.Background(), words, urls,
		func(ctx context.Context, url, word string) error {
			req, err := http.NewRequestWithContext(ctx, http.MethodPost, url,
				strings.NewReader(word))
			if err != nil {
				return &flow.Misconfigured{Err: err}
			}
			resp, err := http.DefaultClient.Do(req)
			if err != nil {
				return err // the word is sent again, perhaps to another server
			}
			defer resp.Body.Close()
			return flow.HTTPOutcome(resp)
		})
	fmt.Println(err, received.Load())
	// Output: <nil> 9
}
