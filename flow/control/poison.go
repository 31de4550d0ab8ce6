//penstock:pure

package control

import "fmt"

// Poison decides when an item, and not the workers, is to blame. The zero value means the defaults.
//
// An item of which Deaths workers have died is refused as if a worker had rejected it: it is cut,
// and cut again, and only the part that kills is buried. A piece of it is cut at the first death,
// because one of the pieces will kill again. An item that cannot be cut is buried only after Deaths
// deaths of its own: a death together with other records proves nothing.
//
// An item that fails although its workers deliver others is a suspect, see ADR 17. A suspect waits
// as configured by Config.Retry before each further attempt, counts against no worker's window or
// breaker, and is not hedged. All suspects together take at most 5 % of the workers' time. With
// Refuse a suspect is refused. Otherwise Config.End decides.
type Poison struct {
	Deaths   int  // 0 means 3; negative: deaths are failures like others
	Failures int  // evidence that it takes at least; 0 means 2; negative: there are no suspects
	Refuse   bool // suspects too are cut, and the remaining piece is buried
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
	if p.Deaths == 0 {
		p.Deaths = defaultDeaths
	}
	if p.Failures == 0 {
		p.Failures = defaultEvidence
	}
	return p, nil
}

// deadly takes in that a worker has died of the item of a, if it has, and reports whether the item
// is to be refused for it.
func (s *settlement) deadly(a *attempt) bool {
	it, limit := a.item, s.cfg.Poison.Deaths
	if !a.died || limit <= 0 || it.state == isDone || it.state == inHands || a.canceled {
		return false
	}
	// also of one that is refused already and waits for its other attempts: the refusal names them
	// all
	it.account.deaths++
	return it.fate == undecided && it.account.deaths >= it.account.limit(limit)
}

// convict refuses it as poison.
func (s *settlement) convict(it *item, out []Command) []Command {
	it.poison = true
	s.counts.poisoned++
	return s.reject(it, out)
}

// acquit lets a piece of a poisoned item that cannot be cut go on, if it has not failed or killed
// often enough alone.
func (s *settlement) acquit(it *item) bool {
	r := &it.account
	if !it.poison || !r.piece || r.whole || r.ended {
		return false
	}
	r.whole = true
	deadly := s.cfg.Poison.Deaths > 0 && r.deaths >= s.cfg.Poison.Deaths
	if deadly || r.suspect && s.evidence.blame.convicts(it, s.cfg.Poison.Failures, len(s.lanes.up)) {
		return false
	}
	delete(s.hands, it.seq)
	it.poison, it.fate, it.state = false, undecided, inFlight
	if r.suspect {
		r.suspect = false
		s.backlog.apart.suspects--
	}
	s.counts.poisoned--
	s.backlog.again(it, nil)
	return true
}

// inherit passes the suspicions against p on to it, a piece of p.
func (it *item) inherit(p *item, died bool) {
	it.account.piece = p.poison
	if died {
		it.account.deaths = 1
	}
	if !p.poison && p.cut.total == 1 { // the same data again
		it.account.failures, it.account.since = p.account.failures, p.account.since
		it.failures = append(it.failures, p.failures...)
	}
}

// refusal returns the command for it, with the reason why it is to be cut or buried.
func (it *item) refusal(kind CommandKind) Command {
	c := Command{Kind: kind, Seq: it.seq, Lane: -1, Number: it.number}
	switch {
	case !it.poison:
	case it.account.deaths > 0:
		c.Why, c.Count = Deadly, uint32(it.account.deaths)
	case it.account.ended:
		c.Why, c.Count = Exhausted, uint32(it.account.failures)
	default:
		c.Why, c.Count = Failing, uint32(it.account.failures)
	}
	return c
}
