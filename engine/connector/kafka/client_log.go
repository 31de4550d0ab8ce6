package kafka

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// clientLog logs the messages of the client library. While brokers are down, the library repeats
// some warnings hundreds of times a second. So clientLog logs each message as a warning at most
// once per logInterval. It logs the repetitions at debug level, and adds their number to the next
// warning.
//
// All clients of a component share one clientLog. A transactional sink has a client for each
// partition, and these clients would otherwise repeat each other's warnings.
type clientLog struct {
	log *slog.Logger

	mu       sync.Mutex // guards repeated
	repeated map[string]*repetitions
}

// repetitions counts the repetitions of one message.
type repetitions struct {
	warned time.Time // time of the last warning
	n      int       // repetitions since then
}

const (
	logInterval = 10 * time.Second

	// maxMessages bounds the number of messages that are counted separately. Further messages are
	// counted together. The library has fewer warnings and errors, and nearly all of them are
	// constants.
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

// Log implements kgo.Logger. It logs the library's errors as warnings, because the source and the
// sink report the errors that matter.
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

// repeat counts a message and reports whether to log it as a warning now, with the number of
// repetitions since the last warning.
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
