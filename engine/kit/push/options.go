package push

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/penstock-io/penstock/engine/kit/buffer"
	"github.com/penstock-io/penstock/engine/kit/intake"
	"github.com/penstock-io/penstock/engine/kit/listen"
	"github.com/penstock-io/penstock/stream"
)

// Options are the common options of all sources to which clients push records.
type Options struct {
	Ack         string         `yaml:"ack" enum:"delivered,buffered" doc:"when records are acknowledged: delivered, or in the buffer"`
	Buffer      buffer.Options `yaml:"buffer" doc:"options of ack: buffered"`
	Memory      stream.Size    `yaml:"memory" doc:"maximum bytes that wait for delivery"`
	Connections int            `yaml:"connections" doc:"maximum open connections; then the one idle longest is closed, or new ones wait"`
	IdleTime    time.Duration  `yaml:"idle_timeout" doc:"idle time at which a connection is closed"`
	TLS         listen.TLS     `yaml:"tls" doc:"certificates"`
	Insecure    bool           `yaml:"insecure" doc:"listen beyond loopback without protection"`
}

// OpenBuffer implements stream.BufferingOptions.
func (o *Options) OpenBuffer(ctx context.Context, stateDir string) (stream.OpenBuffer, error) {
	return buffer.Inspect(ctx, o.Ack, o.Buffer, stateDir)
}

// SocketOptions are the options of a source that reads from connections or datagrams and does not
// answer.
type SocketOptions struct {
	Network string `yaml:"network" enum:"tcp,udp,unix,unixgram" doc:"kind of the socket"`
	Listen  string `yaml:"listen" required:"true" doc:"HOST:PORT, or the path of a Unix socket"`
	Options
}

// Exclusive implements stream.ExclusiveUser.
func (o *SocketOptions) Exclusive() []string {
	if strings.HasPrefix(o.Network, "unix") {
		return []string{"socket " + o.Listen}
	}
	return listen.Exclusive(o.Network, o.Listen)
}

// Check returns an error for invalid options. It also reads the files of tls.
func (o *SocketOptions) Check(maxRecord stream.Size) error {
	if err := stream.CheckEnums(o); err != nil {
		return err
	}
	if o.IdleTime < time.Second {
		return stream.OptionErrorf("idle_timeout", "is %v, want 1s or more", o.IdleTime)
	}
	return errors.Join(
		listen.CheckSocket(o.Network, o.Listen, &o.TLS, o.Insecure),
		intake.CheckSizes("memory", maxRecord, o.Memory), listen.CheckConnections(o.Connections),
		buffer.Check(o.Ack, o.Buffer, maxRecord),
	)
}

// ServerOptions are the options of a source that answers each request of its clients.
type ServerOptions struct {
	Listen    string        `yaml:"listen" required:"true" doc:"HOST:PORT"`
	Deadline  time.Duration `yaml:"deadline" doc:"time limit of a request, from header to answer"`
	Token     string        `yaml:"token" secret:"true" doc:"token that clients must send, such as ${file:/path}"`
	Tokens    listen.Tokens `yaml:"tokens" secret:"true" doc:"tokens by client name, in place of token"`
	MaxRecord stream.Size   `yaml:"max_record" doc:"a longer record is refused"`
	Options
}

// Exclusive implements stream.ExclusiveUser.
func (o *ServerOptions) Exclusive() []string { return listen.Exclusive("tcp", o.Listen) }

// Check returns an error for invalid options. maxBody is the value of the option that limits the
// size of a request, and bodyKey is the key of this option. Check also reads the files of tls.
func (o *ServerOptions) Check(bodyKey string, maxBody stream.Size) error {
	known := o.Token != "" || len(o.Tokens) > 0 || o.TLS.ClientCA != ""
	remedy := "set a token, or tls.client_ca"
	if known {
		remedy = "set tls.cert and tls.key"
	}
	return errors.Join(
		listen.CheckAddress(o.Listen, o.Insecure || known && o.TLS.On(), remedy),
		stream.CheckRange("deadline", o.Deadline, 100*time.Millisecond, time.Hour),
		stream.CheckRange("idle_timeout", o.IdleTime, time.Second, 24*time.Hour),
		o.checkSizes(bodyKey, maxBody),
		buffer.Check(o.Ack, o.Buffer, o.MaxRecord),
		listen.CheckConnections(o.Connections), listen.CheckTokens(o.Token, o.Tokens),
		o.TLS.Check(),
	)
}

// CheckPart returns an error if limit, the value of the option key, is longer than the deadline.
// The option bounds the time of a part of a request, and the deadline that of the whole request.
// unset, the default of the option, may be longer.
func (o *ServerOptions) CheckPart(key string, limit, unset time.Duration) error {
	if limit > o.Deadline && limit != unset {
		return stream.OptionErrorf(key, "is %v, longer than deadline, which limits the whole "+
			"request to %v", limit, o.Deadline)
	}
	return nil
}

func (o *ServerOptions) checkSizes(bodyKey string, maxBody stream.Size) error {
	switch {
	case o.Memory < intake.MinMemory || o.Memory > intake.MaxSubmission:
		return stream.OptionErrorf("memory", "is %v, want %v to less than 1GiB", o.Memory,
			intake.MinMemory)
	case maxBody < 1 || maxBody > o.Memory/2:
		return stream.OptionErrorf(bodyKey, "is %v, want 1B to half of memory, %v", maxBody,
			o.Memory/2)
	case o.MaxRecord < 1 || o.MaxRecord > maxBody:
		return stream.OptionErrorf("max_record", "is %v, want 1B to %s, %v", o.MaxRecord, bodyKey,
			maxBody)
	}
	return nil
}
