package cli

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"net"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/penstock-io/penstock/engine"
	"github.com/penstock-io/penstock/engine/status"
)

// recorder records the messages that a serviceManager sends.
type recorder struct {
	*serviceManager
	sent []string
	fail error
	log  bytes.Buffer
}

func record(watchdog time.Duration) *recorder {
	r := &recorder{}
	r.serviceManager = &serviceManager{watchdog: watchdog, log: slog.New(slog.NewTextHandler(&r.log, nil))}
	r.send = func(state string) error {
		r.sent = append(r.sent, state)
		return r.fail
	}
	return r
}

// messages returns a copy of the messages sent.
func (r *recorder) messages() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.sent)
}

// count returns the number of messages that begin with prefix.
func (r *recorder) count(prefix string) (n int) {
	for _, s := range r.messages() {
		if strings.HasPrefix(s, prefix) {
			n++
		}
	}
	return n
}

// TestServiceManager follows a run from its start through reloads to its end.
func TestServiceManager(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, e := record(30*time.Second), newFake()
		e.end = engine.Status{Tree: &status.Child{}, Routes: make([]status.Route, 2)}
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		m.reload(ctx, e) // before it is ready
		go func() { ended <- m.Run(ctx, e) }()
		synctest.Wait()
		if sent := m.messages(); !slices.Equal(sent, []string{"READY=1\nSTATUS=2 routes"}) {
			t.Errorf("at the start: %q", sent)
		}
		m.reload(ctx, e)
		sent := m.messages()
		if len(sent) != 3 || !strings.HasPrefix(sent[1], "RELOADING=1\n") || sent[2] != sent[0] {
			t.Errorf("a reload: %q", sent)
		}
		time.Sleep(61 * time.Second)
		if n := m.count("WATCHDOG=1"); n != 6 {
			t.Errorf("%d signs of life in 61 s with WatchdogSec=30, want 6", n)
		}
		e.silent.Store(true)
		time.Sleep(60 * time.Second)
		if n := m.count("WATCHDOG=1"); n != 6 {
			t.Errorf("%d signs of life of an engine that hangs", n-6)
		}
		synctest.Wait()
		if !strings.Contains(m.log.String(), "a third of WatchdogSec=") {
			t.Errorf("log: %s", m.log.String())
		}
		m.stopping()
		m.stopping()
		m.reload(ctx, e)
		sent = m.messages()
		if n := m.count("STOPPING=1"); n != 1 || sent[len(sent)-1] != "STOPPING=1" {
			t.Errorf("at the end: %q", sent[len(sent)-3:])
		}
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}

// TestServiceManagerNotStarted checks that an engine that does not start is never ready.
func TestServiceManagerNotStarted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, e := record(time.Second), newFake()
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if err := m.Run(ctx, e); err != nil || len(m.sent) > 0 {
			t.Errorf("Run = %v, sent %q", err, m.sent)
		}
	})
}

// TestServiceManagerUnreached checks a socket that does not accept messages. Only one warning may
// be logged.
func TestServiceManagerUnreached(t *testing.T) {
	m := record(0)
	m.fail = errors.New("connection refused")
	m.ready(newFake())
	m.stopping()
	if n := strings.Count(m.log.String(), "connection refused"); n != 1 {
		t.Errorf("%d warnings: %s", n, m.log.String())
	}
}

func TestStatusLine(t *testing.T) {
	for _, c := range []struct {
		s    engine.Status
		want string
	}{
		{engine.Status{Routes: make([]status.Route, 1)}, "1 route"},
		{engine.Status{Why: []string{"a/b: stopped\nREADY=1", "more"}}, "not ready: a/b: stopped"},
		{engine.Status{Why: []string{"x"}, Reload: &status.Reload{Error: "penstock.yaml:3:1: no such key\n  3 | x"}},
			"the last reload failed: penstock.yaml:3:1: no such key"},
		{engine.Status{Why: []string{strings.Repeat("é", 200)}}, "not ready: " + strings.Repeat("é", 94) + "…"},
	} {
		if got := statusLine(c.s); got != c.want {
			t.Errorf("statusLine = %q, want %q", got, c.want)
		}
	}
}

// TestServiceManagerOfEnvironment checks that messages go to the socket that the environment
// variable names. Child processes must not inherit this variable.
func TestServiceManagerOfEnvironment(t *testing.T) {
	path := filepath.Join(t.TempDir(), "socket")
	listener, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: path, Net: "unixgram"})
	if err != nil {
		t.Skipf("skipped: there are no datagram sockets: %v", err)
	}
	defer listener.Close()
	t.Setenv("NOTIFY_SOCKET", path)
	t.Setenv("WATCHDOG_USEC", "90000000")
	t.Setenv("WATCHDOG_PID", "")
	m := serviceManagerOf(slog.New(slog.DiscardHandler))
	if m == nil || m.watchdog != 90*time.Second {
		t.Fatalf("service manager %+v", m)
	}
	m.stopping()
	text := make([]byte, 100)
	n, err := listener.Read(text)
	if err != nil || string(text[:n]) != "STOPPING=1" {
		t.Errorf("received %q, %v", text[:n], err)
	}
	if again := serviceManagerOf(slog.New(slog.DiscardHandler)); again != nil {
		t.Error("the variables are still set")
	}
}
