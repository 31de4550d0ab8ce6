package penstockgrpc

import (
	"context"

	"google.golang.org/grpc"

	"github.com/penstock-io/penstock/breaker"
	"github.com/penstock-io/penstock/grpc/internal/guard"
	"github.com/penstock-io/penstock/limit"
)

// Server intercepts the calls to a server. A nil field adds no layer, so the zero value does
// nothing. The fields must not change once the Server is in use. A Server is safe for concurrent
// use.
type Server struct {
	// Breaker refuses calls while the handlers fail, for example because a database is down.
	Breaker *breaker.Breaker
	// Limit limits the calls that are handled at once. A stream holds its permit until its handler
	// returns.
	Limit *limit.Limiter
}

// ServerOptions returns the options for grpc.NewServer.
func (s Server) ServerOptions() []grpc.ServerOption {
	return []grpc.ServerOption{
		grpc.ChainUnaryInterceptor(s.InterceptUnary),
		grpc.ChainStreamInterceptor(s.InterceptStream),
	}
}

// InterceptUnary is a grpc.UnaryServerInterceptor.
func (s Server) InterceptUnary(
	ctx context.Context, req any, _ *grpc.UnaryServerInfo, handle grpc.UnaryHandler,
) (reply any, err error) {
	err = s.run(ctx, func(ctx context.Context) (err error) {
		reply, err = handle(ctx, req)
		return err
	})
	return reply, err
}

// InterceptStream is a grpc.StreamServerInterceptor.
func (s Server) InterceptStream(
	srv any, stream grpc.ServerStream, _ *grpc.StreamServerInfo, handle grpc.StreamHandler,
) error {
	return s.run(stream.Context(), func(context.Context) error { return handle(srv, stream) })
}

func (s Server) run(ctx context.Context, handle func(context.Context) error) error {
	return withStatus(guard.Guard{Breaker: s.Breaker, Limit: s.Limit}.Run(ctx, handle, codeOf))
}
