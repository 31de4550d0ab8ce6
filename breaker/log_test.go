package breaker_test

import (
	"bytes"
	"log/slog"
	"testing"
	"time"

	"github.com/penstock-io/penstock/breaker"
)

func TestOpenErrorInALog(t *testing.T) {
	for _, v := range []struct {
		err  breaker.OpenError
		want string
	}{
		{
			breaker.OpenError{Wait: 3 * time.Second},
			`err.msg="circuit breaker is open: next probe in 3s" err.state=open err.wait=3s` + "\n",
		},
		{
			breaker.OpenError{},
			`err.msg="circuit breaker is half-open: a probe is under way" err.state=half-open` +
				"\n",
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
