package retry_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net/http"
	"os"
	"time"

	"github.com/penstock-io/penstock/backoff"
	"github.com/penstock-io/penstock/retry"
)

// Only what is named is retried: here files that are not there yet, and not those that may not be read.
func ExampleOnly() {
	attempts := 0
	err := retry.Do(context.Background(), func(context.Context) error {
		if attempts++; attempts < 3 {
			return fmt.Errorf("open spool: %w", fs.ErrNotExist)
		}
		return fmt.Errorf("open spool: %w", fs.ErrPermission)
	}, retry.Policy(backoff.Fixed(0)), retry.Classify(retry.Only(retry.On(retry.Retry, fs.ErrNotExist))))
	fmt.Println(err)
	// Output: retry: not worth another attempt after 3 attempts: open spool: permission denied
}

// An expired token is renewed once, and the attempt after that begins at once.
func ExampleRefreshWith() {
	expired, token := errors.New("token has expired"), "old"
	err := retry.Do(context.Background(), func(context.Context) error {
		fmt.Println("call with the", token, "token")
		if token == "old" {
			return expired
		}
		return nil
	}, retry.Classify(retry.On(retry.Refresh, expired)),
		retry.RefreshWith(func(context.Context) error { token = "new"; return nil }))
	fmt.Println(err)
	// Output:
	// call with the old token
	// call with the new token
	// <nil>
}

// The key is the same in every attempt, and in the retries within them: the receiver knows the second copy by it.
func ExampleKey() {
	calls := 0
	_ = retry.Do(context.Background(), func(ctx context.Context) error {
		a, _ := retry.FromContext(ctx)
		fmt.Println("attempt", a.Number, "Idempotency-Key:", a.Key)
		if calls++; calls < 2 {
			return errors.New("no answer")
		}
		return nil
	}, quick, retry.Key("order-42"))
	// Output:
	// attempt 1 Idempotency-Key: order-42
	// attempt 2 Idempotency-Key: order-42
}

// A wait that would outlive the deadline is not begun: the caller learns at once what it would learn then.
func ExampleErrDeadline() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	begun := time.Now()
	err := retry.Do(ctx, func(context.Context) error { return errors.New("down") }, retry.Policy(backoff.Fixed(time.Hour)))
	fmt.Println(errors.Is(err, retry.ErrDeadline), errors.Is(err, context.DeadlineExceeded), time.Since(begun) < time.Minute)
	// Output: true true true
}

// Three layers of three attempts are three calls: the inner ones leave it to the outer one.
func ExampleNested() {
	calls := 0
	three := []retry.Option{retry.Policy(backoff.Fixed(0)), retry.MaxAttempts(3)}
	layer := func(op func(context.Context) error, opts ...retry.Option) func(context.Context) error {
		return func(ctx context.Context) error { return retry.Do(ctx, op, append(opts, three...)...) }
	}
	call := func(context.Context) error { calls++; return errors.New("down") }
	_ = layer(layer(layer(call)))(context.Background())
	fmt.Println(calls)
	calls = 0
	_ = layer(layer(layer(call, retry.Nested()), retry.Nested()))(context.Background())
	fmt.Println(calls)
	// Output:
	// 3
	// 27
}

func ExampleRetryAfter() {
	now := time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	for _, h := range []http.Header{
		{"Retry-After": {"120"}},
		{"Retry-After": {"Sat, 21 Nov 2026 12:00:30 GMT"}},
		{"Ratelimit": {`"burst";r=0;t=5, "daily";r=100;t=40000`}},
		{},
	} {
		fmt.Println(retry.RetryAfter(h, now))
	}
	// Output:
	// 2m0s true
	// 30s true
	// 5s true
	// 0s false
}

func ExampleLogTo() {
	plain := func(_ []string, a slog.Attr) slog.Attr {
		if a.Key == slog.TimeKey || a.Key == "elapsed" || a.Key == "wait" {
			return slog.Attr{}
		}
		return a
	}
	log := slog.New(slog.NewTextHandler(os.Stdout, &slog.HandlerOptions{ReplaceAttr: plain}))
	calls := 0
	_ = retry.Do(context.Background(), func(context.Context) error {
		if calls++; calls == 1 {
			return errors.New("connection refused")
		}
		return nil
	}, quick, retry.OnEvent(retry.LogTo(log, "mail")))
	// Output:
	// level=INFO msg="will try again" name=mail attempt=1 err="connection refused"
	// level=INFO msg="succeeded after failures" name=mail attempts=2
}
