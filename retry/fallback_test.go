package retry_test

import (
	"context"
	"errors"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/penstock-io/penstock/retry"
)

// TestFallbackFailure checks the error if the fallback fails, too. errors.As finds the failure of
// the fallback first, and the error is a timeout if the failure of the fallback is one.
func TestFallbackFailure(t *testing.T) {
	once := retry.Options{MaxAttempts: 1}
	fail := func(err error) func(context.Context) (int, error) {
		return func(context.Context) (int, error) { return 0, err }
	}
	instead := func(err error) func(context.Context, error) (int, error) {
		return func(context.Context, error) (int, error) { return 0, err }
	}
	notFound := &retry.StatusError{Status: 404}
	_, err := retry.Fallback(t.Context(), fail(&retry.StatusError{Status: 503}), instead(notFound),
		once)
	if e, _ := errors.AsType[*retry.StatusError](err); e == nil || e.Status != 404 {
		t.Errorf("%v is found in %v, want the 404 of the fallback", e, err)
	}
	if e, ok := errors.AsType[*retry.Error](err); !ok || e.Attempts != 1 {
		t.Errorf("%v holds no *Error of the retry", err)
	}
	_, err = retry.Fallback(t.Context(), fail(errDown), instead(os.ErrDeadlineExceeded), once)
	if !os.IsTimeout(err) {
		t.Errorf("%v is no timeout", err)
	}
	client := http.Client{Transport: &retry.Transport{
		Next:    roundTripFunc(func(*http.Request) (*http.Response, error) { return nil, errDown }),
		Options: once,
		Fallback: func(*http.Request, error) (*http.Response, error) {
			return nil, os.ErrDeadlineExceeded
		},
	}}
	if _, err = client.Get("http://service.test/"); !os.IsTimeout(err) || !errors.Is(err, errDown) {
		t.Errorf("%v, want a timeout that holds the failure of the retry", err)
	}
}

// TestBudgetsIgnoreTheCauseOfACancellation checks that budgets ignore a failure that is only the
// cause of the caller's cancellation, because it says nothing about the service.
func TestBudgetsIgnoreTheCauseOfACancellation(t *testing.T) {
	for name, b := range map[string]retry.Budget{
		"throttle":     retry.Throttle(2, rand.NewPCG(1, 2)),
		"token bucket": retry.TokenBucket(10, 5, 1),
	} {
		for range 1000 {
			ctx, cancel := context.WithCancelCause(t.Context())
			err := retry.Do(ctx, func(ctx context.Context) error {
				cancel(errors.New("user left"))
				return context.Cause(ctx)
			}, retry.Options{Budget: b})
			if errors.Is(err, retry.ErrBudget) {
				t.Fatalf("%s: %v", name, err)
			}
		}
	}
}

// TestErrorsAsLogValues checks that errors of the package are logged as groups of attributes. An
// error of Permanent or After must be logged like its cause.
func TestErrorsAsLogValues(t *testing.T) {
	var out strings.Builder
	drop := func(groups []string, a slog.Attr) slog.Attr {
		if len(groups) == 0 && a.Key != "err" {
			return slog.Attr{}
		}
		return a
	}
	log := slog.New(slog.NewTextHandler(&out, &slog.HandlerOptions{ReplaceAttr: drop}))
	status := &retry.StatusError{Status: 503, Text: "503 Service Unavailable"}
	_, both := retry.Fallback(t.Context(),
		func(context.Context) (int, error) { return 0, status },
		func(context.Context, error) (int, error) { return 0, errDown },
		retry.Options{MaxAttempts: 1})
	for _, err := range []error{
		retry.Permanent(status), retry.After(time.Second, nil), both,
		&retry.PanicError{Value: "oops", Stack: []byte("here")},
	} {
		log.Info("", "err", err)
	}
	for _, want := range []string{
		`err.msg="503 Service Unavailable" err.status=503` + "\n", `err="retry after 1s"`,
		`err.msg="service is down" err.retry.msg="503 Service Unavailable" err.retry.reason="retry: no`,
		`err.msg=oops err.stack=here`,
	} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("no %s in\n%s", want, out.String())
		}
	}
}
