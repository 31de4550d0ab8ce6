//penstock:pure

package supervise

import (
	"cmp"
	"time"

	"github.com/penstock-io/penstock/backoff"
)

// started counts a new incarnation of the child.
func (s *resends[K, M, R]) started(now time.Duration) uint64 {
	s.incarnation++
	s.progress = now
	return s.incarnation
}

// crashed handles a crash of the child, which had run for the time ran and failed with err. The
// messages that the child had taken and not settled become ready again, or are dead-lettered. If
// there was only one, the crash counts against it (MaxDeaths). crashed returns the delay before the
// next incarnation, and false if the policy has given up.
func (s *resends[K, M, R]) crashed(now, ran time.Duration, err error) (time.Duration, bool) {
	if s.out.n == 0 && s.suspects == 0 && ran >= s.stableAfter() {
		s.state, s.streak = backoff.State{}, 0
	}
	d, next, ok := s.backoff.Next(s.state, s.src)
	if ok {
		s.state = next
	}
	s.streak++
	alone := s.out.n == 1
	for h := s.out.last; h != nil; h = s.out.last {
		s.out.drop(h)
		h.state, h.err = h.state.After(d), err
		if alone {
			h.deaths++
		}
		if !h.suspect {
			h.suspect = true
			s.suspects++
		}
		s.release(now, h)
	}
	s.probing, s.window, s.taken, s.failed = true, 1, 0, false
	return d, ok
}

// stableAfter returns the run time after which a crash starts the sequence of delays from the
// beginning. A crash does so only under two more conditions. The child must have no message. There
// must be no suspect, which is a message that the child had taken at an earlier crash and that has
// not settled since.
func (s *resends[K, M, R]) stableAfter() time.Duration {
	return max(longest(s.backoff), plus(s.state.Prev, s.state.Prev))
}

// release makes h, which is in no list, ready, or dead-letters it if it gets no further attempt.
func (s *resends[K, M, R]) release(now time.Duration, h *held[K, M, R]) {
	if reason := s.giveUpReason(now, h); reason != nil {
		s.deadLetter(h, reason)
		return
	}
	h.list = ready
	s.ready.insert(h)
}

// stopped handles the end of a child that was told to stop, or that needs no restart. All messages
// that the child had taken and not settled become ready again.
func (s *resends[K, M, R]) stopped() {
	for h := s.out.last; h != nil; h = s.out.last {
		s.out.drop(h)
		h.list = ready
		s.ready.insert(h)
	}
	s.taken, s.failed = 0, false
}

// returned handles a child that has returned nil by itself. The messages that the child had taken
// and not settled become ready again, or are dead-lettered. It returns the delay before the next
// incarnation. It does not advance the policy, so the delays do not grow. If the policy has given
// up, the delay is the last one, or firstReturnDelay if there was none.
func (s *resends[K, M, R]) returned(now time.Duration) time.Duration {
	for h := s.out.last; h != nil; h = s.out.last {
		s.out.drop(h)
		s.release(now, h)
	}
	s.taken, s.failed = 0, false
	d, _, ok := s.backoff.Next(s.state, s.src)
	if !ok {
		return cmp.Or(s.state.Prev, firstReturnDelay)
	}
	return d
}

// firstReturnDelay is the delay before the restart of a child that has returned nil, if its policy
// gives up before its first delay. It prevents a busy loop.
const firstReturnDelay = time.Second

// tick makes messages ready when their delay is over. It dead-letters messages that are too old,
// except for those that the child has taken.
func (s *resends[K, M, R]) tick(now time.Duration) {
	for h := s.delayed.First(); h != nil && h.due <= now; h = s.delayed.First() {
		s.leave(h)
		if h.reason != nil { // DeadLetter failed
			s.deadLetter(h, h.reason)
		} else {
			s.release(now, h)
		}
	}
	for h := s.ready.first; h != nil && s.limits.MaxAge > 0 &&
		now-h.accepted >= s.limits.MaxAge; h = s.ready.first {
		s.ready.drop(h)
		s.deadLetter(h, s.giveUpReason(now, h))
	}
}

// wake returns the time of the next tick or stall, or never.
func (s *resends[K, M, R]) wake() time.Duration {
	at := never
	if h := s.delayed.First(); h != nil {
		at = h.due
	}
	if s.limits.MaxAge > 0 && s.ready.first != nil {
		at = min(at, plus(s.ready.first.accepted, s.limits.MaxAge))
	}
	if s.limits.Stall > 0 && s.out.n > 0 {
		at = min(at, plus(s.progress, s.limits.Stall))
	}
	return at
}

// stalled reports whether the child has messages and has neither taken nor settled one for
// Limits.Stall.
func (s *resends[K, M, R]) stalled(now time.Duration) bool {
	return s.limits.Stall > 0 && s.out.n > 0 && now-s.progress >= s.limits.Stall
}

// detour chooses between Options.Child and Options.Fallback for the next incarnation.
type detour struct {
	after    int           // crashes in a row until the recipe changes; 0 if there is no fallback
	back     time.Duration // maximum time with the fallback; 0 means no limit
	fallback bool
	trial    bool          // Child runs again because back has passed; see crashed
	crashes  int           // number of crashes in a row with this recipe
	since    time.Duration // time of the last change of the recipe
}

// crashed counts a crash of the child, and changes between Options.Child and Options.Fallback if
// there were enough crashes in a row. The count starts over if the child had recovered since the
// previous crash (recovered).
func (d *detour) crashed(now time.Duration, recovered bool) {
	if recovered {
		d.crashes = 0
	}
	d.crashes++
	failed := d.trial && now-d.since < d.back
	d.trial = false
	if d.after > 0 && (failed || d.crashes >= d.after) {
		d.fallback, d.crashes, d.since = !d.fallback, 0, now
	}
}

// due reports whether it is time to try Options.Child again.
func (d *detour) due(now time.Duration) bool {
	return d.fallback && d.back > 0 && now-d.since >= d.back
}

// goBack returns to Options.Child.
func (d *detour) goBack(now time.Duration) {
	d.fallback, d.trial, d.crashes, d.since = false, true, 0, now
}
