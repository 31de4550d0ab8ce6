//go:build !no_nats

package buffer

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/penstock-io/penstock/retry"
	"github.com/penstock-io/penstock/vfs"
)

const (
	streamName = "buffer"
	// syncEvery is the interval at which data is synced to disk if Options.Sync is SyncInterval.
	syncEvery = time.Second
	// startTime bounds the start of the embedded server, during which the server recovers its
	// index. It also bounds the opening of the stream.
	startTime = time.Minute
	// callTime bounds one operation on the store.
	callTime = 30 * time.Second
	// remoteTime bounds one attempt to store an envelope on external servers.
	remoteTime = 5 * time.Second
	// storeSlack is a reserve: the size limit of the stream exceeds Options.Bytes by storeSlack.
	// The buffer itself keeps to Options.Bytes, so the server never has to refuse data.
	storeSlack = 64 << 20
	// serverBytes is the limit of the embedded server. It must exceed the limits of all streams. If
	// an existing stream has a larger limit than the server, the server does not open the stream.
	serverBytes = 1 << 60
	// lockName is the file that a process locks while it uses the directory of the store.
	lockName = "penstock-buffer.lock"
)

// jetStream is a Store in a JetStream stream. The stream is on an embedded NATS server without a
// port, or on external servers.
type jetStream struct {
	server *server.Server // nil for external servers
	lock   io.Closer      // of the directory; nil for external servers
	conn   *nats.Conn
	closed <-chan error // see natsaccess.Closed; nil for the embedded server
	js     jetstream.JetStream
	stream jetstream.Stream
	// subject is the stream's only subject.
	subject string
	log     *slog.Logger
}

// OpenStore opens or creates a JetStream stream. If the option nats is set, it is the stream that
// this option names. Otherwise, it is the stream of an embedded server with its files in dir, which
// must contain nothing else. OpenStore locks dir, because two servers would delete each other's
// data.
func OpenStore(ctx context.Context, dir string, o Options, log *slog.Logger) (Store, error) {
	if o.NATS.URL != "" {
		return openRemote(ctx, o, log)
	}
	j := &jetStream{subject: streamName, log: log}
	err := j.startServer(dir, o)
	if err == nil {
		err = j.connect(ctx, o)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("buffer %s: %w", dir, err), j.Close())
	}
	return j, nil
}

// startServer locks dir and starts the embedded server.
func (j *jetStream) startServer(dir string, o Options) (err error) {
	if j.lock, err = lockDir(dir); err != nil {
		return err
	}
	j.server, err = server.NewServer(&server.Options{
		ServerName: streamName, JetStream: true, StoreDir: dir, DontListen: true, NoSigs: true,
		SyncAlways: o.Sync == SyncAlways, SyncInterval: syncEvery, MaxPayload: 2 << offsetBits,
		JetStreamMaxStore: serverBytes, JetStreamMaxMemory: 1 << 20,
	})
	if err != nil {
		return err
	}
	j.server.SetLogger(serverLog{j.log}, false, false)
	j.server.Start()
	return nil
}

// lockDir creates dir if it is missing, and locks it. It returns nil if the system has no locks.
func lockDir(dir string) (io.Closer, error) {
	d, err := vfs.OS().MakeDir(dir, 0o700)
	if err != nil {
		return nil, err
	}
	lock, err := d.Lock(lockName, fmt.Sprintf("penstock, process %d", os.Getpid()))
	switch {
	case errors.Is(err, errors.ErrUnsupported):
		lock, err = nil, nil
	case errors.Is(err, vfs.ErrLocked):
		err = fmt.Errorf("another source or process uses it; give each source a directory of "+
			"its own: %w", err)
	}
	return lock, errors.Join(err, d.Close())
}

func (j *jetStream) connect(ctx context.Context, o Options) (err error) {
	if !j.server.ReadyForConnections(startTime) {
		return fmt.Errorf("the embedded server is not ready after %v", startTime)
	}
	if j.conn, err = nats.Connect("", nats.InProcessServer(j.server)); err != nil {
		return err
	}
	if j.js, err = jetstream.New(j.conn); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, startTime)
	defer cancel()
	j.stream, err = j.js.CreateOrUpdateStream(ctx, streamConfig(streamName, j.subject, o, 1))
	return err
}

// streamConfig returns the configuration of the stream. Only Purge deletes messages: the stream
// does not limit their age or number, and refuses new data when it is full. Only the stream's
// leader answers reads, because a replica may be behind.
func streamConfig(name, subject string, o Options, replicas int) jetstream.StreamConfig {
	return jetstream.StreamConfig{
		Name: name, Subjects: []string{subject}, Storage: jetstream.FileStorage,
		Retention: jetstream.LimitsPolicy, Discard: jetstream.DiscardNew, Replicas: replicas,
		MaxBytes: int64(o.Bytes) + storeSlack,
	}
}

