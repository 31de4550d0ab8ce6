//go:build !no_nats

package cluster

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"

	natsgo "github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/penstock-io/penstock/engine/config"
	"github.com/penstock-io/penstock/retry"
)

// link is the connection of a process to its bucket. If a server is down, the client library
// reconnects on its own. But after some errors of a server, the library closes its connection
// permanently, and link makes a new one. Example: an operator lowers max_payload, and a larger
// message is sent.
type link struct {
	config *config.Cluster
	log    *slog.Logger

	mu      sync.Mutex // guards the fields below
	session *session
	failure error // reason why the session is closed; nil if it is open
}

// session is a connection of the client library, with the opened bucket.
type session struct {
	conn    *natsgo.Conn
	js      jetstream.JetStream
	kv      jetstream.KeyValue
	id      string // of the bucket
	created bool   // this session created the bucket
}

// current returns the session, or an error if it is closed.
func (l *link) current() (*session, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.failure != nil {
		return nil, fmt.Errorf("%w: %w", natsgo.ErrConnectionClosed, l.failure)
	}
	return l.session, nil
}

// connect opens a session. If create is set and the bucket does not exist, it creates the bucket.
// ctx bounds the requests for this session. If the library later closes the connection of the
// session, reconnect opens a new session, unless life has ended.
func (l *link) connect(ctx, life context.Context, create bool) (*session, error) {
	closed := func(conn *natsgo.Conn) {
		if l.lost(conn) {
			l.reconnect(life)
		}
	}
	s, err := openSession(ctx, l.config, l.log, create, closed)
	if err != nil {
		return nil, err
	}
	if err := l.adopt(life, s); err != nil {
		s.conn.Close()
		return nil, err
	}
	return s, nil
}

// adopt makes s the current session.
func (l *link) adopt(life context.Context, s *session) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case life.Err() != nil:
		return context.Cause(life)
	case s.conn.IsClosed():
		return fmt.Errorf("%w: %w", natsgo.ErrConnectionClosed, s.conn.LastError())
	case l.session != nil && l.session.id != s.id:
		return fmt.Errorf("state.nats %s: %w %q was deleted and created again", l.config.URL,
			errBucket, l.config.Bucket)
	}
	l.session, l.failure = s, nil
	return nil
}

// lost notes that the library has closed conn. It reports whether conn was the connection of
// the current session.
func (l *link) lost(conn *natsgo.Conn) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.session == nil || l.session.conn != conn {
		return false
	}
	if l.failure = conn.LastError(); l.failure == nil {
		l.failure = errors.New("no reason is known")
	}
	l.log.Warn("connection to the cluster's bucket closed; connecting again", "error", l.failure)
	return true
}

// reconnect opens another session. It retries until it succeeds or life ends. It runs on the
// goroutine that called the handlers of the closed connection.
func (l *link) reconnect(life context.Context) {
	_ = retry.Do(life, func(ctx context.Context) error {
		s, err := l.connect(ctx, life, false)
		if err != nil {
			l.mu.Lock()
			l.failure = err
			l.mu.Unlock()
			return err
		}
		l.log.Info("connection to the cluster's bucket restored", "server",
			s.conn.ConnectedUrlRedacted())
		return nil
	}, retry.Options{Policy: connectBackoff, MaxAttempts: -1,
		Classify: func(error) retry.Action { return retry.Retry }})
}

// close closes the session.
func (l *link) close() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.session.conn.Close()
}

// openSession connects to a server and opens the bucket. If create is set and the bucket does not
// exist, it creates the bucket. closed is called when the library closes the connection.
func openSession(ctx context.Context, c *config.Cluster, log *slog.Logger, create bool,
	closed natsgo.ConnHandler) (*session, error) {
	conn, err := dial(c, log, closed)
	if err != nil {
		return nil, fmt.Errorf("state.nats %s: %w", c.URL, err)
	}
	s := &session{conn: conn}
	if err := s.openBucket(ctx, c, log, create); err != nil {
		conn.Close()
		return nil, fmt.Errorf("state.nats %s: bucket %q: %w", c.URL, c.Bucket, err)
	}
	return s, nil
}

func (s *session) openBucket(ctx context.Context, c *config.Cluster, log *slog.Logger,
	create bool) (err error) {
	s.js, err = jetstream.New(s.conn, jetstream.WithDefaultTimeout(connectTimeout))
	if err != nil {
		return err
	}
	if s.kv, s.created, err = openBucket(ctx, s.js, c, create); err != nil {
		return err
	}
	s.id, err = checkBucket(ctx, s.js, c, log)
	return err
}
