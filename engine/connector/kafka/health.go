package kafka

import (
	"fmt"
	"net"
	"strings"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/penstock-io/penstock/stream"
)

// silentAfter is the minimum time without a response from any broker after which the source reports
// a failure. While a member of a group waits for the other members, it may get no response for
// about 30 s.
const silentAfter = time.Minute

// health records when a broker has last responded to a client. The client calls its methods as
// hooks. It is safe for concurrent use.
type health struct {
	mu   sync.Mutex
	last time.Time // time of the last response, or of the start
	err  error     // failure of the last connection since then; nil if there was none
}

var (
	_ kgo.HookBrokerRead    = (*health)(nil)
	_ kgo.HookBrokerConnect = (*health)(nil)
	_ stream.RetryingSource = (*GroupSource)(nil)
)

// OnBrokerRead implements kgo.HookBrokerRead.
func (h *health) OnBrokerRead(
	_ kgo.BrokerMetadata, _ int16, _ int, _, _ time.Duration, err error,
) {
	if err != nil {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.last, h.err = time.Now(), nil
}

// OnBrokerConnect implements kgo.HookBrokerConnect.
func (h *health) OnBrokerConnect(_ kgo.BrokerMetadata, _ time.Duration, _ net.Conn, err error) {
	if err == nil {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.err = err
}

// failure returns an error if no broker has responded for the time `after`.
func (h *health) failure(brokers []string, after time.Duration) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	silent := time.Since(h.last)
	if silent < after {
		return nil
	}
	err := fmt.Errorf("no broker of %s has responded for %v; check that the brokers run",
		strings.Join(brokers, ", "), silent.Round(time.Second))
	if h.err != nil {
		err = fmt.Errorf("%w: %w", err, h.err)
	}
	return err
}

// Failure implements stream.RetryingSource. It returns an error if no broker has responded to a
// reader for the longer of silentAfter and twice the session timeout. A member of a group sends
// heartbeats all the time, so such a silence means a failure.
func (s *GroupSource) Failure() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, r := range s.readers {
		r.mu.Lock()
		closing := r.closing
		r.mu.Unlock()
		if closing {
			continue
		}
		err := r.health.failure(s.o.Brokers, max(silentAfter, 2*s.o.SessionTimeout))
		if err != nil {
			return err
		}
	}
	return nil
}
