//go:build !no_nats

package buffer

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

const (
	streamName = "buffer"
	// syncEvery is how often SyncInterval syncs.
	syncEvery = time.Second
	// startTime bounds the recovery of the embedded server, which reads its index.
	startTime = time.Minute
	// callTime bounds one operation of the store.
	callTime = 30 * time.Second
	// storeSlack is the room of the stream beyond Options.Bytes, which is checked first.
	storeSlack = 64 << 20
)

// jetStream is a Store in an embedded NATS server without a port.
type jetStream struct {
	server *server.Server
	conn   *nats.Conn
	js     jetstream.JetStream
	stream jetstream.Stream
}

// OpenStore opens or creates a JetStream stream in a directory, which belongs to it alone.
func OpenStore(ctx context.Context, dir string, o Options, log *slog.Logger) (Store, error) {
	s, err := server.NewServer(&server.Options{
		ServerName: streamName, JetStream: true, StoreDir: dir, DontListen: true, NoSigs: true,
		SyncAlways: o.Sync == SyncAlways, SyncInterval: syncEvery, MaxPayload: 2 << offsetBits,
		JetStreamMaxStore: int64(o.Bytes) + 2*storeSlack, JetStreamMaxMemory: 1 << 20,
	})
	if err != nil {
		return nil, fmt.Errorf("buffer %s: %w", dir, err)
	}
	s.SetLogger(serverLog{log}, false, false)
	s.Start()
	j := &jetStream{server: s}
	if err := j.connect(ctx, o); err != nil {
		return nil, errors.Join(fmt.Errorf("buffer %s: %w", dir, err), j.Close())
	}
	return j, nil
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
	// Limits retention without an age: nothing is deleted but by Purge.
	j.stream, err = j.js.CreateOrUpdateStream(ctx, jetstream.StreamConfig{
		Name: streamName, Subjects: []string{streamName}, Storage: jetstream.FileStorage,
		Retention: jetstream.LimitsPolicy, Discard: jetstream.DiscardNew, Replicas: 1,
		MaxBytes: int64(o.Bytes) + storeSlack,
	})
	return err
}

// Append implements Store.
func (j *jetStream) Append(ctx context.Context, number uint64, text []byte) error {
	ctx, cancel := context.WithTimeout(ctx, callTime)
	defer cancel()
	ack, err := j.js.Publish(ctx, streamName, text, jetstream.WithExpectLastSequence(number-1))
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
	j.server.Shutdown()
	j.server.WaitForShutdown()
	return nil
}

// serverLog passes the log of the embedded server on. Its notices are of no use to operators.
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
