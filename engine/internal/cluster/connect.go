//go:build !no_nats

package cluster

import (
	"context"
	"encoding/json"
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
	// requestTimeout is the timeout of a request. It is short, because a process learns only from
	// responses that it still owns a lease.
	requestTimeout = 1500 * time.Millisecond

	// connectWithin is the time for which Connect waits for servers that are starting.
	connectWithin = 30 * time.Second

	connectTimeout = 5 * time.Second
	reconnectWait  = 250 * time.Millisecond
	pingInterval   = time.Second // the connection is closed after two missed pings
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

// isFinal reports whether it is useless to retry after err. For most errors it is not: for example,
// a server that is starting, or does not know a new bucket yet, returns errors that disappear.
func isFinal(err error) bool {
	if api, ok := errors.AsType[*jetstream.APIError](err); ok && api.ErrorCode == codeReplicas {
		return true
	}
	return errors.Is(err, natsgo.ErrAuthorization) || errors.Is(err, errBucket)
}

// errBucket means that the bucket exists but must not be used.
var errBucket = errors.New("bucket")

func connectOnce(ctx context.Context, c *config.Cluster, log *slog.Logger) (*Bucket, error) {
	conn, err := dial(c, log)
	if err != nil {
		return nil, fmt.Errorf("state.nats %s: %w", c.URL, err)
	}
	js, err := jetstream.New(conn, jetstream.WithDefaultTimeout(connectTimeout))
	if err != nil {
		conn.Close()
		return nil, err
	}
	kv, created, err := openBucket(ctx, js, c)
	if err != nil {
		conn.Close()
		return nil, fmt.Errorf("state.nats %s: bucket %q: %w", c.URL, c.Bucket, err)
	}
	open := func(key string) Register { return &natsRegister{js, kv, key} }
	b := NewBucket(c.Bucket, c.Name(), open, log)
	b.close, b.Created = conn.Close, created
	if b.ID, err = checkBucket(ctx, js, c, log); err != nil {
		conn.Close()
		return nil, fmt.Errorf("state.nats %s: bucket %q: %w", c.URL, c.Bucket, err)
	}
	return b, nil
}

func dial(c *config.Cluster, log *slog.Logger) (*natsgo.Conn, error) {
	o := []natsgo.Option{
		natsgo.Name("penstock " + c.Name()), natsgo.Timeout(connectTimeout),
		natsgo.MaxReconnects(-1), natsgo.ReconnectWait(reconnectWait),
		natsgo.ReconnectBufSize(-1), // do not buffer: a renewal must not be sent late
		natsgo.PingInterval(pingInterval), natsgo.MaxPingsOutstanding(2),
		natsgo.IgnoreAuthErrorAbort(), natsgo.NoCallbacksAfterClientClose(),
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

// openBucket opens the bucket and reports whether it has created it.
func openBucket(ctx context.Context, js jetstream.JetStream,
	c *config.Cluster) (kv jetstream.KeyValue, created bool, err error) {
	kv, err = js.KeyValue(ctx, c.Bucket)
	if err == nil || !errors.Is(err, jetstream.ErrBucketNotFound) {
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

// Error codes of a server that refuses a bucket, because the cluster of servers is too small for
// the requested number of replicas.
const (
	codeReplicas jetstream.ErrorCode = 10074
	codeNoPeers  jetstream.ErrorCode = 10005
)

// checkBucket returns the ID of the bucket. It returns an error if the bucket is configured so that
// it could lose progress.
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

// natsRegister is one key of a NATS bucket.
type natsRegister struct {
	js     jetstream.JetStream
	bucket jetstream.KeyValue
	key    string
}

// Write implements Register.
func (r *natsRegister) Write(ctx context.Context, found bool, revision uint64,
	data []byte) (uint64, error) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	var next uint64
	var err error
	if found {
		next, err = r.bucket.Update(ctx, r.key, data, revision)
	} else {
		next, err = r.bucket.Create(ctx, r.key, data)
	}
	if isConflict(err) {
		return 0, ErrConflict
	}
	return next, err
}

// codeWrongLastSequence is the error code with which a replicated stream refuses a write whose
// expected revision is old.
const codeWrongLastSequence = jetstream.JSErrCodeStreamWrongLastSequenceConstant

func isConflict(err error) bool {
	if api, ok := errors.AsType[*jetstream.APIError](err); ok {
		return api.ErrorCode == jetstream.JSErrCodeStreamWrongLastSequence ||
			api.ErrorCode == codeWrongLastSequence
	}
	return errors.Is(err, jetstream.ErrKeyExists)
}

// Read implements Register. It reads from the leader of the stream. The method Get of the client
// library may read from a replica, which may be behind.
func (r *natsRegister) Read(ctx context.Context) (Stored, error) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	stream := "KV_" + r.bucket.Bucket()
	subject := "$KV." + r.bucket.Bucket() + "." + r.key
	query, err := json.Marshal(map[string]string{"last_by_subj": subject})
	if err != nil {
		return Stored{}, err
	}
	api := jetstream.DefaultAPIPrefix + "STREAM.MSG.GET." + stream
	m, err := r.js.Conn().RequestWithContext(ctx, api, query)
	if err != nil {
		return Stored{}, err
	}
	var answer struct {
		Error   *jetstream.APIError `json:"error"`
		Message *struct {
			Seq    uint64 `json:"seq"`
			Header []byte `json:"hdrs"`
			Data   []byte `json:"data"`
		} `json:"message"`
	}
	if err := json.Unmarshal(m.Data, &answer); err != nil {
		return Stored{}, fmt.Errorf("key %q: response of the server: %w", r.key, err)
	}
	if e := answer.Error; e != nil && e.ErrorCode == jetstream.JSErrCodeMessageNotFound {
		return r.missing(ctx, stream)
	} else if e != nil {
		return Stored{}, e
	}
	if answer.Message == nil {
		return Stored{}, fmt.Errorf("key %q: the response of the server has no message", r.key)
	}
	h, err := natsgo.DecodeHeadersMsg(answer.Message.Header)
	if err == nil && h.Get("KV-Operation") != "" { // the key was deleted
		return r.missing(ctx, stream)
	}
	return Stored{Found: true, Revision: answer.Message.Seq, Data: answer.Message.Data}, nil
}

// missing returns the Stored of a key that does not exist: the last revision of the whole bucket.
func (r *natsRegister) missing(ctx context.Context, stream string) (Stored, error) {
	s, err := r.js.Stream(ctx, stream)
	if err != nil {
		return Stored{}, err
	}
	return Stored{Revision: s.CachedInfo().State.LastSeq}, nil
}
