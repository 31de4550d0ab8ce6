package notify

import (
	"context"
	"fmt"
	"time"

	"github.com/penstock-io/penstock/engine/kit/parked"
)

// reload reads the hosts with waiting deliveries from the store.
func (s *sender) reload(ctx context.Context) error {
	for after := int64(0); ; {
		page, err := s.store.Hosts(ctx, after, pageSize)
		if err != nil {
			return fmt.Errorf("parked store: %w", err)
		}
		now := time.Now()
		for _, h := range page.Hosts {
			s.meet(h, now)
		}
		if after = page.After; after == 0 {
			return nil
		}
	}
}

// meet schedules a visit of the host's lane (its state in memory) at the due time of the host. If
// the host has no lane, meet adds one; if there is no room for a lane, the host waits in the store.
// meet does nothing if an earlier visit is scheduled. It also does nothing while the lane waits
// until slow hosts may have more attempts, or until skipped attempts are stored.
func (s *sender) meet(h parked.Host, now time.Time) {
	l := s.lanes.byID[h.ID]
	if l == nil {
		if l = s.lanes.add(h, s.sink.o.Allow.Pattern(h.Name), &s.due, now); l == nil {
			return
		}
	}
	if l.absent == present && (l.index < 0 || h.Due.Before(l.due)) {
		s.due.schedule(l, h.Due)
	}
}

// admit searches the store for hosts with due deliveries that have no lane (the state of a host in
// memory), and gives them lanes. It reads at most one page of the store.
func (s *sender) admit(ctx context.Context, now time.Time) error {
	if !s.round.starts(&s.lanes, now) {
		return nil
	}
	page, err := s.store.Hosts(ctx, s.round.after, pageSize)
	if err != nil {
		return fmt.Errorf("parked store: %w", err)
	}
	for _, h := range page.Hosts {
		if h.Due.After(now) && s.lanes.byID[h.ID] == nil {
			s.lanes.miss(h.Due)
			continue
		}
		s.meet(h, now)
	}
	s.round.pageEnded(page.After, now)
	return nil
}

// maintain reads the changes that other processes, such as commands of operators, have made in the
// store. It also deletes deliveries that ended long ago.
func (s *sender) maintain(ctx context.Context) error {
	version, err := s.store.DataVersion(ctx)
	if err != nil {
		return err
	}
	if version != s.version {
		s.version = version
		if err := s.store.Refresh(ctx); err != nil {
			return err
		}
		if err := s.reload(ctx); err != nil {
			return err
		}
	}
	if s.rounds++; s.rounds%pruneEvery != 0 {
		return nil
	}
	before := time.Now().Add(-s.sink.o.Parked.History)
	bound := int64(s.sink.o.Parked.Bytes)
	if s.store.LastTotals().Bytes > bound-bound/100*pressure {
		before = time.Now().Add(-leastHistory)
	}
	if s.sink.synced != nil {
		if synced := s.sink.synced().Add(-settleTime); synced.Before(before) {
			before = synced
		}
	}
	for begun := time.Now(); ; {
		n, err := s.store.Prune(ctx, before)
		if err != nil || n == 0 {
			return err
		}
		if time.Since(begun) >= pruneTime {
			s.rounds-- // prune again next time: there may be more
			return nil
		}
	}
}

// recheck makes the dispatcher read a host again after an operator has changed one of its
// deliveries.
func (s *sender) recheck(ctx context.Context, host string) {
	h, ok, err := s.store.Host(ctx, host)
	if err != nil || !ok {
		return // nothing waits, or the store failed and the dispatcher ends, too
	}
	s.add([]parked.Host{h})
}
