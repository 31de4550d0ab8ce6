package retry_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"time"

	"github.com/penstock-io/penstock/backoff"
	"github.com/penstock-io/penstock/retry"
)

// A classifier can make Fail the default. Here only a file that does not exist yet is worth a
// retry.
func ExampleOptions_classifyOnly() {
	attempts := 0
	err := retry.Do(context.Background(), func(context.Context) error {
		if attempts++; attempts < 3 {
			return fmt.Errorf("open spool: %w", fs.ErrNotExist)
		}
		return fmt.Errorf("open spool: %w", fs.ErrPermission)
	}, retry.Options{Policy: backoff.Fixed(0), Classify: func(err error) retry.Action {
		if errors.Is(err, fs.ErrNotExist) {
			return retry.Retry
		}
		return retry.Fail
	}})
	fmt.Println(err)
	// Output: open spool: permission denied (not retryable, attempt 3)
}

// An expired token is renewed, and the next attempt begins at once.
func ExampleOptions_refresh() {
	expired, token := errors.New("token has expired"), "old"
	err := retry.Do(context.Background(), func(context.Context) error {
		fmt.Println("call with the", token, "token")
		if token == "old" {
			return expired
		}
		return nil
	}, retry.Options{
		Classify: func(err error) retry.Action {
			if errors.Is(err, expired) {
				return retry.Refresh
			}
			return retry.Undecided
		},
		Refresh: func(context.Context) error { token = "new"; return nil },
	})
	fmt.Println(err)
	// Output:
	// call with the old token
	// call with the new token
	// <nil>
}

// The key is the same in every attempt, and in the retries inside them, so the receiver can
// recognize the second copy.
func ExampleOptions_key() {
	calls := 0
	_ = retry.Do(context.Background(), func(ctx context.Context) error {
		a := retry.FromContext(ctx)
		fmt.Println("attempt", a.Number, "Idempotency-Key:", a.Key)
		if calls++; calls < 2 {
			return errors.New("connection lost")
		}
		return nil
	}, retry.Options{Policy: quick, Key: "order-42"})
	// Output:
	// attempt 1 Idempotency-Key: order-42
	// attempt 2 Idempotency-Key: order-42
}

// A wait that would outlive the deadline is not begun: the caller gets the error at once.
func ExampleDo_deadline() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	begun := time.Now()
	err := retry.Do(ctx, func(context.Context) error {
		return errors.New("down")
	}, retry.Options{Policy: backoff.Fixed(time.Hour)})
	fmt.Println(errors.Is(err, context.DeadlineExceeded), time.Since(begun) < time.Minute)
	// Output: true true
}

// Three layers of three attempts are 27 calls, or three if the outermost layer suppresses the
// retries inside it.
func ExampleOptions_suppressNested() {
	for _, suppress := range []bool{false, true} {
		calls := 0
		call := func(context.Context) error { calls++; return errors.New("down") }
		three := retry.Options{Policy: backoff.Fixed(0), MaxAttempts: 3}
		outermost := three
		outermost.SuppressNested = suppress
		_ = retry.Do(context.Background(), func(ctx context.Context) error {
			return retry.Do(ctx, func(ctx context.Context) error {
				return retry.Do(ctx, call, three)
			}, three)
		}, outermost)
		fmt.Println(calls)
	}
	// Output:
	// 27
	// 3
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
	}, retry.Options{Policy: quick, OnEvent: retry.LogTo(log, "mail")})
	// Output:
	// level=INFO msg="attempt failed" name=mail attempt=1 err="connection refused"
	// level=INFO msg="succeeded after retries" name=mail attempts=2
}

// Logged with slog, an error is a group of attributes.
func ExampleError_LogValue() {
	log := slog.New(slog.NewJSONHandler(os.Stdout,
		&slog.HandlerOptions{ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
			if a.Key == slog.TimeKey {
				return slog.Attr{}
			}
			return a
		}}))
	err := retry.Do(context.Background(), func(context.Context) error {
		return retry.Permanent(errors.New("no table"))
	})
	log.Warn("copy failed", "err", err)
	log.Warn("copy failed", "err",
		&retry.StatusError{Status: 503, Text: "503 Service Unavailable", Wait: time.Second})
	// Output:
	// {"level":"WARN","msg":"copy failed","err":{"msg":"no table","reason":"retry: not retryable","attempts":1,"elapsed":0,"waited":0}}
	// {"level":"WARN","msg":"copy failed","err":{"msg":"503 Service Unavailable","status":503,"wait":1000000000}}
}
