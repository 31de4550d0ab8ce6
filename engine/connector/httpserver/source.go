// Package httpserver implements the source http_server, to which clients send records over HTTP.
//
// By default, a request is answered when every route has settled its records, that is, delivered,
// dead-lettered or dropped them. The source then writes no data to disk, so clients must wait while
// a receiver is slow. With the option `ack: buffered`, a request is answered as soon as a buffer on
// disk has its records (package buffer). The source reserves memory before it reads a body.
//
// If a request is not settled at its deadline, the source withdraws its records, and the response
// says so. If a worker may have received some of the records, they cannot be withdrawn. The response
// then tells the client that the outcome is unknown.
//
// The records are kept in an intake (package intake). The port is open as long as the source runs.
package httpserver

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	nethttp "net/http"
	"time"

	"github.com/penstock-io/penstock/engine/kit/intake"
	"github.com/penstock-io/penstock/engine/kit/listen"
	"github.com/penstock-io/penstock/engine/kit/push"
	"github.com/penstock-io/penstock/engine/kit/registry"
	"github.com/penstock-io/penstock/flow"
	"github.com/penstock-io/penstock/stream"
)

// Source returns the component http_server.
func Source() stream.Component {
	return stream.NewComponent(stream.SourceRole, "http_server", DefaultOptions, New)
}

// Server is the source http_server.
type Server struct {
	*push.Server
	o      Options
	host   stream.Host
	log    *slog.Logger
	keys   *keys
	window flow.Receiver

	service service
	decode  decoder
	server  *nethttp.Server
	bound   chan struct{} // closed when address is set
	addr    net.Addr
}

// New returns a source. Its port is not open yet.
func New(o Options, h stream.Host) (*Server, error) {
	if err := o.Validate(); err != nil {
		return nil, err
	}
	s := &Server{
		o: o, host: h, log: h.Log(),
		service: service{slots: o.Slots}, window: flow.Receiver{Slots: o.Slots},
		keys: newKeys(o.Idempotency), decode: decoders[o.Format], bound: make(chan struct{}),
	}
	var err error
	in := intake.Options{Name: "http " + o.Listen, Objects: o.Format != Lines,
		Remember: o.Idempotency}
	if s.Server, err = push.NewServer(&s.o.ServerOptions, in, h); err != nil {
		return nil, err
	}
	s.server = s.newServer()
	h.Count("requests_repeated", 0)
	h.Go("http_server/listen", s.serve)
	h.Go("http_server/stop", s.stop)
	if o.Register.URL != "" {
		h.Go("http_server/register", s.register)
	}
	return s, nil
}

// Addr returns the address of the port. It waits until the port is open.
func (s *Server) Addr(ctx context.Context) (net.Addr, error) {
	select {
	case <-s.bound:
		return s.addr, nil
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// closeGrace bounds the time for the last responses after the source has stopped.
const closeGrace = time.Second

// newServer returns the HTTP server that the method serve runs and the method stop ends.
func (s *Server) newServer() *nethttp.Server {
	return &nethttp.Server{
		Handler: s.handler(), ReadHeaderTimeout: s.o.HeaderTime, IdleTimeout: s.o.IdleTime,
		MaxHeaderBytes: int(s.o.MaxHeader), ErrorLog: slog.NewLogLogger(s.log.Handler(), slog.LevelDebug),
		ConnState: func(c net.Conn, state nethttp.ConnState) {
			setIdle(c, state == nethttp.StateIdle || state == nethttp.StateNew)
		},
		HTTP2: &nethttp.HTTP2Config{MaxConcurrentStreams: 100},
	}
}

// serve handles requests until stop ends the server.
func (s *Server) serve(ctx context.Context) error {
	inner, err := net.Listen("tcp", s.o.Listen)
	if err != nil {
		return fmt.Errorf("listen: %w", err)
	}
	limited := listen.Limit(inner, s.o.Connections)
	defer func() { _ = limited.Close() }() // already closed, unless Serve failed
	s.server.BaseContext = func(net.Listener) context.Context { return ctx }
	if s.o.TLS.On() {
		if s.server.TLSConfig, err = s.o.TLS.Config(s.log, "h2", "http/1.1"); err != nil {
			return err
		}
	}
	s.addr = inner.Addr()
	close(s.bound)
	s.log.Info("listening", "address", s.addr.String(), "format", s.o.Format, "tls", s.o.TLS.On())
	if s.o.TLS.On() {
		err = s.server.ServeTLS(limited, "", "")
	} else {
		err = s.server.Serve(limited)
	}
	if errors.Is(err, nethttp.ErrServerClosed) {
		return nil
	}
	return err
}

// register answers senders that look for workers. It does not answer while the source drains.
func (s *Server) register(ctx context.Context) error {
	addr, err := s.Addr(ctx)
	if err != nil {
		return nil // the source stopped before its port was open
	}
	r := &s.o.Register
	address := cmp.Or(r.Address, addr.String())
	ready := func() bool { return !s.IsDraining() }
	return registry.Announce(ctx, r.Options, r.Subject, address, ready, s.log)
}

// stop ends the server when ctx is done.
func (s *Server) stop(ctx context.Context) error {
	<-ctx.Done()
	grace, cancel := context.WithTimeout(context.WithoutCancel(ctx), closeGrace)
	defer cancel()
	if s.server.Shutdown(grace) != nil {
		_ = s.server.Close() // clients see that they have got no response
	}
	return nil
}

// setIdle notes whether a connection is idle. c may be a TLS connection, which wraps the
// connection of the listener.
func setIdle(c net.Conn, idle bool) {
	if t, ok := c.(interface{ NetConn() net.Conn }); ok {
		c = t.NetConn()
	}
	if l, ok := c.(*listen.Conn); ok {
		l.SetIdle(idle)
	}
}
