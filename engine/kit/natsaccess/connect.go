//go:build !no_nats

package natsaccess

import (
	"fmt"
	"log/slog"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/penstock-io/penstock/engine/kit/httpaccess"
)

const (
	reconnectWait = time.Second
	// pingInterval is the interval at which a connection is checked. After two missed checks the
	// client abandons the connection.
	pingInterval = 5 * time.Second
)

// Connect connects to one of the servers. The connection reconnects automatically until it is
// closed. purpose is its name in the servers' logs. If patient is true, servers that are not up yet
// are not an error.
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
	switch {
	case o.Credentials != "":
		options = append(options, nats.UserCredentials(o.Credentials))
	case o.User != "":
		options = append(options, nats.UserInfo(o.User, o.Password))
	case o.Token != "":
		options = append(options, nats.Token(o.Token))
	}
	if o.TLS != (httpaccess.TLS{}) {
		trust, err := httpaccess.NewTrust(&o.TLS, log)
		if err != nil {
			return nil, err
		}
		options = append(options, nats.Secure(trust.Current().Clone()))
	}
	conn, err := nats.Connect(o.URL, options...)
	if err != nil {
		return nil, fmt.Errorf("no server accepts the connection: check url, login and tls: "+
			"%w", err)
	}
	return conn, nil
}
