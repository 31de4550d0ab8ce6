package supervise_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/penstock-io/penstock/supervise"
)

type traceKey struct{}

// traceHandler adds the trace id of the context, as handlers of OpenTelemetry do.
type traceHandler struct{ slog.Handler }

func (h traceHandler) Handle(ctx context.Context, r slog.Record) error {
	if id, ok := ctx.Value(traceKey{}).(string); ok {
		r.AddAttrs(slog.String("trace", id))
	}
	return h.Handler.Handle(ctx, r)
}

func textLog(buf *bytes.Buffer) slog.Handler {
	return slog.NewTextHandler(buf, &slog.HandlerOptions{Level: slog.LevelDebug,
		ReplaceAttr: func(groups []string, a slog.Attr) slog.Attr {
			if a.Key == slog.TimeKey && len(groups) == 0 || a.Key == "stack" {
				return slog.Attr{}
			}
			return a
		}})
}

// TestLogTo checks that LogTo logs one line per event, with the context of Serve and with each
// error split into its parts.
func TestLogTo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var buf bytes.Buffer
		sup := newSupervisor(t, "root", supervise.Spec{
			Backoff: fixed(s), Intensity: supervise.Intensity{Max: 1, Within: 60 * s},
			OnEvent: supervise.LogTo(slog.New(traceHandler{textLog(&buf)})),
		}, supervise.Child{Name: "a", Run: func(ctx context.Context) error {
			<-ctx.Done()
			return nil
		}},
			supervise.Child{Name: "b", Run: func(context.Context) error { panic("out of paper") }})
		if err := sup.Serve(context.WithValue(t.Context(), traceKey{}, "t1")); err == nil {
			t.Error("no escalation")
		}
		same(t, buf.String(),
			`level=INFO msg="child started" supervisor=root child=a incarnation=1 trace=t1
level=INFO msg="child started" supervisor=root child=b incarnation=1 trace=t1
level=WARN msg="child failed" supervisor=root child=b incarnation=1 restart=true delay=1s err.msg="b: panic: out of paper" trace=t1
level=INFO msg="child started" supervisor=root child=b incarnation=2 trace=t1
level=WARN msg="child failed" supervisor=root child=b incarnation=2 restart=false err.msg="b: panic: out of paper" trace=t1
level=ERROR msg="supervisor gave up" supervisor=root child=b `+
				`err.msg="supervisor \"root\" gave up at child \"b\": more than 1 restarts within 1m0s" err.supervisor=root err.child=b `+
				`err.reason="more than 1 restarts within 1m0s" err.last_error="b: panic: out of paper" trace=t1
level=DEBUG msg="child told to stop" supervisor=root child=a incarnation=1 `+
				`err.msg="supervisor \"root\" gave up at child \"b\": more than 1 restarts within 1m0s" err.supervisor=root err.child=b `+
				`err.reason="more than 1 restarts within 1m0s" err.last_error="b: panic: out of paper" trace=t1
level=INFO msg="child ended" supervisor=root child=a incarnation=1 ran=1s restart=false trace=t1
`)
	})
}

// TestEventsHaveTheContextOfTheirServe checks that nested supervisors call the hook of the
// supervisor above with their own context.
func TestEventsHaveTheContextOfTheirServe(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		var got []string
		sub := newSupervisor(t, "sub", supervise.Spec{},
			supervise.Child{Name: "a", Restart: supervise.Temporary,
				Run: func(context.Context) error { return nil }})
		root := newSupervisor(t, "root",
			supervise.Spec{OnEvent: func(ctx context.Context, e supervise.Event) {
				mu.Lock()
				defer mu.Unlock()
				got = append(got, fmt.Sprint(e.Supervisor, " ", e.Kind, " ", ctx.Value(traceKey{})))
			}}, supervise.Child{Name: "sub", Run: func(ctx context.Context) error {
				return sub.Serve(context.WithValue(ctx, traceKey{}, "below"))
			}})
		ctx, cancel := context.WithTimeout(context.WithValue(t.Context(), traceKey{}, "above"), s)
		defer cancel()
		_ = root.Serve(ctx) // ends with the timeout
		slices.Sort(got)    // the two supervisors run side by side
		want := "root ended above|root started above|root stopping above|root/sub ended " +
			"below|root/sub started below"
		if text := strings.Join(got, "|"); text != want {
			t.Errorf("events %s\nwant %s", text, want)
		}
	})
}

// TestErrorsAsLogValues checks that errors log their parts and that errors.Is finds the errors they
// wrap.
func TestErrorsAsLogValues(t *testing.T) {
	for name, c := range map[string]struct {
		err  error
		want string
	}{
		"stuck": {&supervise.StuckError{Supervisor: "root", Children: []string{"a", "b/c"}},
			`err.msg="supervisor \"root\": did not stop in time: a, b/c: they must return when their context ends" ` +
				`err.supervisor=root err.children="[a b/c]"`},
		"dead": {&supervise.DeadError{Reason: supervise.ErrAge, Err: errCrash, Attempts: 3},
			`err.msg="given up after 3 attempts: supervise: the message is too old: crash" err.attempts=3 ` +
				`err.reason="supervise: the message is too old"`},
		"goexit": {&supervise.PanicError{Name: "a"}, `err.msg="a: runtime.Goexit was called"`},
	} {
		var buf bytes.Buffer
		slog.New(textLog(&buf)).Error("x", "err", c.err)
		if got := strings.TrimSpace(buf.String()); got != "level=ERROR msg=x "+c.want {
			t.Errorf("%s: %s\nwant %s", name, got, c.want)
		}
	}
	if err := error(&supervise.PanicError{Name: "a", Value: errCrash}); !errors.Is(err, errCrash) {
		t.Error("a panic with an error does not wrap it")
	}
}

func TestOverflowHasNames(t *testing.T) {
	var got []string
	for o := supervise.Block; o <= supervise.Spill+1; o++ {
		text, err := o.MarshalText()
		if err != nil || string(text) != o.String() {
			t.Errorf("%q, %v", text, err)
		}
		got = append(got, o.String())
	}
	if text := strings.Join(got, "|"); text != "block|reject|drop oldest|spill|unknown (4)" {
		t.Error(text)
	}
}

// TestEscalationHoldsTheLastFailureFirst checks that errors.As finds the failure that came last.
func TestEscalationHoldsTheLastFailureFirst(t *testing.T) {
	err := &supervise.EscalatedError{Errs: []error{
		&net.DNSError{Name: "first"}, errors.New("between"), &net.DNSError{Name: "last"},
	}}
	if e, ok := errors.AsType[*net.DNSError](err); !ok || e.Name != "last" {
		t.Errorf("found %v, want the last failure", e)
	}
}
