package compare

import (
	"net/http"
	"time"

	"github.com/platinummonkey/go-concurrency-limits/core"
	"github.com/platinummonkey/go-concurrency-limits/limit"
	"github.com/platinummonkey/go-concurrency-limits/limiter"
	"github.com/platinummonkey/go-concurrency-limits/strategy"

	"github.com/penstock-io/penstock/limit/limithttp"
)

// oursLimiter limits the concurrent calls of a client and of a server.
func oursLimiter(next http.Handler) (*http.Client, http.Handler, error) {
	return &http.Client{Transport: &limithttp.Transport{}}, &limithttp.Handler{Next: next}, nil
}

// theirsLimiter limits the concurrent calls of a client and of a server with go-concurrency-limits.
// Its client has one limit for all hosts.
func theirsLimiter(next http.Handler) (*http.Client, http.Handler, error) {
	client, err := theirsLimiterNew()
	if err != nil {
		return nil, nil, err
	}
	server, err := theirsLimiterNew()
	if err != nil {
		return nil, nil, err
	}
	handler := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		token, ok := server.Acquire(r.Context())
		if !ok {
			w.Header().Set("Retry-After", "1")
			w.WriteHeader(http.StatusServiceUnavailable)
			return
		}
		defer token.OnSuccess()
		next.ServeHTTP(w, r)
	})
	return &http.Client{Transport: theirsLimiterTransport{client}}, handler, nil
}

func theirsLimiterNew() (core.Limiter, error) {
	algorithm := limit.NewDefaultGradient2Limit("", limit.NoopLimitLogger{},
		core.EmptyMetricRegistryInstance)
	l, err := limiter.NewDefaultLimiter(algorithm, 1e9, 1e9, 1e5, 100,
		strategy.NewSimpleStrategy(20),
		limit.NoopLimitLogger{}, core.EmptyMetricRegistryInstance)
	if err != nil {
		return nil, err
	}
	return limiter.NewFifoBlockingLimiter(l, 1000, time.Minute), nil
}

type theirsLimiterTransport struct{ limiter core.Limiter }

func (t theirsLimiterTransport) RoundTrip(req *http.Request) (*http.Response, error) {
	token, ok := t.limiter.Acquire(req.Context())
	if !ok {
		return nil, errUnavailable
	}
	resp, err := http.DefaultTransport.RoundTrip(req)
	if err != nil || resp.StatusCode == http.StatusTooManyRequests {
		token.OnDropped()
	} else {
		token.OnSuccess()
	}
	return resp, err
}
