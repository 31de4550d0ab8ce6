//go:build !no_nats

package cluster

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"

	natsgo "github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/penstock-io/penstock/backoff"
	"github.com/penstock-io/penstock/engine/config"
	"github.com/penstock-io/penstock/retry"
)

const (
	// requestTimeout is the timeout of a request. An owner must stop working when its last
	// successful renewal is 6 s old (times.stop). The timeout is short, so that the owner can renew
	// within these 6 s even if several responses are lost.
	requestTimeout = 1500 * time.Millisecond

	// connectWithin is the time for which Connect waits for servers that are starting.
	connectWithin = 30 * time.Second

	connectTimeout = 5 * time.Second
	reconnectWait  = 250 * time.Millisecond
	pingInterval   = time.Second // the client connects again after two missed pings
)

var connectBackoff = backoff.Exponential(250*time.Millisecond, 2, 2*time.Second).Equal()

// Connect connects to the servers of c. It opens the bucket, and creates it if it does not exist.
func Connect(ctx context.Context, c *config.Cluster, log *slog.Logger) (*Bucket, error) {
	return retry.Value(ctx, func(ctx context.Context) (*Bucket, error) {
		return connectOnce(ctx, c, log)
	}, retry.Options{Policy: connectBackoff, MaxElapsed: connectWithin, MaxAttempts: -1,
		Classify: func(err error) retry.Action {
			if isFinal(err) {
				return retry.Fail
			}
			return retry.Retry
		}})
}

// isFinal reports whether a retry after err is useless. Few errors are final. Most disappear, such
// as those of a server that is starting or does not know a new bucket yet.
func isFinal(err error) bool {
	if api, ok := errors.AsType[*jetstream.APIError](err); ok && api.ErrorCode == codeReplicas {
		return true
	}
	return errors.Is(err, natsgo.ErrAuthorization) || errors.Is(err, errBucket)
}

// errBucket means that the bucket exists but must not be used.
var errBucket = errors.New("bucket")

func connectOnce(ctx context.Context, c *config.Cluster, log *slog.Logger) (*Bucket, error) {
	l := &link{config: c, log: log}
	life, end := context.WithCancel(context.WithoutCancel(ctx))
	s, err := l.connect(ctx, life, true)
	if err != nil {
		end()
		return nil, err
	}
	open := func(key string) Register { return &natsRegister{l, key} }
	b := NewBucket(c.Bucket, c.Name(), open, log)
	b.ID, b.Created = s.id, s.created
	b.close = func() { end(); l.close() }
	return b, nil
}

// dial connects to a server. It arranges that closed is called if the library later closes the
// connection on its own. closed is not called if this program closes the connection.
func dial(c *config.Cluster, log *slog.Logger, closed natsgo.ConnHandler) (*natsgo.Conn, error) {
	o := []natsgo.Option{
		natsgo.Name("penstock " + c.Name()), natsgo.Timeout(connectTimeout),
		natsgo.MaxReconnects(-1), natsgo.ReconnectWait(reconnectWait),
		natsgo.ReconnectBufSize(-1), // do not buffer: a renewal must not be sent late
		natsgo.PingInterval(pingInterval), natsgo.MaxPingsOutstanding(2),
		natsgo.IgnoreAuthErrorAbort(), natsgo.NoCallbacksAfterClientClose(),
		natsgo.ClosedHandler(closed),
		natsgo.DisconnectErrHandler(func(_ *natsgo.Conn, err error) {
			log.Warn("connection to the cluster's bucket lost", "error", err)
		}),
		natsgo.ReconnectHandler(func(conn *natsgo.Conn) {
			server := conn.ConnectedUrlRedacted()
			log.Info("connection to the cluster's bucket restored", "server", server)
		}),
		natsgo.ErrorHandler(func(_ *natsgo.Conn, _ *natsgo.Subscription, err error) {
			log.Warn("error from the connection to the cluster's bucket", "error", err)
		}),
	}
	switch {
	case c.Credentials != "":
		o = append(o, natsgo.UserCredentials(c.Credentials))
	case c.User != "":
		o = append(o, natsgo.UserInfo(c.User, c.Password))
	case c.Token != "":
		o = append(o, natsgo.Token(c.Token))
	}
	if c.TLS.CA != "" {
		o = append(o, natsgo.RootCAs(c.TLS.CA))
	}
	if c.TLS.Cert != "" {
		o = append(o, natsgo.ClientCert(c.TLS.Cert, c.TLS.Key))
	}
	var servers []string
	for text := range strings.SplitSeq(c.URL, ",") {
		servers = append(servers, strings.TrimSpace(text))
	}
	conn, err := natsgo.Connect(strings.Join(servers, ","), o...)
	switch {
	case errors.Is(err, natsgo.ErrAuthorization):
		return nil, fmt.Errorf("the login was refused: check credentials, user or token: %w", err)
	case errors.Is(err, natsgo.ErrNoServers), errors.Is(err, natsgo.ErrTimeout):
		return nil, fmt.Errorf("no server responds: check url and tls: %w", err)
	}
	return conn, err
}

