package rate_test

import (
	"bytes"
	"log/slog"
	"testing"
	"time"

	"github.com/penstock-io/penstock/rate"
)

func TestRefusedErrorInALog(t *testing.T) {
	for _, v := range []struct {
		err  rate.RefusedError
		want string
	}{
		{
			rate.RefusedError{Reason: rate.QueueFull},
			`err.msg="rate limit: queue is full" err.reason="queue is full"` + "\n",
		},
		{
			rate.RefusedError{Reason: rate.DeadlineSoon, Wait: time.Second},
			`err.msg="rate limit: deadline is too soon (expected wait 1s)" err.reason="deadline is too soon" err.wait=1s` + "\n",
		},
	} {
		var out bytes.Buffer
		log := slog.New(slog.NewTextHandler(&out, &slog.HandlerOptions{ReplaceAttr: onlyErr}))
		log.Info("", "err", &v.err)
		if out.String() != v.want {
			t.Errorf("logged %q, want %q", out.String(), v.want)
		}
	}
}

// onlyErr leaves out the attributes of every record.
func onlyErr(groups []string, a slog.Attr) slog.Attr {
	if len(groups) == 0 {
		return slog.Attr{}
	}
	return a
}
