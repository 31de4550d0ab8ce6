package penstockconnect_test

import (
	"context"
	"errors"
	"net"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/grpc/test/bufconn"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/penstock-io/penstock/backoff"
	"github.com/penstock-io/penstock/breaker"
	"github.com/penstock-io/penstock/flow/window"
	"github.com/penstock-io/penstock/grpc/penstockconnect"
	"github.com/penstock-io/penstock/limit"
	"github.com/penstock-io/penstock/retry"
)

type (
	text   = wrapperspb.StringValue
	client = connect.Client[text, text]
)

const (
	unary  = "/test.Service/Unary"
	stream = "/test.Service/Stream"
)

// start runs a real server in this process and returns clients of its unary and its streaming
// procedure. They are connected in memory, so a test in a bubble of testing/synctest works too.
func start(
	t *testing.T, handle func(call int64) error, atServer, atClient *penstockconnect.Interceptor,
	opts ...connect.ClientOption,
) (*client, *client, *atomic.Int64) {
	t.Helper()
	calls := new(atomic.Int64)
	intercepted := connect.WithInterceptors(atServer)
	mux := http.NewServeMux()
	mux.Handle(unary, connect.NewUnaryHandler(unary,
		func(context.Context, *connect.Request[text]) (*connect.Response[text], error) {
			if err := handle(calls.Add(1)); err != nil {
				return nil, err
			}
			return connect.NewResponse(wrapperspb.String("served")), nil
		}, intercepted))
	mux.Handle(stream, connect.NewServerStreamHandler(stream,
		func(_ context.Context, _ *connect.Request[text], s *connect.ServerStream[text]) error {
			if err := s.Send(wrapperspb.String("first")); err != nil {
				return err
			}
			return handle(calls.Add(1))
		}, intercepted))
	listener := bufconn.Listen(1 << 16)
	server := &httptest.Server{Listener: listener, Config: &http.Server{Handler: mux}}
	server.Start()
	dial := func(ctx context.Context, _, _ string) (net.Conn, error) {
		return listener.DialContext(ctx)
	}
	transport := &http.Transport{DialContext: dial}
	t.Cleanup(func() {
		transport.CloseIdleConnections()
		server.Close()
	})
	opts = append(opts, connect.WithInterceptors(atClient))
	inMemory := &http.Client{Transport: transport}
	return connect.NewClient[text, text](inMemory, "http://test"+unary, opts...),
		connect.NewClient[text, text](inMemory, "http://test"+stream, opts...), calls
}

func call(t *testing.T, c *client) error {
	t.Helper()
	_, err := c.CallUnary(t.Context(), connect.NewRequest(wrapperspb.String("")))
	return err
}

// TestRetry checks that codes and the declared idempotency decide about retries.
func TestRetry(t *testing.T) {
	for _, c := range []struct {
		code       connect.Code
		idempotent bool
		calls      int64
	}{
		{connect.CodeUnavailable, false, 3},
		{connect.CodeNotFound, true, 1},
		{connect.CodeInternal, false, 1},
		{connect.CodeInternal, true, 3},
	} {
		opts := []connect.ClientOption{}
		if c.idempotent {
			opts = append(opts, connect.WithIdempotency(connect.IdempotencyIdempotent))
		}
		guarded := &penstockconnect.Interceptor{Retry: &retry.Options{MaxAttempts: 3,
			Policy: backoff.Fixed(0)}}
		client, _, calls := start(t, func(int64) error {
			return connect.NewError(c.code, errors.New("as told"))
		},
			&penstockconnect.Interceptor{}, guarded, opts...)
		if err := call(t, client); connect.CodeOf(err) != c.code || calls.Load() != c.calls {
			t.Errorf("%v (idempotent: %t): %d calls and %v, want %d", c.code, c.idempotent,
				calls.Load(), err, c.calls)
		}
	}
}

// TestShedAndRetry checks that a server beyond its limit returns a retry delay, and that a client
// with retries follows it.
func TestShedAndRetry(t *testing.T) { synctest.Test(t, testShedAndRetry) }

