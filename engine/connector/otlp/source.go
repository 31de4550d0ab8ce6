// Package otlp implements the source otlp. OpenTelemetry clients and collectors send logs to it
// over gRPC. For the same records over HTTP, use the source http_server with format otlp.
//
// A request is answered when every route has settled its records. The source reserves room for the
// largest message before it reads one, which bounds the memory of all connections. If there is no
// room, or if a request is not settled by its deadline, the client gets a retryable status with
// RetryInfo.
//
// The source owns its listener and its gRPC server. The intake owns the records.
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

	"github.com/penstock-io/penstock/engine/kit/buffer"
	"github.com/penstock-io/penstock/engine/kit/intake"
	"github.com/penstock-io/penstock/engine/kit/listen"
	"github.com/penstock-io/penstock/stream"
	"github.com/penstock-io/penstock/supervise"
)

// Source returns the component otlp.
func Source() stream.Component {
	return stream.NewComponent(stream.SourceRole, "otlp", DefaultOptions, New)
}

// Server is the source.
type Server struct {
	*intake.Intake
	routes stream.Source // read by the routes: the intake, or a buffer after it
	o      Options
	host   stream.Host
	ring   *listen.Keyring
	pace   intake.Pace
	reads  *readLimit
	bound  chan net.Addr // buffer of 1
}

// New returns a source. Its port is not open yet.
func New(o Options, h stream.Host) (*Server, error) {
	if err := o.Validate(); err != nil {
		return nil, err
	}
	waiting, routes, err := buffer.New(o.Ack, o.Buffer, o.MaxRecord, intake.Options{
		Name: "otlp " + o.Listen, MaxBytes: int64(o.Memory), Objects: true, Refuse: true,
	}, h)
	if err != nil {
		return nil, err
	}
	s := &Server{
		Intake: waiting, routes: routes, o: o, host: h, ring: listen.NewKeyring(o.Token, o.Tokens),
		reads: newReadLimit(o.ReadTime), bound: make(chan net.Addr, 1),
	}
	for _, name := range []string{
		"requests", "bytes_received", "requests_refused", "requests_unauthorized", "requests_busy",
		"requests_withdrawn", "requests_unknown", "records_refused",
	} {
		h.Count(name, 0)
	}
	h.Go("otlp/listen", s.serve)
	h.Go("otlp/slow", s.reads.run)
	return s, nil
}

// Open implements stream.Source.
func (s *Server) Open(ctx context.Context, o stream.OpenOptions) (stream.Reader, error) {
	if o.Once {
		return nil, listen.ErrOnce
	}
	return s.routes.Open(ctx, o)
}

// Bound returns a channel that receives the address when the port is open.
func (s *Server) Bound() <-chan net.Addr { return s.bound }

const (
	// maxStreams bounds the concurrent requests of one connection.
	maxStreams = 100
	// maxHeader bounds the header of a request in bytes.
	maxHeader = 32 << 10
	// handshakeTime bounds the time from accepting a connection to its first HTTP/2 frame.
	handshakeTime = 10 * time.Second
	// ioBuffer is the size of each of the two buffers of a connection.
	ioBuffer = 8 << 10
	// minPing is the minimum time between two keepalive pings of a client.
	minPing = 10 * time.Second
	// closeGrace bounds the time for responses after the source stops.
	closeGrace = time.Second
)

// serve handles requests until ctx is done.
func (s *Server) serve(ctx context.Context) error {
	inner, err := net.Listen("tcp", s.o.Listen)
	if err != nil {
		return fmt.Errorf("listen: %w", err)
	}
	conns := newConnections(listen.Limit(inner, s.o.Connections))
	defer func() { _ = conns.Close() }() // closed already, unless serve fails
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

// stop ends a server after its requests, or after closeGrace. Clients notice that the remaining
// requests got no response.
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
		grpc.KeepaliveParams(keepalive.ServerParameters{MaxConnectionIdle: s.o.IdleTime}),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{
			MinTime: minPing, PermitWithoutStream: true,
		}),
	}
}
