// Package penstockgrpc has interceptors for grpc-go with the retries, circuit breakers and
// concurrency limits of Penstock.
//
//	breaker, err := breaker.New(breaker.Options{})
//	...
//	limiter, err := limit.New(limit.Options{})
//	...
//	client := penstockgrpc.Client{Retry: &retry.Options{}, Breaker: breaker, Limit: limiter}
//	conn, err := grpc.NewClient(target, client.DialOptions()...)
//
// A [Server] limits the calls that are handled at once. Further calls wait in the limiter's queue,
// or are refused if the queue is full or the wait is too long:
//
//	server := grpc.NewServer(penstockgrpc.Server{Limit: limiter}.ServerOptions()...)
//
// A refused call fails with the status ResourceExhausted (limit) or Unavailable (breaker). If the
// expected wait is known, the status has a google.rpc.RetryInfo, which a [Client] with Retry
// follows. In the process that refused the call, errors.As finds the *limit.RefusedError or
// *breaker.OpenError that the error wraps.
//
// Package penstockconnect is the same for Connect (connectrpc.com/connect).
package penstockgrpc

import (
	"errors"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/penstock-io/penstock/grpc/internal/guard"
)

// statusError is an error of this process with the status that gRPC reports for it.
type statusError struct {
	error
	status *status.Status
}

// Unwrap returns the error itself.
func (e *statusError) Unwrap() error { return e.error }

// GRPCStatus implements the interface that package status looks for.
func (e *statusError) GRPCStatus() *status.Status { return e.status }

// withStatus adds a gRPC status to err if err is a refusal by the breaker or the limiter, or the
// error of an ended context. It returns all other errors, such as those of handlers, unchanged.
func withStatus(err error) error {
	if err == nil || hasStatus(err) {
		return err
	}
	code, refused := guard.RefusalCode(err)
	if !refused {
		if code = guard.ContextCode(err); code == guard.Unknown {
			return err
		}
	}
	s := status.New(codes.Code(code), err.Error())
	if wait := guard.Hint(err); refused && wait > 0 {
		if detailed, failed := s.WithDetails(
			&errdetails.RetryInfo{RetryDelay: durationpb.New(wait)}); failed == nil {
			s = detailed
		}
	}
	return &statusError{err, s}
}

func hasStatus(err error) bool {
	_, ok := errors.AsType[interface {
		error
		GRPCStatus() *status.Status
	}](err)
	return ok
}

// codeOf returns the gRPC status code of err.
func codeOf(err error) uint32 {
	if err != nil && !hasStatus(err) {
		return guard.ContextCode(err)
	}
	return uint32(status.Code(err))
}

// retryDelay returns the wait that the status of err requests, or zero.
func retryDelay(err error) time.Duration {
	s, ok := status.FromError(err)
	if !ok {
		return 0
	}
	for _, d := range s.Details() {
		if info, ok := d.(*errdetails.RetryInfo); ok {
			return max(info.GetRetryDelay().AsDuration(), 0)
		}
	}
	return 0
}
