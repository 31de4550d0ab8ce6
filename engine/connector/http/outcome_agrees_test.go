package http

import (
	"errors"
	nethttp "net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/penstock-io/penstock/flow"
	"github.com/penstock-io/penstock/flow/control"
)

// The library's flow.HTTPOutcome and the sink judge every status alike, where the sink has no
// idempotency key.
func TestLibraryJudgesAlike(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		now := time.Now()
		for status := 100; status < 700; status++ {
			for _, retryAfter := range []string{"", "7", "Sat, 01 Jan 2000 00:01:00 GMT", "86400", "soon"} {
				resp := &nethttp.Response{StatusCode: status, Header: nethttp.Header{}}
				if retryAfter != "" {
					resp.Header.Set("Retry-After", retryAfter)
				}
				want := judge(status, false, retryAfter, now)
				if got := verdictOf(flow.HTTPOutcome(resp)); got != want {
					t.Errorf("%d with Retry-After %q: the library says %+v, the sink %+v", status, retryAfter, got, want)
				}
			}
		}
	})
}

func verdictOf(err error) verdict {
	if err == nil {
		return verdict{outcome: control.Delivered}
	}
	if e, ok := errors.AsType[*flow.Throttled](err); ok {
		return verdict{outcome: control.Throttled, after: e.After}
	}
	if _, ok := errors.AsType[*flow.Rejected](err); ok {
		return verdict{outcome: control.Rejected}
	}
	if _, ok := errors.AsType[*flow.Misconfigured](err); ok {
		return verdict{outcome: control.Misconfigured}
	}
	return verdict{outcome: control.Retryable}
}
