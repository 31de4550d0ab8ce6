package limit_test

import (
	"bytes"
	"log/slog"
	"testing"
	"time"

	"github.com/penstock-io/penstock/limit"
)

func TestRefusedErrorInALog(t *testing.T) {
	for _, v := range []struct {
		err  limit.RefusedError
		want string
	}{
		{
			limit.RefusedError{Reason: limit.QueueFull},
			`err.msg="concurrency limit: queue is full" err.reason="queue is full"` + "\n",
		},
		{
			limit.RefusedError{Reason: limit.DeadlineSoon, Wait: time.Second},
			`err.msg="concurrency limit: deadline is too soon (expected wait 1s)" err.reason="deadline is too soon" err.wait=1s` + "\n",
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
