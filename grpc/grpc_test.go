package penstockgrpc_test

import (
	"context"
	"errors"
	"io"
	"net"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/test/bufconn"

	"github.com/penstock-io/penstock/backoff"
	"github.com/penstock-io/penstock/breaker"
	"github.com/penstock-io/penstock/flow/window"
	penstockgrpc "github.com/penstock-io/penstock/grpc"
	"github.com/penstock-io/penstock/limit"
	"github.com/penstock-io/penstock/retry"
)

// service answers each call as the test says.
type service struct {
	grpc_testing.UnimplementedTestServiceServer
	calls atomic.Int64
	unary func(ctx context.Context, call int) error
	// stream sends responses until it returns.
	stream func(s grpc_testing.TestService_StreamingOutputCallServer, call int) error
}

func (s *service) UnaryCall(
	ctx context.Context, _ *grpc_testing.SimpleRequest,
) (*grpc_testing.SimpleResponse, error) {
	if err := s.unary(ctx, int(s.calls.Add(1))); err != nil {
		return nil, err
	}
	return &grpc_testing.SimpleResponse{Username: "served"}, nil
}

func (s *service) StreamingOutputCall(
	_ *grpc_testing.StreamingOutputCallRequest,
	stream grpc_testing.TestService_StreamingOutputCallServer,
) error {
	return s.stream(stream, int(s.calls.Add(1)))
}

// start runs a real server in this process and returns a client of it.
func start(
	t *testing.T, s *service, server penstockgrpc.Server, client penstockgrpc.Client,
) grpc_testing.TestServiceClient {
	t.Helper()
	listener := bufconn.Listen(1 << 16)
	g := grpc.NewServer(server.ServerOptions()...)
	grpc_testing.RegisterTestServiceServer(g, s)
	served := make(chan error, 1)
	go func() { served <- g.Serve(listener) }()
	conn, err := grpc.NewClient("passthrough:///test", append(client.DialOptions(),
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) {
			return listener.DialContext(ctx)
		}))...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		conn.Close()
		g.Stop()
		if err := <-served; err != nil {
			t.Error(err)
		}
	})
	return grpc_testing.NewTestServiceClient(conn)
}

func call(t *testing.T, client grpc_testing.TestServiceClient) error {
	t.Helper()
	_, err := client.UnaryCall(t.Context(), &grpc_testing.SimpleRequest{})
	return err
}

