package kafka

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// clientLog passes the client library's warnings on. While brokers are down, the library repeats
// some of them hundreds of times a second. Each message is a warning at most once in logInterval,
// with the number of its repetitions since, which are logged at debug level. The clients of a
// component share one, since a sink with transactions has a client for each partition.
type clientLog struct {
	log *slog.Logger

	mu       sync.Mutex // guards repeated
	repeated map[string]*repetitions
}

// repetitions are those of one message.
type repetitions struct {
	warned time.Time // when it was a warning last
	n      int       // since then
}

const (
	logInterval = 10 * time.Second

	// maxMessages bounds the messages that are told apart. The library's are constants, so that
	// they are fewer. Others count as one message.
	maxMessages = 256
)

func newClientLog(log *slog.Logger) *clientLog {
	return &clientLog{log: log, repeated: make(map[string]*repetitions)}
}

// Level implements kgo.Logger.
func (l *clientLog) Level() kgo.LogLevel {
	if l.log.Enabled(context.Background(), slog.LevelDebug) {
		return kgo.LogLevelInfo
	}
	return kgo.LogLevelWarn
}

// Log implements kgo.Logger. The library's errors are warnings here: the source and the sink report
// those that matter themselves.
func (l *clientLog) Log(level kgo.LogLevel, message string, pairs ...any) {
	at := slog.LevelDebug
	if level == kgo.LogLevelWarn || level == kgo.LogLevelError {
		warns, repeated := l.repeat(message, time.Now())
		if warns {
			at = slog.LevelWarn
		}
		if repeated > 0 {
			pairs = append(pairs, "repeated", repeated)
		}
	}
	l.log.Log(context.Background(), at, "kafka client: "+message, pairs...)
}

// repeat counts a message and reports whether it is a warning now, and the repetitions before it.
func (l *clientLog) repeat(message string, now time.Time) (warns bool, repeated int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	r := l.repeated[message]
	if r == nil && len(l.repeated) >= maxMessages {
		message = ""
		r = l.repeated[message]
	}
	if r == nil {
		l.repeated[message] = &repetitions{warned: now}
		return true, 0
	}
	if now.Sub(r.warned) < logInterval {
		r.n++
		return false, 0
	}
	repeated, r.n, r.warned = r.n, 0, now
	return true, repeated
}
