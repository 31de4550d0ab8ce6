package retry_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/penstock-io/penstock/backoff"
	"github.com/penstock-io/penstock/retry"
)

// chunks is a body that returns one chunk per Read. A test can hold it in the middle: the Read of
// the second chunk sends to the channel begun, and then waits until the channel release is closed.
type chunks struct {
	left           []string
	begun, release chan struct{}
}

func (c *chunks) Read(p []byte) (int, error) {
	if len(c.left) == 0 {
		return 0, io.EOF
	}
	text := c.left[0]
	c.left = c.left[1:]
	if strings.HasPrefix(text, "second") {
		c.begun <- struct{}{}
		<-c.release
	}
	return copy(p, text), nil
}

func (c *chunks) Close() error { return nil }

// TestTransportOverflowOfAStaleReader checks that a body is never sent in part, even if a read of
// an earlier attempt exceeds MaxBuffer when the next attempt has already begun.
func TestTransportOverflowOfAStaleReader(t *testing.T) {
	body := &chunks{left: []string{"first ", "second ", "third"}, begun: make(chan struct{}, 1),
		release: make(chan struct{})}
	attempts := 0
	rt := &retry.Transport{
		MaxBuffer: 10,
		Options:   atOnce,
		Next: roundTripFunc(func(req *http.Request) (*http.Response, error) {
			if attempts++; attempts == 1 {
				go func() { _, _ = io.Copy(io.Discard, req.Body) }()
				<-body.begun
				return nil, errDown
			}
			close(body.release)
			sent, err := io.ReadAll(req.Body)
			if err != nil {
				return nil, err
			}
			t.Errorf("attempt %d sent %q", attempts, sent)
			return &http.Response{StatusCode: 200, Body: http.NoBody, Request: req}, nil
		}),
	}
	resp, err := rt.RoundTrip(httptest.NewRequest(http.MethodPut, "http://service.test/", body))
	if !errors.Is(err, retry.ErrNotRepeatable) {
		t.Errorf("RoundTrip returned %v, %v, want ErrNotRepeatable", resp, err)
	}
}

// onlyFirst is a budget that refuses all retries.
type onlyFirst struct{}

func (onlyFirst) Allow(ctx context.Context) error {
	if retry.FromContext(ctx).Number > 1 {
		return errors.New("no retries")
	}
	return nil
}

func (onlyFirst) Report(context.Context, error) {}

// TestTransportFreesTheConnection checks that a response is read and closed before the wait, and
// that RoundTrip nevertheless returns it whole if the budget refuses the next attempt.
func TestTransportFreesTheConnection(t *testing.T) {
	for _, size := range []int{0, 3, 64 << 10, 64<<10 + 1, 1 << 20} {
		synctest.Test(t, func(t *testing.T) {
			text := bytes.Repeat([]byte("x"), size)
			body := closer{bytes.NewReader(text), make(chan struct{})}
			rt := &retry.Transport{
				Options: retry.Options{Policy: backoff.Fixed(time.Minute), Budget: onlyFirst{}},
				Next: roundTripFunc(func(req *http.Request) (*http.Response, error) {
					return &http.Response{StatusCode: 503, Body: body, Request: req}, nil
				}),
			}
			go func() {
				time.Sleep(time.Second)
				select {
				case <-body.closed:
				default:
					if size <= 64<<10 {
						t.Errorf("a body of %d bytes is open during the wait", size)
					}
				}
			}()
			begun := time.Now()
			resp, err := rt.RoundTrip(
				httptest.NewRequest(http.MethodGet, "http://service.test/", nil))
			if err != nil || time.Since(begun) != time.Minute {
				t.Fatalf("after %v: %v", time.Since(begun), err)
			}
			if got, err := io.ReadAll(resp.Body); !bytes.Equal(got, text) || err != nil {
				t.Errorf("read %d of %d bytes, %v", len(got), size, err)
			}
			if err := resp.Body.Close(); err != nil {
				t.Error(err)
			}
			<-body.closed
		})
	}
}

// TestTransportElapsed checks that Error.Elapsed counts from the call if AttemptTimeout is set.
func TestTransportElapsed(t *testing.T) {
	o := retry.Options{AttemptTimeout: time.Second, MaxAttempts: 2, Policy: backoff.Fixed(0)}
	for name, call := range map[string]func(*testing.T) error{
		"transport": func(t *testing.T) error {
			rt := &retry.Transport{Options: o,
				Next: roundTripFunc(func(req *http.Request) (*http.Response, error) {
					<-req.Context().Done()
					return nil, context.Cause(req.Context())
				})}
			_, err := rt.RoundTrip(httptest.NewRequest(http.MethodGet, "http://service.test/", nil))
			return err
		},
		"value": func(t *testing.T) error {
			_, err := retry.Value(t.Context(), func(ctx context.Context) (io.ReadCloser, error) {
				<-ctx.Done()
				return nil, context.Cause(ctx)
			}, o)
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				e, ok := errors.AsType[*retry.Error](call(t))
				if !ok || e.Elapsed != 2*time.Second || e.Attempts != 2 {
					t.Errorf("failed with %v, want 2 attempts in 2 s", e)
				}
			})
		})
	}
}