// maxValue is the size in bytes of the largest value that a usable bucket must accept.
const maxValue = MaxPositions + 4<<10

// openBucket opens the bucket. If the bucket is missing and create is true, openBucket creates it.
// created reports whether it has done so.
func openBucket(ctx context.Context, js jetstream.JetStream, c *config.Cluster,
	create bool) (kv jetstream.KeyValue, created bool, err error) {
	kv, err = js.KeyValue(ctx, c.Bucket)
	if err == nil || !create || !errors.Is(err, jetstream.ErrBucketNotFound) {
		return kv, false, err
	}
	kv, err = js.CreateKeyValue(ctx, jetstream.KeyValueConfig{
		Bucket: c.Bucket, Replicas: c.Replicas, History: 1, Storage: jetstream.FileStorage,
		Description: "progress and leases of penstock",
	})
	switch api, ok := errors.AsType[*jetstream.APIError](err); {
	case errors.Is(err, jetstream.ErrBucketExists): // another process has created it since
		kv, err = js.KeyValue(ctx, c.Bucket)
		return kv, false, err
	case ok && (api.ErrorCode == codeReplicas || api.ErrorCode == codeNoPeers) && c.Replicas > 1:
		return nil, false, fmt.Errorf("it cannot be created with replicas: %d: start that many "+
			"servers as a cluster, or set replicas: 1, which does not survive the loss of its "+
			"server: %w", c.Replicas, err)
	case err != nil:
		return nil, false, fmt.Errorf("it cannot be created: %w", err)
	}
	return kv, true, nil
}

// With these error codes, a server refuses a bucket, usually because the cluster has fewer servers
// than the requested number of replicas.
const (
	codeReplicas jetstream.ErrorCode = 10074
	codeNoPeers  jetstream.ErrorCode = 10005
)

// checkBucket returns the ID of the bucket. It returns an error if the bucket has a TTL, or accepts
// only values that are too small. It only warns if the bucket is in memory, or has another number
// of replicas.
func checkBucket(ctx context.Context, js jetstream.JetStream, c *config.Cluster,
	log *slog.Logger) (id string, err error) {
	s, err := js.Stream(ctx, "KV_"+c.Bucket)
	if err != nil {
		return "", err
	}
	info := s.CachedInfo()
	switch o := info.Config; {
	case o.MaxAge != 0:
		return "", fmt.Errorf("%w has a TTL of %v, after which progress is lost: use a bucket "+
			"without a TTL", errBucket, o.MaxAge)
	case o.MaxMsgSize != -1 && int(o.MaxMsgSize) < maxValue:
		return "", fmt.Errorf("%w accepts values of up to %d bytes, but progress may need %d: "+
			"raise its limit", errBucket, o.MaxMsgSize, maxValue)
	case o.Storage != jetstream.FileStorage:
		log.Warn("the bucket is in memory: progress is lost when its servers stop",
			"bucket", c.Bucket)
	case o.Replicas != c.Replicas:
		log.Warn("the bucket exists with another number of replicas, which is not changed",
			"bucket", c.Bucket, "replicas", o.Replicas, "configured", c.Replicas)
	}
	return info.Created.UTC().Format(time.RFC3339Nano), nil
}
