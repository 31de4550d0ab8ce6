// Package syslog implements the source that receives syslog messages over UDP, TCP, TLS or a Unix
// socket: RFC 5424 and RFC 3164, with octet counting or line ends.
//
// A message that has neither format is kept whole. The protocol has no acknowledgements, so the
// limits of package socket apply.
package syslog

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"time"

	"github.com/penstock-io/penstock/engine/kit/buffer"
	"github.com/penstock-io/penstock/engine/kit/intake"
	"github.com/penstock-io/penstock/engine/kit/listen"
	"github.com/penstock-io/penstock/stream"
)

var networks = []string{"udp", "tcp", "unix", "unixgram"}

// Options are the options of the source.
type Options struct {
	Network  string         `yaml:"network" enum:"udp,tcp,unix,unixgram" doc:"kind of the socket"`
	Listen   string         `yaml:"listen" required:"true" doc:"HOST:PORT, or the path of a Unix socket"`
	Timezone string         `yaml:"timezone" doc:"of times without one: a name such as Europe/Rome, UTC, or Local"`
	Ack      string         `yaml:"ack" enum:"delivered,buffered" doc:"buffered: on disk"`
	Buffer   buffer.Options `yaml:"buffer" doc:"of ack: buffered"`

	MaxRecord   stream.Size   `yaml:"max_record" doc:"of streams: a connection with a longer message is closed"`
	Memory      stream.Size   `yaml:"memory" doc:"bytes that may wait for delivery; then reading pauses"`
	Connections int           `yaml:"connections" doc:"open at once; the one idle longest is closed for a new one"`
	IdleTime    time.Duration `yaml:"idle_timeout" doc:"until an idle connection is closed"`
	TLS         listen.TLS    `yaml:"tls" doc:"of tcp: certificates"`
	Insecure    bool          `yaml:"insecure" doc:"listen beyond loopback without client certificates"`
}

// DefaultOptions returns options that receive over UDP.
func DefaultOptions() *Options {
	return &Options{
		Ack: buffer.Delivered, Buffer: buffer.DefaultOptions(),
		Network: "udp", Timezone: "Local", MaxRecord: 64 << 10, Memory: intake.DefaultMaxBytes, Connections: 10_000,
		IdleTime: time.Hour,
	}
}

// Exclusive implements stream.ExclusiveUser.
func (o *Options) Exclusive() []string {
	if strings.HasPrefix(o.Network, "unix") {
		return []string{"socket " + o.Listen}
	}
	return listen.Exclusive(o.Network, o.Listen)
}

// Validate returns an error for a wrong option. It reads the files of tls.
func (o *Options) Validate() error {
	wrong := func(key, format string, args ...any) error {
		return &stream.OptionError{Key: key, Err: fmt.Errorf(format, args...)}
	}
	if !slices.Contains(networks, o.Network) {
		return wrong("network", "is %q, want one of %s", o.Network, strings.Join(networks, ", "))
	}
	if o.IdleTime < time.Second {
		return wrong("idle_timeout", "is %v, want 1s or more", o.IdleTime)
	}
	if _, err := time.LoadLocation(o.Timezone); err != nil {
		return wrong("timezone", "is %q, want a name such as Europe/Rome, UTC or Local", o.Timezone)
	}
	return errors.Join(
		listen.CheckSocket(o.Network, o.Listen, &o.TLS, o.Insecure),
		intake.CheckSizes(o.MaxRecord, o.Memory), listen.CheckConnections(o.Connections),
		stream.CheckEnums(o), buffer.Check(o.Ack, o.Buffer, o.MaxRecord),
	)
}

// Shape implements stream.Shaper.
func (*Options) Shape(in stream.Schema) (stream.Schema, error) {
	return stream.Schema{Fields: fields, OnError: in.OnError}, nil
}

// Source returns the component syslog.
func Source() stream.Component {
	return stream.NewComponent(stream.SourceRole, "syslog", DefaultOptions, New)
}

// Server is the source.
type Server struct {
	*intake.Intake
	routes stream.Source // read by the routes: the intake, or a buffer after it
	o      Options
	host   stream.Host
	bound  chan net.Addr // buffer of 1
}

// New returns a source. Its socket is not open yet.
func New(o Options, h stream.Host) (*Server, error) {
	if err := o.Validate(); err != nil {
		return nil, err
	}
	waiting, routes, err := buffer.New(o.Ack, o.Buffer, o.MaxRecord, intake.Options{
		Name: "syslog " + o.Network, MaxBytes: int64(o.Memory), Objects: true,
	}, h)
	if err != nil {
		return nil, err
	}
	s := &Server{Intake: waiting, routes: routes, o: o, host: h, bound: make(chan net.Addr, 1)}
	for _, counter := range append([]string{"messages_unparsed"}, listen.Counters...) {
		h.Count(counter, 0)
	}
	h.Go("syslog/listen", s.run)
	return s, nil
}

// Open implements stream.Source.
func (s *Server) Open(ctx context.Context, o stream.OpenOptions) (stream.Reader, error) {
	if o.Once {
		return nil, listen.ErrOnce
	}
	return s.routes.Open(ctx, o)
}

// Bound returns a channel that receives the address when the socket is open.
func (s *Server) Bound() <-chan net.Addr { return s.bound }

// run receives messages until ctx is done.
func (s *Server) run(ctx context.Context) error {
	zone, err := time.LoadLocation(s.o.Timezone)
	if err != nil {
		return err
	}
	bound := func(a net.Addr) { s.bound <- a }
	if s.o.Network == "udp" || s.o.Network == "unixgram" {
		p := newParser(zone, time.Now)
		d := &listen.Datagrams{
			Network: s.o.Network, Address: s.o.Listen, Intake: s.Intake, Host: s.host, Bound: bound,
			Record: func(out *intake.Records, datagram []byte, peer string) { s.add(p, out, datagram, peer) },
		}
		return d.Run(ctx)
	}
	var config *tls.Config
	if s.o.TLS.On() {
		if config, err = s.o.TLS.Config(s.host.Log()); err != nil {
			return err
		}
	}
	streams := &listen.Streams{
		Network: s.o.Network, Address: s.o.Listen, Connections: s.o.Connections, TLS: config,
		Intake: s.Intake, Log: s.host.Log(), Bound: bound,
	}
	streams.Serve = func(ctx context.Context, c net.Conn, evict func(bool)) {
		p, peer := newParser(zone, time.Now), listen.Peer(c)
		f := &frames{max: int(s.o.MaxRecord), message: func(out *intake.Records, message []byte) {
			s.add(p, out, message, peer)
		}}
		streams.Pump(ctx, c, evict, f, s.o.IdleTime, s.host)
	}
	return streams.Run(ctx)
}

// add adds the record of a message.
func (s *Server) add(p *parser, out *intake.Records, message []byte, peer string) {
	record, ok := p.parse(trimEnd(message), peer)
	if !ok {
		s.host.Count("messages_unparsed", 1)
	}
	out.Add(record)
}

// trimEnd returns a message without the line end or NUL that some senders append.
func trimEnd(message []byte) []byte {
	for n := len(message); n > 0 && strings.IndexByte("\r\n\x00", message[n-1]) >= 0; n-- {
		message = message[:n-1]
	}
	return message
}
