package nats

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"os"
	"strings"
	"sync/atomic"
	"time"

	natsgo "github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/penstock-io/penstock/engine/kit/httpaccess"
	"github.com/penstock-io/penstock/engine/kit/natsaccess"
	"github.com/penstock-io/penstock/stream"
)

// Connection has the options that the source and the sink have in common: servers and login.
type Connection struct {
	URL            string         `yaml:"url" required:"true" doc:"nats://HOST:PORT of a server, or tls://; several with commas"`
	Name           string         `yaml:"name" doc:"name of the connection in the servers' logs"`
	Credentials    string         `yaml:"credentials" path:"true" doc:"file with JWT and key (.creds); read for each connection"`
	NKey           string         `yaml:"nkey" path:"true" doc:"file with the seed of an NKey"`
	User           string         `yaml:"user" doc:"name of a user"`
	Password       string         `yaml:"password" secret:"true" doc:"password of the user"`
	Token          string         `yaml:"token" secret:"true" doc:"token, in place of a user"`
	TLS            httpaccess.TLS `yaml:"tls" doc:"certificates; tls:// alone trusts the system's authorities"`
	Domain         string         `yaml:"domain" doc:"JetStream domain, behind a leaf node; empty: that of the server"`
	ConnectTimeout time.Duration  `yaml:"connect_timeout" doc:"time limit for a connection with its handshake, and for each request"`
}

func defaultConnection() Connection {
	return Connection{Name: "penstock", ConnectTimeout: 10 * time.Second}
}

// maxServers is the maximum number of URLs in the option url.
const maxServers = 100

// servers returns the URLs in the option url, which are separated by commas.
func (c *Connection) servers() []string {
	list := strings.Split(c.URL, ",")
	for i := range list {
		list[i] = strings.TrimSpace(list[i])
	}
	return list
}

// validate checks the options, and reads the files of tls, credentials and nkey.
func (c *Connection) validate() error {
	list := c.servers()
	if len(list) > maxServers {
		return stream.OptionErrorf("url", "has %d servers, want at most %d: servers name the "+
			"others", len(list), maxServers)
	}
	for _, text := range list {
		if err := checkURL(text); err != nil {
			return &stream.OptionError{Key: "url", Err: err}
		}
	}
	if c.ConnectTimeout < time.Millisecond || c.ConnectTimeout > time.Hour {
		return stream.OptionErrorf("connect_timeout", "is %v, want 1ms to 1h", c.ConnectTimeout)
	}
	if strings.ContainsAny(c.Domain, " .*>") {
		return stream.OptionErrorf("domain", "%q holds a space, '.', '*' or '>'", c.Domain)
	}
	if err := c.TLS.Check(); err != nil {
		return err
	}
	return c.validateLogin()
}

func (c *Connection) validateLogin() error {
	ways := 0
	for _, set := range []string{c.Credentials, c.NKey, c.User, c.Token} {
		if set != "" {
			ways++
		}
	}
	switch {
	case ways > 1:
		return stream.OptionErrorf("", "credentials, nkey, user and token exclude each other; "+
			"give one of them")
	case c.Password != "" && c.User == "":
		return stream.OptionErrorf("user", "is missing: name the user of password")
	case c.Credentials != "":
		if _, err := os.ReadFile(c.Credentials); err != nil {
			return stream.OptionErrorf("credentials", "%w", err)
		}
	case c.NKey != "":
		if _, err := natsgo.NkeyOptionFromSeed(c.NKey); err != nil {
			return stream.OptionErrorf("nkey", "%s has no seed of a user's NKey: %w", c.NKey,
				withoutSecrets(err))
		}
	}
	return nil
}

// withoutSecrets returns an error to show instead of err, because err may quote the content of a
// file with secrets. If the file could not be read, it returns the error with the path. Otherwise
// it returns a hint on the form of the file.
func withoutSecrets(err error) error {
	if path, ok := errors.AsType[*os.PathError](err); ok {
		return path
	}
	return errors.New("the line after the header must begin with SU")
}

func checkURL(text string) error {
	u, err := url.Parse(text)
	if err != nil || u.Host == "" {
		return errors.New("an entry is not a URL such as nats://nats-1:4222")
	}
	switch {
	case u.User != nil:
		return errors.New(
			"an entry has a user or password; use the options user and password, or token")
	case u.Scheme != "nats" && u.Scheme != "tls" && u.Scheme != "ws" && u.Scheme != "wss":
		return fmt.Errorf("the entry of host %s has the scheme %s, want nats, tls, ws or wss",
			u.Host, u.Scheme)
	case u.Path != "" && u.Path != "/" || u.RawQuery != "":
		return fmt.Errorf(
			"the entry of host %s has a path or query; stream and subject are options", u.Host)
	}
	return nil
}

// client is a connection, together with the permissions that the server has denied to its user.
type client struct {
	conn    *natsgo.Conn
	js      jetstream.JetStream
	o       *Connection
	denials *denials
	lost    atomic.Pointer[time.Time] // when the connection was lost; nil while there is one
	failing atomic.Pointer[failing]   // nil if the last attempt to read succeeded
}

// failing describes a period in which all attempts to read have failed.
type failing struct {
	since time.Time
	err   error // of the last attempt
}

// noteRead notes the result of an attempt to read messages.
func (c *client) noteRead(err error) {
	if err == nil {
		c.failing.Store(nil)
		return
	}
	now := &failing{since: time.Now(), err: err}
	if before := c.failing.Load(); before != nil {
		now.since = before.since
	}
	c.failing.Store(now)
}

// reconnectWait and reconnectJitter pace the attempts to reconnect to servers that are down.
const (
	reconnectWait   = 500 * time.Millisecond
	reconnectJitter = time.Second
)

