package otlp

import (
	"errors"
	"time"

	"github.com/penstock-io/penstock/engine/kit/buffer"
	"github.com/penstock-io/penstock/engine/kit/otlplog"
	"github.com/penstock-io/penstock/engine/kit/push"
	"github.com/penstock-io/penstock/stream"
)

// Options are the options of the source.
type Options struct {
	push.ServerOptions
	ReadTime   time.Duration `yaml:"read_timeout" doc:"time limit for the message of a request"`
	MaxMessage stream.Size   `yaml:"max_message" doc:"maximum size of one request, decompressed"`
}

const defaultReadTime = 10 * time.Second

// DefaultOptions returns the default options. MaxMessage is 4 MiB, the default limit of gRPC
// servers.
func DefaultOptions() *Options {
	return &Options{
		ServerOptions: push.ServerOptions{
			Deadline: 30 * time.Second, MaxRecord: 1 << 20,
			Options: push.Options{
				Ack: buffer.Delivered, Buffer: buffer.DefaultOptions(), Memory: 128 << 20,
				Connections: 1000, IdleTime: 5 * time.Minute,
			},
		},
		ReadTime: defaultReadTime, MaxMessage: 4 << 20,
	}
}

// ReadsObjects implements stream.ObjectOptions.
func (*Options) ReadsObjects() bool { return true }

// Shape implements stream.Shaper. It returns the usual fields of log records. Records may have
// others as well.
func (o *Options) Shape(in stream.Schema) (stream.Schema, error) {
	return stream.Schema{Fields: otlplog.Fields(), Open: true, OnError: in.OnError}, nil
}

// Validate returns an error for each invalid option. It also reads the files of tls.
func (o *Options) Validate() error {
	return errors.Join(
		stream.CheckEnums(o), o.Check("max_message", o.MaxMessage),
		stream.CheckRange("read_timeout", o.ReadTime, 100*time.Millisecond, time.Hour),
		o.CheckPart("read_timeout", o.ReadTime, defaultReadTime),
	)
}
