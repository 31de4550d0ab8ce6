package otlp

import (
	"errors"
	"fmt"
	"time"

	"github.com/penstock-io/penstock/engine/kit/buffer"
	"github.com/penstock-io/penstock/engine/kit/intake"
	"github.com/penstock-io/penstock/engine/kit/listen"
	"github.com/penstock-io/penstock/engine/kit/otlplog"
	"github.com/penstock-io/penstock/stream"
)

// Options are the options of the source.
type Options struct {
	Listen   string        `yaml:"listen" required:"true" doc:"HOST:PORT"`
	Ack      string        `yaml:"ack" enum:"delivered,buffered" doc:"when a request is answered"`
	Deadline time.Duration `yaml:"deadline" doc:"for a request, from its header to its answer"`
	ReadTime time.Duration `yaml:"read_timeout" doc:"for the message of a request to arrive"`

	Buffer buffer.Options `yaml:"buffer" doc:"of ack: buffered"`

	Token    string        `yaml:"token" secret:"true" doc:"that clients must send"`
	Tokens   listen.Tokens `yaml:"tokens" secret:"true" doc:"by client name, in place of token"`
	TLS      listen.TLS    `yaml:"tls" doc:"certificates"`
	Insecure bool          `yaml:"insecure" doc:"listen beyond loopback without token or TLS"`

	MaxMessage  stream.Size   `yaml:"max_message" doc:"of one request, decompressed"`
	MaxRecord   stream.Size   `yaml:"max_record" doc:"a longer log record is refused"`
	Memory      stream.Size   `yaml:"memory" doc:"bytes of requests; at the limit new ones wait"`
	Connections int           `yaml:"connections" doc:"open at once; then an idle one closes"`
	IdleTime    time.Duration `yaml:"idle_timeout" doc:"until an idle connection is closed"`
}

// DefaultOptions returns options that accept messages of the size that gRPC clients send.
func DefaultOptions() *Options {
	return &Options{
		Ack: buffer.Delivered, Buffer: buffer.DefaultOptions(),
		Deadline: 30 * time.Second, ReadTime: 10 * time.Second,
		MaxMessage: 4 << 20, MaxRecord: 1 << 20, Memory: 128 << 20,
		Connections: 1000, IdleTime: 5 * time.Minute,
	}
}

// Exclusive implements stream.ExclusiveUser.
func (o *Options) Exclusive() []string { return listen.Exclusive("tcp", o.Listen) }

// Shape implements stream.Shaper.
func (o *Options) Shape(in stream.Schema) (stream.Schema, error) {
	return stream.Schema{Fields: otlplog.Fields(), Open: true, OnError: in.OnError}, nil
}

// Validate returns an error for each invalid option. It reads the files of tls.
func (o *Options) Validate() error {
	errs := []error{stream.CheckEnums(o), buffer.Check(o.Ack, o.Buffer, o.MaxRecord)}
	wrong := func(key, format string, args ...any) {
		errs = append(errs, &stream.OptionError{Key: key, Err: fmt.Errorf(format, args...)})
	}
	known := o.Token != "" || len(o.Tokens) > 0 || o.TLS.ClientCA != ""
	remedy := "set a token, or tls.client_ca"
	if known {
		remedy = "set tls.cert and tls.key"
	}
	errs = append(errs, listen.CheckAddress(o.Listen, o.Insecure || known && o.TLS.On(), remedy))
	for _, d := range []struct {
		key                string
		value, least, most time.Duration
	}{
		{"deadline", o.Deadline, 100 * time.Millisecond, time.Hour},
		{"read_timeout", o.ReadTime, 100 * time.Millisecond, time.Hour},
		{"idle_timeout", o.IdleTime, time.Second, 24 * time.Hour},
	} {
		if d.value < d.least || d.value > d.most {
			wrong(d.key, "is %v, want %v to %v", d.value, d.least, d.most)
		}
	}
	switch {
	case o.Memory < intake.MinMemory || o.Memory > intake.MaxSubmission:
		wrong("memory", "is %v, want %v to less than 1GiB", o.Memory, intake.MinMemory)
	case o.MaxMessage < 1 || o.MaxMessage > o.Memory/2:
		wrong("max_message", "is %v, want 1B to half of memory, %v", o.MaxMessage, o.Memory/2)
	case o.MaxRecord < 1 || o.MaxRecord > o.MaxMessage:
		wrong("max_record", "is %v, want 1B to max_message, %v", o.MaxRecord, o.MaxMessage)
	}
	return errors.Join(append(errs, listen.CheckConnections(o.Connections),
		listen.CheckTokens(o.Token, o.Tokens), o.TLS.Check())...)
}
