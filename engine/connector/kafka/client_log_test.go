package kafka

import (
	"bytes"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// TestClientLog logs a message repeatedly for a minute. Only seven warnings must appear, with the
// number of the repetitions between them.
func TestClientLog(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		l := newClientLog(slog.New(slog.NewTextHandler(&out, nil)))
		for range 60_001 {
			l.Log(kgo.LogLevelWarn, "unable to open connection to broker", "broker", 1)
			time.Sleep(time.Millisecond)
		}
		l.Log(kgo.LogLevelError, "another message", "broker", 1)
		lines := strings.Split(strings.TrimSpace(out.String()), "\n")
		const last = `msg="kafka client: another message" broker=1`
		if len(lines) != 8 || !strings.Contains(lines[7], last) {
			t.Fatalf("%d lines, want 7 and the other message:\n%s", len(lines), &out)
		}
		for _, line := range lines[1:7] {
			if !strings.HasSuffix(line, "broker=1 repeated=9999") {
				t.Errorf("got %s", line)
			}
		}
	})
}

// TestClientLogIsBounded checks that clientLog keeps a bounded number of messages, even if every
// message has another text.
func TestClientLogIsBounded(t *testing.T) {
	l := newClientLog(slog.New(slog.DiscardHandler))
	for i := range 10 * maxMessages {
		l.Log(kgo.LogLevelWarn, fmt.Sprint("message ", i))
	}
	if n := len(l.repeated); n > maxMessages+1 {
		t.Errorf("%d messages are kept, want at most %d", n, maxMessages+1)
	}
}
