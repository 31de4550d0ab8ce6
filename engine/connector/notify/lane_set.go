//penstock:pure

package notify

import (
	"cmp"
	"slices"
	"time"

	"github.com/penstock-io/penstock/engine/kit/parked"
)

// keptLanes is the number of lanes that each pattern of allow.hosts may have whatever the others
// have, if the option hosts is large enough.
const keptLanes = 100

// laneSet has the lanes in memory, at most `most`. Other hosts wait in the store until a lane is
// free. Hosts are counted by the pattern of allow.hosts that allows them, so that many names below
// one domain leave lanes to the hosts of the others.
//
//	most 10,000, three patterns: at least 100 lanes for each, 9,700 for all
type laneSet struct {
	epoch   time.Time // origin of the times of circuits and rate limits
	byID    map[int64]*lane
	most    int
	kept    int            // lanes that each group may have whatever others have
	groups  map[string]int // number of lanes by pattern; "" has the hosts that are listed by name
	claimed int            // lanes that groups with fewer than kept may still claim

	missing time.Time // due time of the earliest host that has no lane for want of room; zero: none
	swept   time.Time // when evict last found nothing to delete
}

func newLaneSet(most int, patterns []string, epoch time.Time) laneSet {
	s := laneSet{
		epoch:  epoch,
		byID:   make(map[int64]*lane),
		most:   most,
		groups: map[string]int{"": 0},
	}
	for _, p := range patterns {
		s.groups[p] = 0
	}
	s.kept = min(keptLanes, most/(2*len(s.groups)))
	s.claimed = s.kept * len(s.groups)
	return s
}

// hasRoom reports whether a host of a group may get a lane.
func (s *laneSet) hasRoom(group string) bool {
	others := s.claimed - max(0, s.kept-s.groups[group])
	return len(s.byID)+others < s.most
}

// add adds the lane of a host if there is room. For a host that is due, lanes that have nothing to do
// are deleted. Nil means that the host has to wait in the store.
func (s *laneSet) add(h parked.Host, group string, due *laneHeap, now time.Time) *lane {
	if _, known := s.groups[group]; !known {
		group = "" // a pattern of an earlier configuration
	}
	if !s.hasRoom(group) && !h.Due.After(now) {
		s.evict(group, due, now)
	}
	if !s.hasRoom(group) {
		s.miss(h.Due)
		return nil
	}
	l := newLane(h)
	l.group = group
	s.byID[h.ID] = l
	if s.groups[group]++; s.groups[group] <= s.kept {
		s.claimed--
	}
	return l
}

// delete deletes a lane that is in no heap.
func (s *laneSet) delete(l *lane) {
	delete(s.byID, l.id)
	if s.groups[l.group]--; s.groups[l.group] < s.kept {
		s.claimed++
	}
}

// evict deletes an eighth of the lanes, of those that have nothing to do at now, to make room for a
// host of a group. Lanes of which nothing is known go first, then those with the latest due time.
// Groups with at most kept lanes lose none, except that of the host.
func (s *laneSet) evict(group string, due *laneHeap, now time.Time) {
	if now.Sub(s.swept) < pagePause { // the search visits all lanes
		return
	}
	var resting []*lane
	for _, l := range s.byID {
		if l.isResting(now, s.since(now)) && (l.group == group || s.groups[l.group] > s.kept) {
			resting = append(resting, l)
		}
	}
	if len(resting) == 0 {
		s.swept = now
	}
	slices.SortFunc(resting, func(a, b *lane) int {
		return cmp.Or(cmp.Compare(a.worth(), b.worth()), b.due.Compare(a.due))
	})
	for _, l := range resting[:min(len(resting), max(1, s.most/8))] {
		if l.group != group && s.groups[l.group] <= s.kept {
			continue
		}
		if l.index >= 0 {
			s.miss(l.due)
			due.remove(l)
		}
		s.delete(l)
	}
}

// since returns the time of circuits and rate limits.
func (s *laneSet) since(now time.Time) time.Duration { return now.Sub(s.epoch) }

// miss notes that a host has no lane and is due at a time.
func (s *laneSet) miss(due time.Time) {
	if s.missing.IsZero() || due.Before(s.missing) {
		s.missing = due
	}
}

// pagePause is the time between two pages of a round: a full set costs a small part of a processor.
const pagePause = 200 * time.Millisecond

// round is the search for hosts without a lane that are due, a page of the store at a time.
type round struct {
	runs  bool
	after int64     // id of the last host seen
	next  time.Time // of the next page
}

// starts reports whether a page is due at now, and begins a round if none runs. Hosts that are
// missing from then on belong to the next round.
func (r *round) starts(s *laneSet, now time.Time) bool {
	if !r.runs && !s.missing.IsZero() && !now.Before(s.missing) {
		*r, s.missing = round{runs: true, next: r.next}, time.Time{}
	}
	return r.runs && !now.Before(r.next)
}

// seen notes the end of a page; after is zero at the end of the store.
func (r *round) seen(after int64, now time.Time) {
	r.runs, r.after, r.next = after > 0, after, now.Add(pagePause)
}

// until returns how long no page is due.
func (r *round) until(s *laneSet, now time.Time) time.Duration {
	switch {
	case r.runs:
		return max(0, r.next.Sub(now))
	case s.missing.IsZero():
		return time.Hour
	}
	return max(0, s.missing.Sub(now), r.next.Sub(now))
}

// isBusy reports whether hosts without a lane are due at now.
func (r *round) isBusy(s *laneSet, now time.Time) bool {
	return r.runs || !s.missing.IsZero() && !now.Before(s.missing)
}
