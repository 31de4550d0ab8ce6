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
	// startInterval is the interval at which to check whether the engine has started.
	startInterval = 50 * time.Millisecond

	// notifyTimeout is the maximum time to send a message to the service manager.
	notifyTimeout = time.Second

	// maxStatusText is the maximum length of the text in a STATUS= message, in bytes.
	maxStatusText = 200
)

// errNoSignOfLife is the reason for a ping that failed. A ping asks the engine whether its routes
// still work. If the engine does not respond within a third of the watchdog's time, the context of
// the ping ends with this error as its cause.
var errNoSignOfLife = errors.New("no response in a third of WatchdogSec=")

// serviceManager reports the state of a run to systemd with the protocol of sd_notify(3). A nil
// pointer reports nothing. It is safe for concurrent use.
type serviceManager struct {
	send     func(state string) error
	watchdog time.Duration // after a longer silence systemd restarts the process; 0: never
	log      *slog.Logger

	mu     sync.Mutex // guards the fields below; held while a message is sent, to keep the order
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

// serviceManagerOf returns the service manager that the environment variables of systemd describe
// (NOTIFY_SOCKET and those of the watchdog). It returns nil if NOTIFY_SOCKET is not set. It unsets
// the variables, so that child processes do not inherit them.
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

// sendDatagram sends one message. If address begins with @, it is in the abstract namespace of
// Linux.
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

// Run reports to systemd that the engine has started. After that, it reports the engine's status at
// intervals. If there is a watchdog, it also reports, at intervals, that the engine responds. It
// returns when ctx is done.
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

// beat pings the engine. If the engine responds, beat notifies the watchdog.
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

// reload reloads the config of e. The result is in the log and the status of e.
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

// stopping reports that the engine is ending. Only the first call has an effect.
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
