//go:build !no_nats

package natsaccess

import (
	"crypto/x509"
	"fmt"
	"log/slog"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/penstock-io/penstock/engine/kit/httpaccess"
)

const (
	reconnectWait = time.Second
	// pingInterval is the interval at which the client checks whether its connection works. If the
	// server does not respond to two checks, the client closes the connection and connects again.
	pingInterval = 5 * time.Second
)

// Connect connects to one of the servers. If the connection is lost, the client library connects
// again, except after some errors of a server (see [Closed]). purpose is a part of the connection's
// name in the servers' logs. If patient is true, Connect succeeds even if no server is available
// yet.
func (o *Options) Connect(purpose string, patient bool, log *slog.Logger) (*nats.Conn, error) {
	log = log.With("nats", purpose)
	options := []nats.Option{
		nats.Name("penstock " + purpose), nats.MaxReconnects(-1), nats.ReconnectWait(reconnectWait),
		nats.ReconnectBufSize(-1), nats.IgnoreAuthErrorAbort(), nats.PingInterval(pingInterval),
		nats.MaxPingsOutstanding(2), nats.NoCallbacksAfterClientClose(),
		nats.RetryOnFailedConnect(patient),
		nats.DisconnectErrHandler(func(_ *nats.Conn, err error) {
			log.Warn("connection to NATS lost", "error", err)
		}),
		nats.ReconnectHandler(func(conn *nats.Conn) {
			log.Info("connected to NATS again", "server", conn.ConnectedUrlRedacted())
		}),
		nats.ErrorHandler(func(_ *nats.Conn, _ *nats.Subscription, err error) {
			log.Warn("error from the NATS connection", "error", err)
		}),
	}
	login, err := o.Login(log)
	if err != nil {
		return nil, err
	}
	options = append(options, login...)
	conn, err := nats.Connect(o.URL, options...)
	if err != nil {
		return nil, fmt.Errorf("no server accepts the connection: check url, login and tls: "+
			"%w", err)
	}
	return conn, nil
}

// Closed returns a channel that gets the reason when the library closes conn permanently. The
// library reconnects to servers that are down, but not after some errors of a server. Example:
// max_payload was lowered, and a larger message was sent. conn must have been made by Connect.
func Closed(conn *nats.Conn) <-chan error {
	closed := make(chan error, 1)
	conn.SetClosedHandler(func(*nats.Conn) {
		err := nats.ErrConnectionClosed
		if reason := conn.LastError(); reason != nil {
			err = fmt.Errorf("%w: %w", err, reason)
		}
		closed <- err
	})
	return closed
}

// Login returns the client's options for credentials and certificates. The files are read again for
// each connection.
func (o *Options) Login(log *slog.Logger) (out []nats.Option, err error) {
	switch {
	case o.Credentials != "":
		out = append(out, nats.UserCredentials(o.Credentials))
	case o.User != "":
		out = append(out, nats.UserInfo(o.User, o.Password))
	case o.Token != "":
		out = append(out, nats.Token(o.Token))
	}
	if o.TLS == (httpaccess.TLS{}) {
		return out, nil // with tls:// and wss://, this uses the system's authorities
	}
	trust, err := httpaccess.NewTrust(&o.TLS, log)
	if err != nil {
		return nil, err
	}
	base := trust.Current().Clone()
	base.RootCAs = nil
	out = append(out, nats.Secure(base))
	if o.TLS.CA != "" {
		roots := func() (*x509.CertPool, error) { return trust.Current().RootCAs, nil }
		out = append(out, func(c *nats.Options) error { c.RootCAsCB = roots; return nil })
	}
	return out, nil
}
