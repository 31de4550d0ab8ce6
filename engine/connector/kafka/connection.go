package kafka

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/penstock-io/penstock/engine/kit/tlsaccess"
	"github.com/penstock-io/penstock/stream"
)

// TLS holds the TLS settings of a connection to brokers.
type TLS struct {
	Enabled bool `yaml:"enabled" doc:"use TLS; implied by the other keys"`
	tlsaccess.TLS
}

func (t *TLS) on() bool { return *t != TLS{} }

// Connection holds the options for connections to brokers. The source and the sink both have these
// options.
type Connection struct {
	Brokers        []string      `yaml:"brokers" required:"true" doc:"HOST:PORT of brokers to ask first; they name the others"`
	ClientID       string        `yaml:"client_id" doc:"name in the brokers' logs and quotas"`
	TLS            TLS           `yaml:"tls" doc:"certificates; enabled: true trusts the system's authorities"`
	SASL           SASL          `yaml:"sasl" doc:"user and password, or token"`
	ConnectTimeout time.Duration `yaml:"connect_timeout" doc:"time limit for a connection with its TLS handshake"`
}

func defaultConnection() Connection {
	return Connection{ClientID: "penstock", ConnectTimeout: 10 * time.Second}
}

// maxBrokers bounds the list of seed brokers.
const maxBrokers = 100

// validate checks the options, and reads the files of tls.
func (c *Connection) validate() error {
	if len(c.Brokers) == 0 {
		return stream.OptionErrorf("brokers", "missing: at least one HOST:PORT")
	}
	if len(c.Brokers) > maxBrokers {
		return stream.OptionErrorf("brokers", "has %d entries, at most %d are of use: brokers "+
			"name the others", len(c.Brokers), maxBrokers)
	}
	for i, b := range c.Brokers {
		if err := checkBroker(b); err != nil {
			return &stream.OptionError{Key: "brokers", Err: err}
		}
		if slices.Contains(c.Brokers[:i], b) {
			return stream.OptionErrorf("brokers", "%q stands twice", b)
		}
	}
	if c.ConnectTimeout < time.Millisecond {
		return stream.OptionErrorf("connect_timeout", "is %v, want 1ms or more", c.ConnectTimeout)
	}
	if err := c.TLS.Read(); err != nil {
		return err
	}
	return c.SASL.validate(c.TLS.on())
}

func checkBroker(text string) error {
	if strings.Contains(text, "://") {
		return fmt.Errorf("%q has a scheme; write HOST:PORT, and tls: {enabled: true} for TLS",
			text)
	}
	host, port, err := net.SplitHostPort(text)
	if err != nil || host == "" {
		return fmt.Errorf("%q is not HOST:PORT, such as kafka-1:9092", text)
	}
	if n, err := strconv.Atoi(port); err != nil || n < 1 || n > 65535 {
		return fmt.Errorf("%q has the port %q, want a number from 1 to 65535", text, port)
	}
	return nil
}

// options returns the options of the client library for a connection.
func (c *Connection) options(log *clientLog) ([]kgo.Opt, error) {
	dialer := &net.Dialer{Timeout: c.ConnectTimeout}
	out := []kgo.Opt{
		kgo.SeedBrokers(c.Brokers...), kgo.ClientID(c.ClientID), kgo.WithLogger(log),
		kgo.SoftwareNameAndVersion("penstock", "1"),
	}
	if c.TLS.on() {
		trust, err := tlsaccess.NewTrust(&c.TLS.TLS, log.log)
		if err != nil {
			return nil, err
		}
		out = append(out, kgo.Dialer(func(ctx context.Context, network, address string) (net.Conn,
			error) {
			ctx, cancel := context.WithTimeout(ctx, c.ConnectTimeout)
			defer cancel()
			return (&tls.Dialer{NetDialer: dialer, Config: trust.Current()}).DialContext(ctx,
				network, address)
		}))
	} else {
		out = append(out, kgo.Dialer(dialer.DialContext))
	}
	if m := c.SASL.mechanism(); m != nil {
		out = append(out, kgo.SASL(m))
	}
	return out, nil
}

// metadata requests the metadata of the given topics, which must exist, or of all topics if none
// are given. It uses a separate client with the context ctx, because a client ignores the context
// of a request while it connects.
func (c *Connection) metadata(
	ctx context.Context, log *clientLog, topics ...string,
) (kadm.Metadata, error) {
	options, err := c.options(log)
	if err != nil {
		return kadm.Metadata{}, err
	}
	client, err := kgo.NewClient(append(options, kgo.WithContext(ctx))...)
	if err != nil {
		return kadm.Metadata{}, err
	}
	defer client.Close()
	ctx, cancel := context.WithTimeout(ctx, 2*c.ConnectTimeout)
	defer cancel()
	m, err := kadm.NewClient(client).Metadata(ctx, topics...)
	if err != nil {
		return kadm.Metadata{}, brokerError(err, c.Brokers)
	}
	for _, name := range topics {
		if err := m.Topics[name].Err; err != nil {
			return kadm.Metadata{}, topicError(name, err)
		}
	}
	return m, nil
}
