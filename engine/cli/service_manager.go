package cli

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/coreos/go-systemd/v22/daemon"

	"github.com/penstock-io/penstock/engine"
)

const (
	// startInterval is the time between two checks whether the engine has started.
	startInterval = 50 * time.Millisecond

	// notifyTimeout bounds one message to the service manager.
	notifyTimeout = time.Second

	// maxStatusText bounds the text of a STATUS= message in bytes.
	maxStatusText = 200
)

// errNoSignOfLife is the cause with which a ping's context ends if the engine does not answer in
// time.
var errNoSignOfLife = errors.New("no response in a third of WatchdogSec=")

// serviceManager reports the state of a run to systemd, in the protocol of sd_notify(3). A nil
// pointer reports nothing. Its methods are safe for concurrent use.
type serviceManager struct {
	send     func(state string) error
	watchdog time.Duration // a longer silence makes systemd restart the process; zero means no watchdog
	log      *slog.Logger

	mu     sync.Mutex // guards the fields below; held over a message, so that messages keep their order
	phase  servicePhase
	failed bool // the last message was not delivered
}

type servicePhase uint8

const (
	serviceStarting servicePhase = iota
	serviceReady
	serviceReloading
	serviceStopping
)

// serviceManagerOf returns the service manager that the variables of the environment describe, or
// nil. It unsets these variables, because child processes must not inherit them.
func serviceManagerOf(log *slog.Logger) *serviceManager {
	address := os.Getenv("NOTIFY_SOCKET")
	watchdog, err := daemon.SdWatchdogEnabled(true)
	_ = os.Unsetenv("NOTIFY_SOCKET")
	if address == "" {
		return nil
	}
	if err != nil {
		log.Warn("no watchdog", "error", err)
	}
	return &serviceManager{
		send: func(state string) error { return sendDatagram(address, state) }, watchdog: watchdog, log: log,
	}
}

// sendDatagram sends one message. An address that begins with @ is in the abstract namespace.
func sendDatagram(address, text string) error {
	conn, err := net.DialUnix("unixgram", nil, &net.UnixAddr{Name: address, Net: "unixgram"})
	if err != nil {
		return err
	}
	defer conn.Close()
	if err := conn.SetWriteDeadline(time.Now().Add(notifyTimeout)); err != nil {
		return err
	}
	_, err = conn.Write([]byte(text))
	return err
}

// notify sends a message. The caller holds m.mu.
func (m *serviceManager) notify(lines ...string) {
	err := m.send(strings.Join(lines, "\n"))
	if err != nil && !m.failed {
		m.log.Warn("the service manager is not reachable", "error", err)
	}
	m.failed = err != nil
}

// Run reports to systemd that the engine has started. Then it regularly reports the engine's status
// and, if there is a watchdog, that the engine responds. It returns when ctx is done.
func (m *serviceManager) Run(ctx context.Context, e runner) error {
	tick := time.NewTicker(startInterval)
	defer tick.Stop()
	for e.Status().Tree == nil {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
	m.ready(e)
	tick.Reset(progressEvery)
	var beat <-chan time.Time
	if m.watchdog > 0 {
		t := time.NewTicker(m.watchdog / 3)
		defer t.Stop()
		beat = t.C
	}
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-beat:
			m.beat(ctx, e)
		case <-tick.C:
			text := "STATUS=" + statusLine(e.Status())
			m.mu.Lock()
			m.notify(text)
			m.mu.Unlock()
		}
	}
}

// beat pings the engine, and notifies the watchdog if the engine answers.
func (m *serviceManager) beat(ctx context.Context, e runner) {
	ping, cancel := context.WithTimeoutCause(ctx, m.watchdog/3, errNoSignOfLife)
	defer cancel()
	if err := e.Ping(ping); err != nil {
		if ctx.Err() == nil {
			m.log.Error("the engine makes no progress", "error", err)
		}
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.notify(daemon.SdNotifyWatchdog)
}

// ready reports that the engine has started, unless it is already stopping.
func (m *serviceManager) ready(e runner) {
	text := "STATUS=" + statusLine(e.Status())
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.phase != serviceStopping {
		m.phase = serviceReady
		m.notify(daemon.SdNotifyReady, text)
	}
}

// reload reloads e. The result is in the log and the status of e.
func (m *serviceManager) reload(ctx context.Context, e runner) {
	if m == nil {
		_ = e.Reload(ctx)
		return
	}
	m.mu.Lock()
	began := m.phase == serviceReady
	if began {
		m.phase = serviceReloading
		m.notify(daemon.SdNotifyReloading, strings.TrimSpace(daemon.SdNotifyMonotonicUsec()))
	}
	m.mu.Unlock()
	_ = e.Reload(ctx)
	if began {
		m.ready(e)
	}
}

// stopping reports that the engine ends. Further calls have no effect.
func (m *serviceManager) stopping() {
	if m == nil {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.phase != serviceStopping {
		m.phase = serviceStopping
		m.notify(daemon.SdNotifyStopping)
	}
}

// statusLine returns the line that `systemctl status` shows.
func statusLine(s engine.Status) string {
	text := fmt.Sprintf("%d routes", len(s.Routes))
	switch {
	case s.Reload != nil && !s.Reload.OK:
		text = "the last reload failed: " + s.Reload.Error
	case len(s.Why) > 0:
		text = "not ready: " + s.Why[0]
	case len(s.Routes) == 1:
		text = "1 route"
	}
	text, _, _ = strings.Cut(text, "\n")
	if len(text) > maxStatusText {
		text = strings.ToValidUTF8(text[:maxStatusText], "") + "…"
	}
	return text
}