// connect connects to one of the servers. After a lost connection, the client library tries to
// reconnect until it succeeds or the connection is closed. After some errors of the server, the
// library itself closes the connection. buffered bounds the bytes that the client keeps while no
// server is connected. -1 means that it keeps none.
func (c *Connection) connect(log *slog.Logger, buffered int) (*client, error) {
	out := &client{o: c, denials: newDenials()}
	options := []natsgo.Option{
		natsgo.Name(c.Name), natsgo.Timeout(c.ConnectTimeout), natsgo.MaxReconnects(-1),
		natsgo.ReconnectWait(reconnectWait),
		natsgo.ReconnectJitter(reconnectJitter, reconnectJitter),
		natsgo.ReconnectBufSize(buffered), natsgo.IgnoreAuthErrorAbort(),
		natsgo.PingInterval(10 * time.Second), natsgo.MaxPingsOutstanding(2),
		natsgo.NoCallbacksAfterClientClose(),
		natsgo.ErrorHandler(func(_ *natsgo.Conn, _ *natsgo.Subscription, err error) {
			out.denials.add(err)
			log.Warn("the NATS server reports an error", "error", err)
		}),
		natsgo.DisconnectErrHandler(func(_ *natsgo.Conn, err error) {
			now := time.Now()
			out.lost.CompareAndSwap(nil, &now)
			log.Warn("connection to NATS lost; reconnecting", "error", err)
		}),
		natsgo.ReconnectHandler(func(conn *natsgo.Conn) {
			out.lost.Store(nil)
			out.noteRead(nil) // the errors of the time without a connection do not count
			log.Info("connected to NATS again", "server", conn.ConnectedUrlRedacted())
		}),
	}
	login, err := c.login(log)
	if err != nil {
		return nil, err
	}
	options = append(options, login...)
	if out.conn, err = natsgo.Connect(strings.Join(c.servers(), ","), options...); err != nil {
		return nil, c.connectError(err)
	}
	timeout := jetstream.WithDefaultTimeout(c.ConnectTimeout)
	if c.Domain != "" {
		out.js, err = jetstream.NewWithDomain(out.conn, c.Domain, timeout)
	} else {
		out.js, err = jetstream.New(out.conn, timeout)
	}
	if err != nil {
		out.conn.Close()
		return nil, fmt.Errorf("NATS %s: %w", c.URL, err)
	}
	return out, nil
}

// login returns the client options for the credentials and certificates.
func (c *Connection) login(log *slog.Logger) ([]natsgo.Option, error) {
	access := natsaccess.Options{
		Credentials: c.Credentials, User: c.User, Password: c.Password, Token: c.Token, TLS: c.TLS,
	}
	options, err := access.Login(log)
	if err != nil || c.NKey == "" {
		return options, err
	}
	key, err := natsgo.NkeyOptionFromSeed(c.NKey)
	if err != nil {
		return nil, fmt.Errorf("nkey %s: %w", c.NKey, withoutSecrets(err))
	}
	return append(options, key), nil
}

func (c *client) close() { c.conn.Close() }

// apiPrefix returns the prefix of the subjects of JetStream's API.
func (c *client) apiPrefix() string {
	if c.o.Domain != "" {
		return "$JS." + c.o.Domain + ".API."
	}
	return "$JS.API."
}

// refused returns an error if the client is not connected because the servers refuse its login. The
// client library keeps trying to log in.
func (c *client) refused() error {
	if c.conn.IsConnected() {
		return nil
	}
	err := c.conn.LastError()
	if errors.Is(err, natsgo.ErrAuthorization) || errors.Is(err, natsgo.ErrAuthExpired) ||
		errors.Is(err, natsgo.ErrAuthRevoked) || errors.Is(err, natsgo.ErrAccountAuthExpired) {
		return c.o.connectError(err)
	}
	return nil
}

// connectError adds the servers and a remedy to the error of a failed connection.
func (c *Connection) connectError(err error) error {
	_, isUnknown := errors.AsType[x509.UnknownAuthorityError](err)
	host, isHost := errors.AsType[x509.HostnameError](err)
	_, isRecord := errors.AsType[tls.RecordHeaderError](err)
	switch {
	case isUnknown:
		return fmt.Errorf("NATS %s: its certificate is of an unknown authority: set tls.ca: %w",
			c.URL, err)
	case isHost:
		return fmt.Errorf(
			"NATS %s: its certificate is for another name than %s: set tls.server_name: %w", c.URL,
			host.Host, err)
	case isRecord, errors.Is(err, natsgo.ErrSecureConnWanted):
		return fmt.Errorf(
			"NATS %s: TLS is wanted on one side only: use tls:// if the server has it, else nats:// without tls: %w",
			c.URL, err)
	case errors.Is(err, natsgo.ErrAuthExpired), errors.Is(err, natsgo.ErrAccountAuthExpired):
		return fmt.Errorf("NATS %s: the credentials have expired: replace the file: %w", c.URL,
			err)
	case errors.Is(err, natsgo.ErrAuthorization),
		errors.Is(err, natsgo.ErrAuthRevoked),
		errors.Is(err, natsgo.ErrNkeysNotSupported):
		return fmt.Errorf("NATS %s refuses the login: check credentials, nkey, user or token: %w",
			c.URL, err)
	case errors.Is(err, natsgo.ErrNoServers), errors.Is(err, natsgo.ErrTimeout):
		return fmt.Errorf("no server of NATS %s answers: check url and tls: %w", c.URL, err)
	}
	return fmt.Errorf("NATS %s: %w", c.URL, err)
}
