package httppoll

import (
	"context"
	"io"
	nethttp "net/http"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/penstock-io/penstock/engine/connector/connectortest"
	"github.com/penstock-io/penstock/stream"
)

// TestFailure checks that the source reports a failure while all requests of a route fail, and not
// after a short failure, after a success or after the route has ended.
func TestFailure(t *testing.T) {
	for _, c := range []struct {
		name   string
		status int
		header string        // Retry-After
		after  time.Duration // time of the check
		want   bool
	}{
		{"200", 200, "", time.Minute, false},
		{"502, before 10 s", 502, "", failingAfter - time.Millisecond, false},
		{"502, after 10 s", 502, "", failingAfter, true},
		{"one 429 with a long wait", 429, "60", 59 * time.Second, false},
		{"two 429", 429, "60", 61 * time.Second, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var works atomic.Bool
				server := nethttp.HandlerFunc(func(w nethttp.ResponseWriter, _ *nethttp.Request) {
					if works.Load() {
						io.WriteString(w, "[]")
						return
					}
					w.Header().Set("Retry-After", c.header)
					w.WriteHeader(c.status)
					io.WriteString(w, "[]")
				})
				s := newSource(t, server, "link", connectortest.NewHost(t), func(*Options) {})
				end := startReading(t, s)
				time.Sleep(c.after)
				synctest.Wait()
				checkFailure(t, s, c.want)
				works.Store(true)
				time.Sleep(2 * time.Minute)
				synctest.Wait()
				checkFailure(t, s, false)
				works.Store(false)
				time.Sleep(2 * time.Hour) // the next request may be due after interval.max
				synctest.Wait()
				checkFailure(t, s, c.status != 200)
				end()
				checkFailure(t, s, false)
			})
		})
	}
}

// startReading reads s in another goroutine. The returned function ends and closes the reader.
func startReading(t *testing.T, s *source) (end func()) {
	ctx, cancel := context.WithCancel(t.Context())
	r, err := s.Open(ctx, stream.OpenOptions{
		Resume: func(string) (stream.Mark, bool) { return stream.Mark{}, false },
	})
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan error)
	go func() { done <- r.Read(ctx, stream.NewBatch(stream.BatchLimits{})) }()
	return func() {
		cancel()
		if err := <-done; err != context.Canceled {
			t.Errorf("Read: %v", err)
		}
		if err := r.Close(); err != nil {
			t.Error(err)
		}
	}
}

func checkFailure(t *testing.T, s stream.Source, want bool) {
	t.Helper()
	retrying, ok := s.(stream.RetryingSource)
	if !ok {
		t.Fatal("the source does not implement stream.RetryingSource")
	}
	err := retrying.Failure()
	if (err != nil) != want {
		t.Errorf("Failure() = %v, want an error: %v", err, want)
	}
	if err != nil && !strings.Contains(err.Error(), "GET http://api.test/link: ") {
		t.Errorf("Failure() = %v, which lacks the place", err)
	}
}
