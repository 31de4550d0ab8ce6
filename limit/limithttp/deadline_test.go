package limithttp_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"testing"
	"testing/synctest"
	"time"

	"github.com/penstock-io/penstock/limit"
	"github.com/penstock-io/penstock/limit/limithttp"
)

// TestHandlerDeadlineInQueue checks that a request gets 503 if its context ends while it waits, for
// example by a deadline that an outer handler has set. Without a response net/http would send 200.
func TestHandlerDeadlineInQueue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		release := make(chan bool)
		h := &limithttp.Handler{
			Next:    http.HandlerFunc(func(http.ResponseWriter, *http.Request) { <-release }),
			Limiter: limit.Fixed(1),
		}
		go h.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest(http.MethodGet, "/", nil))
		synctest.Wait()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		answer := httptest.NewRecorder()
		h.ServeHTTP(answer, httptest.NewRequest(http.MethodGet, "/", nil).WithContext(ctx))
		if answer.Code != http.StatusServiceUnavailable ||
			answer.Header().Get("Retry-After") == "" {
			t.Errorf("the answer is %d with Retry-After %q", answer.Code,
				answer.Header().Get("Retry-After"))
		}
		close(release)
	})
}
