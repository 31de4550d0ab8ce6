package retry_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/penstock-io/penstock/backoff"
	"github.com/penstock-io/penstock/retry"
)

func TestLoop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var begun time.Time
		var starts []time.Duration
		var loop retry.Loop
		attempts := loop.Attempts(t.Context(), retry.Options{Policy: fixed, Key: "k"})
		for range 2 { // each range is a new retry
			begun, starts = time.Now(), nil
			for ctx := range attempts {
				starts = append(starts, time.Since(begun))
				a := retry.FromContext(ctx)
				if a.Number != len(starts) || a.Key != "k" {
					t.Errorf("attempt %d reads %+v from its context", len(starts), a)
				}
				if a.Number < 3 {
					loop.End(errDown)
					loop.End(nil) // the first call counts
					continue
				}
				loop.End(nil)
			}
			if err := loop.Err(); err != nil || !slices.Equal(starts, seconds(0, 1, 2)) {
				t.Errorf("%v, attempts at %v", err, starts)
			}
		}
	})
}

func TestLoopEnds(t *testing.T) {
	dead, cancel := context.WithCancel(t.Context())
	cancel()
	for _, c := range []struct {
		name     string
		ctx      context.Context
		body     func(l *retry.Loop) (leave bool)
		attempts int
		stop     string // the end of the error; empty: success
	}{
		{"exhausted", t.Context(), func(l *retry.Loop) bool { l.End(errDown); return false }, 4,
			"(no attempts left, attempt 4)"},
		{"permanent", t.Context(), func(l *retry.Loop) bool {
			l.End(retry.Permanent(errDown))
			return false
		}, 1, "(not retryable, attempt 1)"},
		{"left without End", t.Context(), func(*retry.Loop) bool { return true }, 1, ""},
		{"went on without End", t.Context(), func(*retry.Loop) bool { return false }, 1,
			"loop left"},
		{"left after a failure", t.Context(), func(l *retry.Loop) bool {
			l.End(errDown)
			return true
		}, 1, "(loop left, attempt 1)"},
		{"left after a success", t.Context(), func(l *retry.Loop) bool { l.End(nil); return true },
			1, ""},
		{"dead context", dead, func(*retry.Loop) bool { t.Error("it ran"); return true }, 0,
			"context canceled"},
	} {
		t.Run(c.name, func(t *testing.T) {
			var loop retry.Loop
			for range 3 {
				n := 0
				atMost4 := retry.Options{Policy: backoff.Fixed(0), MaxAttempts: 4}
				for range loop.Attempts(c.ctx, atMost4) {
					n++
					if c.body(&loop) {
						break
					}
				}
				err := loop.Err()
				if c.stop == "" && err != nil || c.stop != "" &&
					(err == nil || !strings.HasSuffix(err.Error(), c.stop)) {
					t.Errorf("%v, want %q", err, c.stop)
				}
				if e, ok := errors.AsType[*retry.Error](err); n != c.attempts || ok &&
					e.Attempts != n {
					t.Errorf("%d attempts, %v; want %d", n, err, c.attempts)
				}
			}
		})
	}
}

func TestLoopAttemptTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		begun := time.Now()
		o := retry.Options{Policy: fixed, AttemptTimeout: 2 * time.Second, MaxAttempts: 2}
		var loop retry.Loop
		for ctx := range loop.Attempts(t.Context(), o) {
			<-ctx.Done()
			loop.End(context.Cause(ctx))
		}
		if err := loop.Err(); !errors.Is(err, retry.ErrAttemptTimeout) ||
			time.Since(begun) != 5*time.Second {
			t.Errorf("%v after %v", err, time.Since(begun))
		}
	})
}

// TestLoopMisuse checks that a Loop does not use the state of a range after the range, because
// later loops reuse it.
func TestLoopMisuse(t *testing.T) {
	for name, misuse := range map[string]func(*retry.Loop){
		"End before a range": func(l *retry.Loop) { l.End(nil) },
		"End after a range": func(l *retry.Loop) {
			for range l.Attempts(t.Context()) {
				l.End(nil)
			}
			l.End(errDown)
		},
		"a range within a range": func(l *retry.Loop) {
			for ctx := range l.Attempts(t.Context()) {
				for range l.Attempts(ctx) {
					t.Error("it ran")
				}
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			defer func() {
				if recover() == nil {
					t.Error("no panic")
				}
			}()
			misuse(new(retry.Loop))
		})
	}
}

// TestLoopAfterAPanic checks that a Loop can be used again after its body panicked.
func TestLoopAfterAPanic(t *testing.T) {
	var loop retry.Loop
	func() {
		defer func() { _ = recover() }()
		for range loop.Attempts(t.Context()) {
			panic("body")
		}
	}()
	ran := false
	for range loop.Attempts(t.Context()) {
		ran = true
		loop.End(nil)
	}
	if !ran || loop.Err() != nil {
		t.Errorf("after a panic: ran %v, error %v", ran, loop.Err())
	}
}
