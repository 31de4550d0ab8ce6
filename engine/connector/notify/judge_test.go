package notify

import (
	nethttp "net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/penstock-io/penstock/engine/kit/expr"
	"github.com/penstock-io/penstock/stream"
)

// TestLongResponse checks responses that are longer than maxResponse. Conditions on the status and
// on headers hold, and conditions that use the body do not.
func TestLongResponse(t *testing.T) {
	for name, c := range map[string]struct {
		accept, location expr.Text
		status           int
		want             stream.ParkedCounts
	}{
		"status": {
			accept: `status == 200`, status: 200, want: stream.ParkedCounts{Delivered: 1},
		},
		"body": {
			accept: `body contains "x"`, status: 200, want: stream.ParkedCounts{Waiting: 1},
		},
		"location": {
			location: `headers.location ?? "/op"`, status: 202,
			want: stream.ParkedCounts{Waiting: 1},
		},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, dir string) {
				o := options()
				if o.Accept = c.accept; c.location != "" {
					o.Async.Location, o.Async.Done = c.location, "status == 200"
				}
				f := newFixture(t, dir, o, newMerchants(
					func(*nethttp.Request, int) (int, string, time.Duration) {
						return c.status, strings.Repeat("x", maxResponse+1), 0
					},
				), false)
				defer f.stop()
				if err := f.deliver("m1 order-1"); err != nil {
					t.Fatal(err)
				}
				time.Sleep(500 * time.Millisecond)
				synctest.Wait()
				if got := f.Parked(); got != c.want {
					t.Errorf("counts %+v, want %+v", got, c.want)
				}
			})
		})
	}
}
