// Package socket implements the source that reads records from a TCP, UDP or Unix socket.
//
// The source sends no answers, so a sender does not learn whether its records were delivered. If
// the memory of the source is full, the source stops reading from TCP and Unix stream connections,
// so that their senders must wait (backpressure). A datagram for which there is no room is dropped
// and counted.
package socket

import (
	"errors"
	"path/filepath"
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
	Delimiter string      `yaml:"delimiter" enum:"newline,nul" doc:"for streams: the end of a record"`
	MaxRecord stream.Size `yaml:"max_record" doc:"for streams: a longer record is cut into pieces"`
}

// DefaultOptions returns options that read lines over TCP.
func DefaultOptions() *Options {
	return &Options{
		SocketOptions: push.SocketOptions{Network: "tcp", Options: push.Options{
			Ack: buffer.Delivered, Buffer: buffer.DefaultOptions(), Memory: intake.DefaultMaxBytes,
			Connections: 10_000, IdleTime: 10 * time.Minute,
		}},
		Delimiter: intake.ByNewline, MaxRecord: 1 << 20,
	}
}

// Validate returns an error for each invalid option. It also reads the files of tls.
func (o *Options) Validate() error {
	if o.Delimiter != intake.ByNewline && (o.Network == "udp" || o.Network == "unixgram") {
		return stream.OptionErrorf("delimiter", "has no effect with network %s, where each "+
			"datagram is a record; remove it", o.Network)
	}
	return errors.Join(intake.CheckDelimiter("delimiter", o.Delimiter), o.Check(o.MaxRecord))
}

// Source returns the component socket.
func Source() stream.Component {
	return stream.NewComponent(stream.SourceRole, "socket", DefaultOptions, New)
}

// Server is the source socket.
type Server struct{ *push.Socket }

// New returns a source. Its socket is not open yet.
func New(o Options, h stream.Host) (*Server, error) {
	if err := o.Validate(); err != nil {
		return nil, err
	}
	name := o.Listen
	if strings.HasPrefix(o.Network, "unix") {
		name = filepath.Base(name)
	}
	s, err := push.NewSocket(&o.SocketOptions, o.MaxRecord,
		intake.Options{Name: o.Network + " " + name}, h)
	if err != nil {
		return nil, err
	}
	s.Framer = func(string) listen.Framer {
		return &framer{intake.NewCutter(int(o.MaxRecord), intake.Delimiter(o.Delimiter), 0), h}
	}
	s.Record = func(out *intake.Records, datagram []byte, _ string) { out.Add(trimEnd(datagram)) }
	h.Count("records_cut", 0)
	h.Go("socket/listen", s.Run)
	return &Server{s}, nil
}

// trimEnd returns a datagram without the line end that some senders add.
func trimEnd(data []byte) []byte {
	if n := len(data); n > 0 && data[n-1] == '\n' {
		data = data[:n-1]
		if n > 1 && data[n-2] == '\r' {
			data = data[:n-2]
		}
	}
	return data
}

// framer splits the data of a connection into records at a delimiter.
type framer struct {
	*intake.Cutter
	host stream.Host
}

// Frame implements listen.Framer. It returns the records that are complete after a read of n bytes.
func (f *framer) Frame(n int) (intake.Records, error) {
	records := f.Cut(n)
	if cut := f.Long(); cut > 0 {
		f.host.Count("records_cut", cut)
	}
	return records, nil
}

// Rest implements listen.Framer. It returns the data after the last delimiter as a record.
func (f *framer) Rest() intake.Records { return f.End() }
