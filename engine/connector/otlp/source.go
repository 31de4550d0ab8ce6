// Package otlp implements the source otlp, which receives logs from OpenTelemetry clients and
// collectors over gRPC. For the same records over HTTP, use the source http_server with format
// otlp.
//
// By default, a request is answered when every route has settled its records (delivered,
// dead-lettered or dropped them). With ack: buffered, it is answered when the records are on disk.
// Before the source reads a message, it reserves memory for a message of maximum size. This bounds
// the memory of all connections. If no memory is free in time, or if the deadline of the request
// passes before the answer, the client gets a status with RetryInfo. RetryInfo states the wait
// after which the client repeats the request.
//
// The source has its own listener and gRPC server. It keeps the records that it has received in an
// intake (package intake).
package otlp

import (
	"context"
	"errors"
	"fmt"
	"net"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	_ "google.golang.org/grpc/encoding/gzip" // for compressed requests
	"google.golang.org/grpc/keepalive"

	"github.com/penstock-io/penstock/engine/kit/intake"
	"github.com/penstock-io/penstock/engine/kit/listen"
	"github.com/penstock-io/penstock/engine/kit/push"
	"github.com/penstock-io/penstock/stream"
	"github.com/penstock-io/penstock/supervise"
)

// Source returns the component otlp.
func Source() stream.Component {
	return stream.NewComponent(stream.SourceRole, "otlp", DefaultOptions, New)
}

// Server is the source otlp.
type Server struct {
	*push.Server
	o       Options
	host    stream.Host
	reads   *readLimit
	running runningRequests
	bound   chan net.Addr // buffer of 1
}

// New returns a source. Its port is not open yet.
func New(o Options, h stream.Host) (*Server, error) {
	if err := o.Validate(); err != nil {
		return nil, err
	}
	s := &Server{o: o, host: h, reads: newReadLimit(o.ReadTime), bound: make(chan net.Addr, 1)}
	var err error
	in := intake.Options{Name: "otlp " + o.Listen, Objects: true}
	if s.Server, err = push.NewServer(&s.o.ServerOptions, in, h); err != nil {
		return nil, err
	}
	h.Count("records_refused", 0)
	h.Go("otlp/listen", s.serve)
	h.Go("otlp/slow", s.reads.run)
	return s, nil
}

// Bound returns a channel that receives the address when the port is open.
func (s *Server) Bound() <-chan net.Addr { return s.bound }

const (
	// maxStreams bounds the concurrent requests of one connection.
	maxStreams = 100
	// maxHeader bounds the header of a request in bytes.
	maxHeader = 32 << 10
	// handshakeTime bounds the time between the start of a connection and its first HTTP/2 frame.
	handshakeTime = 10 * time.Second
	// ioBuffer is the size of each of the two buffers of a connection.
	ioBuffer = 8 << 10
	// The HTTP/2 windows of a request and of a connection are static, because gRPC otherwise
	// enlarges them up to 16 MiB. A request that waits for memory holds at most streamWindow bytes
	// of its message. So a connection holds at most maxStreams times as much: gRPC enlarges its
	// window again as soon as data has arrived, even if nobody has read it.
	streamWindow = 128 << 10
	connWindow   = 1 << 20
	// minPing is the minimum time between two keepalive pings of a client.
	minPing = 10 * time.Second
	// closeGrace bounds the time for the last responses after the source has stopped.
	closeGrace = time.Second
)

// serve handles requests until ctx is done.
func (s *Server) serve(ctx context.Context) error {
	inner, err := net.Listen("tcp", s.o.Listen)
	if err != nil {
		return fmt.Errorf("listen: %w", err)
	}
	conns := newConnections(listen.Limit(inner, s.o.Connections))
	defer func() { _ = conns.Close() }() // already closed, unless serve fails
	options := append(s.serverOptions(), grpc.StatsHandler(conns))
	if s.o.TLS.On() {
		config, err := s.o.TLS.Config(s.host.Log(), "h2")
		if err != nil {
			return err
		}
		options = append(options, grpc.Creds(credentials.NewTLS(config)))
	}
	server := grpc.NewServer(options...)
	server.RegisterService(s.service(), nil)
	s.bound <- inner.Addr()
	s.host.Log().Info("listening", "address", inner.Addr().String(), "tls", s.o.TLS.On())
	group := supervise.NewNamedGroup(context.WithoutCancel(ctx), "otlp")
	served := make(chan struct{})
	group.Go("stop", func(context.Context) error {
		select {
		case <-ctx.Done():
		case <-served:
		}
		s.running.end()
		stop(group, server)
		return nil
	})
	err = server.Serve(conns)
	close(served)
	if errors.Is(err, grpc.ErrServerStopped) {
		err = nil
	}
	return errors.Join(err, group.Wait())
}

// stop stops a server when its requests have ended, or after closeGrace. The clients of the
// remaining requests then get an error instead of a response.
func stop(group *supervise.Group, server *grpc.Server) {
	ended := make(chan struct{})
	group.Go("requests", func(context.Context) error {
		server.GracefulStop()
		close(ended)
		return nil
	})
	timer := time.NewTimer(closeGrace)
	defer timer.Stop()
	select {
	case <-ended:
	case <-timer.C:
		server.Stop()
	}
}

func (s *Server) serverOptions() []grpc.ServerOption {
	return []grpc.ServerOption{
		grpc.ForceServerCodecV2(rawCodec{}), grpc.InTapHandle(withEnd),
		grpc.MaxRecvMsgSize(int(s.o.MaxMessage)), grpc.MaxConcurrentStreams(maxStreams),
		grpc.MaxHeaderListSize(maxHeader), grpc.ConnectionTimeout(handshakeTime),
		grpc.ReadBufferSize(ioBuffer), grpc.WriteBufferSize(ioBuffer),
		grpc.StaticStreamWindowSize(streamWindow), grpc.StaticConnWindowSize(connWindow),
		grpc.KeepaliveParams(keepalive.ServerParameters{MaxConnectionIdle: s.o.IdleTime}),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{
			MinTime: minPing, PermitWithoutStream: true,
		}),
	}
}