func fixedBreaker(t *testing.T, failures int) *breaker.Breaker {
	t.Helper()
	b, err := breaker.New(breaker.Options{Failures: failures, Wait: backoff.Fixed(time.Hour)})
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// TestRetry checks that the code decides whether a call is retried. Methods that are not idempotent
// are not repeated if they may have run.
func TestRetry(t *testing.T) {
	for _, c := range []struct {
		code       codes.Code
		idempotent bool
		calls      int64
	}{
		{codes.OK, false, 1},
		{codes.Unavailable, false, 3},
		{codes.NotFound, true, 1},
		{codes.ResourceExhausted, true, 1},
		{codes.Internal, false, 1},
		{codes.Internal, true, 3},
		{codes.Aborted, true, 3},
	} {
		s := &service{unary: func(context.Context, int) error {
			return status.Error(c.code, "as told")
		}}
		client := start(t, s, penstockgrpc.Server{}, penstockgrpc.Client{
			Retry: &retry.Options{MaxAttempts: 3, Policy: backoff.Fixed(0)},
			Idempotent: func(method string) bool {
				return c.idempotent && method == grpc_testing.TestService_UnaryCall_FullMethodName
			},
		})
		if err := call(t, client); status.Code(err) != c.code || s.calls.Load() != c.calls {
			t.Errorf("%v (idempotent: %t): %d calls and %v, want %d", c.code, c.idempotent,
				s.calls.Load(), err, c.calls)
		}
	}
}

// TestRetrySucceeds checks that the client gets the reply of the last attempt.
func TestRetrySucceeds(t *testing.T) {
	s := &service{unary: func(_ context.Context, call int) error {
		if call < 3 {
			return status.Error(codes.Unavailable, "not yet")
		}
		return nil
	}}
	client := start(t, s, penstockgrpc.Server{},
		penstockgrpc.Client{Retry: &retry.Options{Policy: backoff.Fixed(0)}})
	reply, err := client.UnaryCall(t.Context(), &grpc_testing.SimpleRequest{})
	if err != nil || reply.GetUsername() != "served" || s.calls.Load() != 3 {
		t.Errorf("reply %v, err %v after %d calls; want a reply after 3", reply, err,
			s.calls.Load())
	}
}

// TestBreaker checks that a client's breaker opens for failures of the server, and not for refusals
// of requests.
func TestBreaker(t *testing.T) {
	s := &service{unary: func(_ context.Context, call int) error {
		if call <= 5 {
			return status.Error(codes.InvalidArgument, "bad request")
		}
		return status.Error(codes.Internal, "broken")
	}}
	b := fixedBreaker(t, 3)
	client := start(t, s, penstockgrpc.Server{}, penstockgrpc.Client{Breaker: b})
	for range 8 {
		_ = call(t, client)
	}
	if b.State() != breaker.Open {
		t.Fatalf("%v after 5 bad requests and 3 failures, want open", b.State())
	}
	err := call(t, client)
	open, ok := errors.AsType[*breaker.OpenError](err)
	if !ok || open.Wait <= 0 || status.Code(err) != codes.Unavailable || s.calls.Load() != 8 {
		t.Errorf("%v after %d calls; want Unavailable of an open breaker after 8", err,
			s.calls.Load())
	}
}

// TestServerSheds checks that a server beyond its limit refuses with ResourceExhausted and a retry
// delay, and that a client with retries follows it.
func TestServerSheds(t *testing.T) { synctest.Test(t, testServerSheds) }

func testServerSheds(t *testing.T) {
	const roundTrip = time.Millisecond
	first, release := make(chan struct{}), make(chan struct{})
	s := &service{unary: func(_ context.Context, call int) error {
		switch call {
		case 1: // the limiter learns the round trip
			time.Sleep(roundTrip)
		case 2:
			close(first)
			<-release
		}
		return nil
	}}
	limiter, err := limit.New(limit.Options{Window: window.Fixed{Size: 1}, MaxWaiting: -1})
	if err != nil {
		t.Fatal(err)
	}
	server := penstockgrpc.Server{Limit: limiter}
	plain := start(t, s, server, penstockgrpc.Client{})
	if err := call(t, plain); err != nil {
		t.Fatal(err)
	}
	held := make(chan error, 1)
	go func() { held <- call(t, plain) }()
	<-first
	if err := call(t, plain); status.Code(err) != codes.ResourceExhausted {
		t.Errorf("a call beyond the limit returned %v, want ResourceExhausted", err)
	}

	retries := 0
	retrying := start(t, s, server, penstockgrpc.Client{Retry: &retry.Options{
		Policy: backoff.Fixed(0), MaxElapsed: time.Minute,
		OnEvent: func(_ context.Context, e retry.Event) {
			if e.Kind == retry.AttemptFailed {
				if e.Wait < roundTrip || e.Wait > roundTrip*11/10 {
					t.Errorf("the retry waits %v, want the hint of 1ms to 1.1ms", e.Wait)
				}
				if retries++; retries == 2 {
					close(release)
				}
			}
		},
	}})
	if err := call(t, retrying); err != nil || retries < 2 {
		t.Errorf("%v after %d retries, want success after at least 2", err, retries)
	}
	if err := <-held; err != nil {
		t.Error(err)
	}
}

// TestServerBreaker checks that a breaker in the server refuses calls after two failures of the
// handler. The breaker passes the handler's errors on unchanged. Here they have no status, so the
// client sees the code Unknown.
func TestServerBreaker(t *testing.T) {
	s := &service{unary: func(context.Context, int) error { return errors.New("database is down") }}
	client := start(t, s, penstockgrpc.Server{Breaker: fixedBreaker(t, 2)}, penstockgrpc.Client{})
	for i, want := range []codes.Code{codes.Unknown, codes.Unknown, codes.Unavailable} {
		if err := call(t, client); status.Code(err) != want {
			t.Errorf("call %d returned %v, want %v", i, err, want)
		}
	}
	if s.calls.Load() != 2 {
		t.Errorf("the handler ran %d times, want 2", s.calls.Load())
	}
}

// TestStreams checks that a stream holds one permit of the client and one of the server until it
// ends in any way.
func TestStreams(t *testing.T) {
	hang := make(chan struct{})
	defer close(hang)
	s := &service{stream: func(stream grpc_testing.TestService_StreamingOutputCallServer,
		call int) error {
		if err := stream.Send(&grpc_testing.StreamingOutputCallResponse{}); err != nil {
			return err
		}
		switch call {
		case 2:
			return status.Error(codes.Internal, "broken")
		case 3:
			select {
			case <-stream.Context().Done():
			case <-hang:
			}
		}
		return nil
	}}
	atClient, atServer := limit.Fixed(1), limit.Fixed(1)
	client := start(t, s, penstockgrpc.Server{Limit: atServer},
		penstockgrpc.Client{Limit: atClient})
	for i, want := range []error{io.EOF, status.Error(codes.Internal, "broken"), context.Canceled,
		io.EOF} {
		// A permit that is not freed fails the next stream.
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		stream, err := client.StreamingOutputCall(ctx, &grpc_testing.StreamingOutputCallRequest{})
		if err != nil {
			t.Fatalf("stream %d: %v", i, err)
		}
		if _, err := stream.Recv(); err != nil {
			t.Fatalf("stream %d: %v", i, err)
		}
		if n := atClient.Status().InFlight; n != 1 {
			t.Errorf("stream %d: %d in flight while it runs, want 1", i, n)
		}
		if want == context.Canceled {
			cancel()
			continue
		}
		if _, err := stream.Recv(); status.Code(err) != status.Code(want) ||
			(want == io.EOF) != (err == io.EOF) {
			t.Errorf("stream %d ended with %v, want %v", i, err, want)
		}
		cancel()
	}
	if n := atClient.Status().InFlight; n != 0 {
		t.Errorf("%d in flight in the end, want 0", n)
	}
}
