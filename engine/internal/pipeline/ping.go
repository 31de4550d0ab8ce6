package pipeline

import (
	"context"
	"fmt"
	"strings"
)

// Ping checks that the event loop of every route responds. See engine.Engine.Ping.
func (e *Engine) Ping(ctx context.Context) error {
	type ping struct {
		route string
		done  <-chan struct{}
	}
	var pings []ping
	for s := range e.slots() {
		if done := s.ping(); done != nil {
			pings = append(pings, ping{s.key, done})
		}
	}
	var silent []string
	for _, p := range pings {
		select {
		case <-p.done:
			continue
		case <-ctx.Done():
		}
		select { // time is over for the other routes as well
		case <-p.done:
		default:
			silent = append(silent, p.route)
		}
	}
	if len(silent) > 0 {
		return fmt.Errorf("event loop of %s: %w", strings.Join(silent, ", "), context.Cause(ctx))
	}
	return nil
}

// ping returns a channel that is closed when the event loop of the route's sender responds. It
// returns nil if the route is not running, or has not opened its sink and reader yet.
func (s *slot) ping() <-chan struct{} {
	s.mu.Lock()
	r, running := s.route, s.running
	s.mu.Unlock()
	if r == nil || !running || !r.sender.stability.hasOpened() {
		return nil
	}
	r.mu.Lock()
	sender := r.sender.sender
	r.mu.Unlock()
	if sender == nil {
		return nil
	}
	return sender.Ping()
}
