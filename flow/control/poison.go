//penstock:pure

package control

import (
	"cmp"
	"fmt"
)

// Poison configures when an item, and not its workers, is to blame. The zero value means the
// defaults.
//
// An item that has killed Deaths workers is refused as if a worker had rejected it: it is cut
// repeatedly, and only the part that kills is dead-lettered. A piece of it is cut at the first
// death, because one of the pieces is expected to kill again. An item that cannot be cut is
// dead-lettered only after it has killed Deaths workers by itself: other records may have caused
// the earlier deaths.
//
// An item that fails although its workers deliver others is a suspect, see ADR 17. A suspect waits
// as configured by Config.Retry before each further attempt, and is not hedged. Its failures count
// against no worker's window or breaker, except those of a probe. All suspects together take at
// most about 5 % of the workers' time, or more while no other item is in flight. If Refuse is true,
// suspects are refused. Otherwise Config.End decides.
type Poison struct {
	Deaths   int  // 0 means 3; negative: deaths are failures like others
	Failures int  // minimum failures of a suspect; 0 means 2; negative: there are no suspects
	Refuse   bool // suspects are also cut, and the remaining piece is dead-lettered
}

const (
	defaultDeaths   = 3
	defaultEvidence = 2
	maxPoison       = 100
)

func (p Poison) withDefaults() (Poison, error) {
	if p.Deaths > maxPoison || p.Failures > maxPoison {
		return p, fmt.Errorf("poison after %d deaths or %d failures: want at most %d", p.Deaths, p.Failures, maxPoison)
	}
	p.Deaths = cmp.Or(p.Deaths, defaultDeaths)
	p.Failures = cmp.Or(p.Failures, defaultEvidence)
	return p, nil
}

// countDeath counts a death if the item of attempt a killed the worker, and reports whether the
// item must be refused because of its deaths.
func (s *settlement) countDeath(a *attempt) bool {
	it, limit := a.item, s.cfg.Poison.Deaths
	if !a.died || limit <= 0 || !it.isActive() || a.canceled {
		return false
	}
	// Also count deaths of an item that is already refused and waits for its other attempts: the
	// refusal gives the number of all deaths.
	it.account.deaths++
	return it.decision == undecided && it.account.deaths >= it.account.limit(limit)
}

// refuseAsPoison refuses the item because of its deaths or failures, as if a worker had rejected
// it.
func (s *settlement) refuseAsPoison(it *item, out []Command) []Command {
	it.poison = true
	s.counts.poisoned++
	return s.reject(it, out)
}

// retryPiece revokes the refusal of a piece of poison that cannot be cut, and makes the piece wait
// for another attempt. It reports whether it did so. It does not if the item is no such piece, was
// given up, or has failed or killed often enough by itself.
func (s *settlement) retryPiece(it *item) bool {
	r := &it.account
	if !it.poison || !r.piece || r.indivisible || r.givenUp {
		return false
	}
	r.indivisible = true
	deadly := s.cfg.Poison.Deaths > 0 && r.deaths >= s.cfg.Poison.Deaths
	if deadly || r.suspect && s.evidence.blame.enoughEvidence(it, s.cfg.Poison.Failures,
		s.lanes.inUse()) {
		return false
	}
	delete(s.pending, it.seq)
	it.poison, it.decision, it.state = false, undecided, inFlight
	if r.suspect {
		r.suspect = false
		s.backlog.suspects.unsettled--
	}
	s.counts.poisoned--
	s.backlog.requeue(it, nil)
	return true
}

// inherit initializes the evidence against the item, a piece of p. The parameter died reports
// whether a worker died of the piece. The failures of p count against the item only if it is the
// only piece of p, and p was not cut as poison.
func (it *item) inherit(p *item, died bool) {
	it.account.piece = p.poison
	if died {
		it.account.deaths = 1
	}
	if !p.poison && p.cut.total == 1 { // the only piece has the same data as p
		it.account.failures, it.account.since = p.account.failures, p.account.since
		it.failures = append(it.failures, p.failures...)
	}
}

// refusal returns the command that cuts or dead-letters the item, with its reason.
func (it *item) refusal(kind CommandKind) Command {
	c := Command{Kind: kind, Seq: it.seq, Lane: -1, Number: it.number}
	switch {
	case !it.poison:
	case it.account.deaths > 0:
		c.Reason, c.Count = Deadly, uint32(it.account.deaths)
	case it.account.givenUp:
		c.Reason, c.Count = Exhausted, uint32(it.account.failures)
	default:
		c.Reason, c.Count = Failing, uint32(it.account.failures)
	}
	return c
}
