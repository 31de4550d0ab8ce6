// Package socket implements the source that reads records from a TCP, UDP or Unix socket.
//
// The protocols have no acknowledgements, so a sender does not learn whether its records were
// delivered. A full source stops reading from connections, so that TCP and Unix stream sockets push
// back on their senders. Datagrams that do not fit are dropped and counted.
package socket

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/penstock-io/penstock/engine/kit/buffer"
	"github.com/penstock-io/penstock/engine/kit/intake"
	"github.com/penstock-io/penstock/engine/kit/listen"
	"github.com/penstock-io/penstock/stream"
)

var networks = []string{"tcp", "udp", "unix", "unixgram"}

// Options are the options of the source.
type Options struct {
	Network   string         `yaml:"network" enum:"tcp,udp,unix,unixgram" doc:"kind of the socket"`
	Listen    string         `yaml:"listen" required:"true" doc:"HOST:PORT, or the path of a Unix socket"`
	Delimiter string         `yaml:"delimiter" enum:"newline,nul" doc:"of streams: the end of a record"`
	Ack       string         `yaml:"ack" enum:"delivered,buffered" doc:"buffered: on disk"`
	Buffer    buffer.Options `yaml:"buffer" doc:"of ack: buffered"`

	MaxRecord   stream.Size   `yaml:"max_record" doc:"of streams: a longer record is cut into pieces"`
	Memory      stream.Size   `yaml:"memory" doc:"bytes that may wait for delivery; then reading pauses"`
	Connections int           `yaml:"connections" doc:"open at once; the one idle longest is closed for a new one"`
	IdleTime    time.Duration `yaml:"idle_timeout" doc:"until an idle connection is closed"`
	TLS         listen.TLS    `yaml:"tls" doc:"of tcp: certificates"`
	Insecure    bool          `yaml:"insecure" doc:"listen beyond loopback without client certificates"`
}

// DefaultOptions returns options that read lines over TCP.
func DefaultOptions() *Options {
	return &Options{
		Ack: buffer.Delivered, Buffer: buffer.DefaultOptions(),
		Network: "tcp", Delimiter: intake.ByNewline, MaxRecord: 1 << 20, Memory: intake.DefaultMaxBytes,
		Connections: 10_000, IdleTime: 10 * time.Minute,
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
	if !slices.Contains(networks, o.Network) {
		err := fmt.Errorf("is %q, want one of %s", o.Network, strings.Join(networks, ", "))
		return &stream.OptionError{Key: "network", Err: err}
	}
	if o.IdleTime < time.Second {
		return &stream.OptionError{Key: "idle_timeout", Err: fmt.Errorf("is %v, want 1s or more", o.IdleTime)}
	}
	return errors.Join(
		listen.CheckSocket(o.Network, o.Listen, &o.TLS, o.Insecure), intake.CheckDelimiter("delimiter", o.Delimiter),
		intake.CheckSizes(o.MaxRecord, o.Memory), listen.CheckConnections(o.Connections),
		stream.CheckEnums(o), buffer.Check(o.Ack, o.Buffer, o.MaxRecord),
	)
}

// Source returns the component socket.
func Source() stream.Component {
	return stream.NewComponent(stream.SourceRole, "socket", DefaultOptions, New)
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
	name := o.Listen
	if strings.HasPrefix(o.Network, "unix") {
		name = filepath.Base(name)
	}
	waiting, routes, err := buffer.New(o.Ack, o.Buffer, o.MaxRecord, intake.Options{
		Name: o.Network + " " + name, MaxBytes: int64(o.Memory),
	}, h)
	if err != nil {
		return nil, err
	}
	s := &Server{Intake: waiting, routes: routes, o: o, host: h, bound: make(chan net.Addr, 1)}
	for _, counter := range append([]string{"records_cut"}, listen.Counters...) {
		h.Count(counter, 0)
	}
	h.Go("socket/listen", s.run)
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

// run receives records until ctx is done.
func (s *Server) run(ctx context.Context) error {
	bound := func(a net.Addr) { s.bound <- a }
	if s.o.Network == "udp" || s.o.Network == "unixgram" {
		d := &listen.Datagrams{
			Network: s.o.Network, Address: s.o.Listen, Intake: s.Intake, Host: s.host, Bound: bound,
			Record: func(out *intake.Records, datagram []byte, _ string) {
				out.Add(trimEnd(datagram))
			},
		}
		return d.Run(ctx)
	}
	var config *tls.Config
	if s.o.TLS.On() {
		var err error
		if config, err = s.o.TLS.Config(s.host.Log()); err != nil {
			return err
		}
	}
	streams := &listen.Streams{
		Network: s.o.Network, Address: s.o.Listen, Connections: s.o.Connections, TLS: config,
		Intake: s.Intake, Log: s.host.Log(), Bound: bound,
	}
	streams.Serve = func(ctx context.Context, c net.Conn, evict func(bool)) {
		f := &framer{intake.NewCutter(int(s.o.MaxRecord), intake.Delimiter(s.o.Delimiter), 0)}
		streams.Pump(ctx, c, evict, f, s.o.IdleTime, s.host)
		s.host.Count("records_cut", f.Long())
	}
	return streams.Run(ctx)
}

// trimEnd returns a datagram without the line end that some senders append.
func trimEnd(data []byte) []byte {
	if n := len(data); n > 0 && data[n-1] == '\n' {
		data = data[:n-1]
		if n > 1 && data[n-2] == '\r' {
			data = data[:n-2]
		}
	}
	return data
}

// framer cuts the data of a connection at a delimiter.
type framer struct{ *intake.Cutter }

// Frame implements listen.Framer.
func (f *framer) Frame(n int) (intake.Records, error) { return f.Cut(n), nil }

// Rest implements listen.Framer.
func (f *framer) Rest() intake.Records { return f.End() }
