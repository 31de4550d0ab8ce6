//penstock:pure

package control

import "fmt"

// Poison says when an item, and not the workers, is to blame. The zero value means the defaults.
//
// An item of which Deaths workers have died is refused as if a worker had rejected it: it is cut, and cut again, and what
// kills alone is buried. A piece of it is cut at the first death, because one of the pieces will kill again; but what
// cannot be cut is buried only after Deaths deaths of its own: what dies beside it, or by somebody's hand, is no proof.
//
// An item that Failures distinct workers have failed (all of them, where there are fewer), each of which has since delivered
// others and failed hardly any, is a suspect. That never happens while the workers, or what is behind them, are down or
// overloaded, since then others fail too. A suspect waits as Config.Retry says before each further attempt, counts against
// no worker's window or breaker, and is not hedged; with Refuse it is refused. Otherwise it is tried for ever: nothing is
// given up by count.
type Poison struct {
	Deaths   int  // 0 means 3; negative: deaths are failures like others
	Failures int  // 0 means 3; negative: there are no suspects
	Refuse   bool // suspects too are cut, and what is left is buried
}

const (
	defaultPoison = 3
	maxPoison     = 100
)

func (p Poison) withDefaults() (Poison, error) {
	if p.Deaths > maxPoison || p.Failures > maxPoison {
		return p, fmt.Errorf("poison after %d deaths or %d failures: want at most %d", p.Deaths, p.Failures, maxPoison)
	}
	if p.Deaths == 0 {
		p.Deaths = defaultPoison
	}
	if p.Failures == 0 {
		p.Failures = defaultPoison
	}
	return p, nil
}

// charge is a failure of an item at a lane that may not be the lane's fault.
type charge struct {
	lane              int32
	delivered, failed uint64 // by the lane until then
	proved            bool   // since then it has delivered leastProof others and failed a tenth of that at most
}

const (
	leastProof = 8
	maxCharges = 2 * maxPoison
)

// account is what speaks against an item.
type account struct {
	deaths  int
	piece   bool // of an item that was refused as poison: once is enough to cut it
	whole   bool // it cannot be cut
	suspect bool // kept apart
}

// limit is how many deaths, or failures, of n that are allowed are enough for what is known of the item.
func (r *account) limit(n int) int {
	if r.piece && !r.whole {
		return 1
	}
	return n
}

// accuse takes in that a, which has just ended, did not deliver, and says whether its item is poison and to be refused.
func (m *Machine) accuse(a *attempt) bool {
	it, limits := a.item, m.cfg.Poison
	switch {
	case it.state == isDone || it.state == inHands || a.canceled:
		return false
	case a.died && limits.Deaths > 0:
		it.account.deaths++ // also of one that is refused already and waits for its other attempts: the refusal names them all
		return !it.refused && it.account.deaths >= it.account.limit(limits.Deaths)
	case it.refused:
		return false
	case limits.Failures <= 0 || !m.proved(a):
		return false
	}
	m.keepApart(it)
	return limits.Refuse
}

// proved adds the failure of a to the charges and says whether enough of them are proved.
func (m *Machine) proved(a *attempt) bool {
	it, l := a.item, a.lane
	limit := it.account.limit(m.cfg.Poison.Failures)
	charges := it.charges
	if len(charges) < maxCharges {
		charges = append(charges, charge{lane: l.num, delivered: l.stats.delivered, failed: l.stats.failures()})
	}
	it.charges = charges
	have, lanes := 0, 0
	for i := range charges {
		if !m.proves(charges, i) {
			continue
		}
		have++
		again := false
		for _, b := range charges[:i] {
			again = again || b.proved && b.lane == charges[i].lane
		}
		if !again {
			lanes++
		}
	}
	return have >= limit && lanes >= min(limit, len(m.up))
}

// proves says whether what the lane of the ith charge has done since then shows that the fault is not its own.
func (m *Machine) proves(charges []charge, i int) bool {
	c := &charges[i]
	at, found := m.laneIndex(c.lane)
	if c.proved || !found {
		return c.proved
	}
	stats := &m.lanes[at].stats
	own := uint64(0) // failures of this item
	for _, b := range charges[i:] {
		if b.lane == c.lane {
			own++
		}
	}
	delivered, failed := stats.delivered-c.delivered, stats.failures()-c.failed
	c.proved = stats.delivered >= c.delivered+leastProof && 10*(failed-min(failed, own)) <= delivered
	return c.proved
}

func (s *laneStats) failures() uint64 { return s.failed + s.timedOut }

// keepApart makes it a suspect from now on.
func (m *Machine) keepApart(it *item) {
	if !it.account.suspect {
		it.account.suspect = true
		m.suspects++
	}
}

// exempt says that what a did not deliver is its item's fault; probes decide about their worker all the same.
func (m *Machine) exempt(a *attempt) bool {
	return a.item.account.suspect && a != a.lane.br.probe && a != m.global.probe
}

// convict refuses it as poison.
func (m *Machine) convict(it *item, out []Command) []Command {
	it.poison = true
	m.poisoned++
	return m.reject(it, out)
}

// acquit lets a piece of a poisoned item that cannot be cut go on, if it has not killed often enough while it was alone.
func (m *Machine) acquit(it *item) bool {
	r := &it.account
	if !it.poison || !r.piece || r.whole {
		return false
	}
	r.whole = true
	if r.deaths >= m.cfg.Poison.Deaths && m.cfg.Poison.Deaths > 0 {
		return false
	}
	delete(m.hands, it.seq)
	it.poison, it.refused, it.state = false, false, inFlight
	m.poisoned--
	m.again(it, nil)
	return true
}

// inherit makes it, a piece of p, what p is suspected of.
func (it *item) inherit(p *item, died bool) {
	it.account.piece = p.poison
	if died {
		it.account.deaths = 1
	}
}

// refusal is why it is to be cut or buried.
func (it *item) refusal(kind CommandKind) Command {
	c := Command{Kind: kind, Seq: it.seq, Lane: -1, Number: it.number}
	switch {
	case !it.poison:
	case it.account.deaths > 0:
		c.Why, c.Count = Deadly, uint32(it.account.deaths)
	default:
		c.Why, c.Count = Failing, uint32(len(it.charges))
	}
	return c
}
