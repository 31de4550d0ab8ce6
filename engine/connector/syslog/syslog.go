// Package syslog implements the source that receives syslog messages over UDP, TCP, TLS or a Unix
// socket. It accepts the formats of RFC 5424 and RFC 3164. In a stream, each message has either its
// length before it (octet counting) or a line end after it.
//
// A message in neither format becomes a record with its whole text. The protocol has no
// acknowledgements; package socket describes the consequences.
package syslog

import (
	"strings"
	"time"

	"github.com/penstock-io/penstock/engine/kit/buffer"
	"github.com/penstock-io/penstock/engine/kit/intake"
	"github.com/penstock-io/penstock/engine/kit/listen"
	"github.com/penstock-io/penstock/engine/kit/push"
	"github.com/penstock-io/penstock/stream"
)

// Options are the options of the source.
type Options struct {
	push.SocketOptions
	Timezone  string      `yaml:"timezone" doc:"time zone of times without one: a name such as Europe/Rome, UTC, or Local"`
	MaxRecord stream.Size `yaml:"max_record" doc:"for streams: a connection with a longer message is closed"`
}

// DefaultOptions returns options that receive over UDP.
func DefaultOptions() *Options {
	return &Options{
		SocketOptions: push.SocketOptions{Network: "udp", Options: push.Options{
			Ack: buffer.Delivered, Buffer: buffer.DefaultOptions(), Memory: intake.DefaultMaxBytes,
			Connections: 10_000, IdleTime: time.Hour,
		}},
		Timezone: "Local", MaxRecord: 64 << 10,
	}
}

// Validate returns an error if an option is invalid. It also reads the files of tls.
func (o *Options) Validate() error {
	if _, err := time.LoadLocation(o.Timezone); err != nil {
		return stream.OptionErrorf("timezone",
			"is %q, want a name such as Europe/Rome, UTC or Local",
			o.Timezone)
	}
	return o.Check(o.MaxRecord)
}

// ReadsObjects implements stream.ObjectOptions.
func (*Options) ReadsObjects() bool { return true }

// Shape implements stream.Shaper. All records have the same fields.
func (*Options) Shape(in stream.Schema) (stream.Schema, error) {
	return stream.Schema{Fields: fields, OnError: in.OnError}, nil
}

// Source returns the component syslog.
func Source() stream.Component {
	return stream.NewComponent(stream.SourceRole, "syslog", DefaultOptions, New)
}

// Server is the source syslog.
type Server struct {
	*push.Socket
	host stream.Host
}

// New returns a source. Its socket is not open yet.
func New(o Options, h stream.Host) (*Server, error) {
	if err := o.Validate(); err != nil {
		return nil, err
	}
	zone, err := time.LoadLocation(o.Timezone)
	if err != nil {
		return nil, err
	}
	socket, err := push.NewSocket(&o.SocketOptions, o.MaxRecord,
		intake.Options{Name: "syslog " + o.Network, Objects: true}, h)
	if err != nil {
		return nil, err
	}
	s := &Server{socket, h}
	s.Framer = func(peer string) listen.Framer {
		p := newParser(zone, time.Now)
		return &frames{max: int(o.MaxRecord), message: func(out *intake.Records, message []byte) {
			s.add(p, out, message, peer)
		}}
	}
	p := newParser(zone, time.Now)
	s.Record = func(out *intake.Records, datagram []byte, peer string) {
		s.add(p, out, datagram, peer)
	}
	h.Count("connections_malformed", 0)
	h.Count("messages_unparsed", 0)
	h.Go("syslog/listen", s.Run)
	return s, nil
}

// add adds the record of a message to out.
func (s *Server) add(p *parser, out *intake.Records, message []byte, peer string) {
	record, ok := p.parse(trimEnd(message), peer)
	if !ok {
		s.host.Count("messages_unparsed", 1)
	}
	out.Add(record)
}

// trimEnd returns a message without the line ends and NULs that some senders add to its end.
func trimEnd(message []byte) []byte {
	for n := len(message); n > 0 && strings.IndexByte("\r\n\x00", message[n-1]) >= 0; n-- {
		message = message[:n-1]
	}
	return message
}