// Append implements Store. While external servers do not accept data, it retries. If only the
// acknowledgement of an earlier attempt was lost, it finds the envelope in the stream and reports
// success.
func (j *jetStream) Append(ctx context.Context, number uint64, text []byte) error {
	for failed := 0; ; failed++ {
		err := j.publish(ctx, number, text)
		if err == nil || j.server != nil || ctx.Err() != nil || errors.Is(err, nats.ErrMaxPayload) {
			return err
		}
		stored, other := j.Get(ctx, number)
		switch {
		case other == nil && bytes.Equal(stored, text):
			return nil
		case other == nil:
			return fmt.Errorf("another process has stored an envelope %d in the stream: %w", number, err)
		case errors.Is(other, ErrMissing) && isWrongSequence(err):
			return fmt.Errorf("the stream does not end at envelope %d: it lost data: %w", number-1, err)
		case failed == 0:
			j.log.Warn("the servers of the buffer do not accept data; retrying", "error", err)
		}
		if retry.Sleep(ctx, remotePause) != nil {
			return context.Cause(ctx)
		}
	}
}

// isWrongSequence reports whether the server refused a message because the stream's last sequence
// number was not the expected one.
func isWrongSequence(err error) bool {
	api, ok := errors.AsType[*jetstream.APIError](err)
	return ok && api.ErrorCode == jetstream.JSErrCodeStreamWrongLastSequence
}

func (j *jetStream) publish(ctx context.Context, number uint64, text []byte) error {
	timeout := callTime
	if j.server == nil {
		timeout = remoteTime
	}
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	ack, err := j.js.Publish(ctx, j.subject, text, jetstream.WithExpectLastSequence(number-1))
	if err == nil && ack.Sequence != number {
		return fmt.Errorf("envelope %d was stored as %d", number, ack.Sequence)
	}
	return err
}

// Get implements Store.
func (j *jetStream) Get(ctx context.Context, number uint64) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, callTime)
	defer cancel()
	msg, err := j.stream.GetMsg(ctx, number)
	if errors.Is(err, jetstream.ErrMsgNotFound) {
		return nil, ErrMissing
	}
	if err != nil {
		return nil, err
	}
	return msg.Data, nil
}

// Purge implements Store.
func (j *jetStream) Purge(ctx context.Context, below uint64) error {
	ctx, cancel := context.WithTimeout(ctx, callTime)
	defer cancel()
	_, last, _, err := j.State(ctx)
	if err != nil {
		return err
	}
	return j.stream.Purge(ctx, jetstream.WithPurgeSequence(min(below, last)))
}

// State implements Store.
func (j *jetStream) State(ctx context.Context) (first, last uint64, bytes int64, err error) {
	ctx, cancel := context.WithTimeout(ctx, callTime)
	defer cancel()
	info, err := j.stream.Info(ctx)
	if err != nil {
		return 0, 0, 0, err
	}
	return info.State.FirstSeq, info.State.LastSeq, int64(info.State.Bytes), nil
}

// Close implements Store.
func (j *jetStream) Close() error {
	if j.conn != nil {
		j.conn.Close()
	}
	if j.server != nil {
		j.server.Shutdown()
		j.server.WaitForShutdown()
	}
	if j.lock != nil {
		return j.lock.Close()
	}
	return nil
}

// serverLog forwards the log of the embedded server to slog. Notices become debug messages, because
// they do not help operators.
type serverLog struct{ log *slog.Logger }

func (l serverLog) put(level slog.Level, format string, args []any) {
	l.log.Log(context.Background(), level, "embedded server", "text", fmt.Sprintf(format, args...))
}

// Noticef implements server.Logger.
func (l serverLog) Noticef(format string, v ...any) { l.put(slog.LevelDebug, format, v) }

// Warnf implements server.Logger.
func (l serverLog) Warnf(format string, v ...any) { l.put(slog.LevelWarn, format, v) }

// Fatalf implements server.Logger.
func (l serverLog) Fatalf(format string, v ...any) { l.put(slog.LevelError, format, v) }

// Errorf implements server.Logger.
func (l serverLog) Errorf(format string, v ...any) { l.put(slog.LevelError, format, v) }

// Debugf implements server.Logger.
func (l serverLog) Debugf(string, ...any) {}

// Tracef implements server.Logger.
func (l serverLog) Tracef(string, ...any) {}