func testShedAndRetry(t *testing.T) {
	const roundTrip = time.Millisecond
	first, release := make(chan struct{}), make(chan struct{})
	limiter, err := limit.New(limit.Options{Window: window.Fixed{Size: 1}, MaxWaiting: -1})
	if err != nil {
		t.Fatal(err)
	}
	retries := 0
	client, _, _ := start(t, func(call int64) error {
		switch call {
		case 1: // the limiter learns the round trip
			time.Sleep(roundTrip)
		case 2:
			close(first)
			<-release
		}
		return nil
	}, &penstockconnect.Interceptor{Limit: limiter},
		&penstockconnect.Interceptor{Retry: &retry.Options{
			Policy: backoff.Fixed(0), MaxElapsed: time.Minute,
			OnEvent: func(_ context.Context, e retry.Event) {
				if e.Kind == retry.AttemptFailed {
					if connect.CodeOf(e.Err) != connect.CodeResourceExhausted ||
						e.Wait < roundTrip || e.Wait > roundTrip*11/10 {
						t.Errorf("%v, %v; want resource_exhausted, 1ms to 1.1ms", e.Err, e.Wait)
					}
					if retries++; retries == 2 {
						close(release)
					}
				}
			},
		}})
	if err := call(t, client); err != nil {
		t.Fatal(err)
	}
	held := make(chan error, 1)
	go func() { held <- call(t, client) }()
	<-first
	if err := call(t, client); err != nil || retries < 2 {
		t.Errorf("%v after %d retries, want success after at least 2", err, retries)
	}
	if err := <-held; err != nil {
		t.Error(err)
	}
}

// TestBreaker checks that a client's breaker opens for failures of the server, for streams as for
// unary calls.
func TestBreaker(t *testing.T) {
	b, err := breaker.New(breaker.Options{Failures: 2, Wait: backoff.Fixed(time.Hour)})
	if err != nil {
		t.Fatal(err)
	}
	broken := connect.NewError(connect.CodeInternal, errors.New("broken"))
	client, streaming, calls := start(t, func(int64) error { return broken },
		&penstockconnect.Interceptor{}, &penstockconnect.Interceptor{Breaker: b})
	if err := call(t, client); connect.CodeOf(err) != connect.CodeInternal {
		t.Fatal(err)
	}
	if err := read(t, streaming); connect.CodeOf(err) != connect.CodeInternal {
		t.Fatal(err)
	}
	for _, err := range []error{call(t, client), read(t, streaming)} {
		if _, ok := errors.AsType[*breaker.OpenError](err); !ok ||
			connect.CodeOf(err) != connect.CodeUnavailable {
			t.Errorf("%v, want unavailable of an open breaker", err)
		}
	}
	if calls.Load() != 2 {
		t.Errorf("%d calls reached the server, want 2", calls.Load())
	}
}

// read reads a stream to its end.
func read(t *testing.T, c *client) error {
	t.Helper()
	s, err := c.CallServerStream(t.Context(), connect.NewRequest(wrapperspb.String("")))
	if err != nil {
		return err
	}
	defer s.Close()
	for s.Receive() {
	}
	return s.Err()
}

// TestStreams checks that a stream holds a permit of the client and of the server until it ends or
// is closed.
func TestStreams(t *testing.T) {
	atClient, atServer := limit.Fixed(1), limit.Fixed(1)
	_, streaming, _ := start(t, func(int64) error { return nil },
		&penstockconnect.Interceptor{Limit: atServer},
		&penstockconnect.Interceptor{Limit: atClient})
	for i := range 3 {
		s, err := streaming.CallServerStream(t.Context(), connect.NewRequest(wrapperspb.String("")))
		if err != nil {
			t.Fatal(err)
		}
		if n := atClient.Status().InFlight; n != 1 {
			t.Errorf("stream %d: %d in flight while it runs, want 1", i, n)
		}
		if i != 1 {
			for s.Receive() {
			}
		}
		if err := errors.Join(s.Err(), s.Close()); err != nil {
			t.Fatal(err)
		}
	}
	if n := atClient.Status().InFlight; n != 0 {
		t.Errorf("%d in flight in the end, want 0", n)
	}
}
