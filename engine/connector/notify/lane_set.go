//penstock:pure

package notify

import (
	"cmp"
	"slices"
	"time"

	"github.com/penstock-io/penstock/engine/kit/parked"
)

// keptLanes is the number of lanes (states of hosts in memory) reserved for each group of hosts
// (see laneSet). Fewer lanes are reserved if the option hosts, the maximum number of lanes, is
// small.
const keptLanes = 100

// laneSet holds the lanes (the states of hosts) in memory, at most `most`. A host for which there
// is no room waits in the store until a lane becomes free.
//
// Hosts that are allowed by the same pattern of allow.hosts form a group. All other hosts form one
// more group. Some lanes are reserved for each group, so that many hosts below one domain leave
// lanes for the hosts of other groups. Example: with 10,000 lanes and three groups, 100 lanes are
// reserved for each group, and 9,700 are for all.
type laneSet struct {
	epoch   time.Time // origin of the times of circuits and rate limits
	byID    map[int64]*lane
	most    int
	kept    int            // lanes reserved for each group
	groups  map[string]int // number of lanes by pattern; "" is for hosts listed by name
	claimed int            // reserved lanes that are not in use

	missing time.Time // earliest due time of a host without a lane; zero if there is none
	swept   time.Time // last time at which evict found no lane to delete
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

// hasRoom reports whether there is room for another lane of a group.
func (s *laneSet) hasRoom(group string) bool {
	others := s.claimed - max(0, s.kept-s.groups[group])
	return len(s.byID)+others < s.most
}

// add adds a lane (the state of a host) for h if there is room. If there is none and h is due, add
// first deletes lanes of hosts that need no attempt now. It returns nil if h must wait in the
// store.
func (s *laneSet) add(h parked.Host, group string, due *laneHeap, now time.Time) *lane {
	if _, known := s.groups[group]; !known {
		group = "" // an earlier configuration had this pattern
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

// delete deletes a lane that is not in the heap.
func (s *laneSet) delete(l *lane) {
	delete(s.byID, l.id)
	if s.groups[l.group]--; s.groups[l.group] < s.kept {
		s.claimed++
	}
}

// evict deletes resting lanes (states of hosts that need no attempt now, see lane.isResting) to
// make room for a host of a group. It deletes at most an eighth of the maximum number of lanes, or
// one lane if that is more. Lanes of the lowest worth (see lane.worth) come first, and among these,
// those with the latest due time. Other groups keep their reserved lanes. If evict finds no lane
// that it may delete, it does not search again until pagePause has passed.
func (s *laneSet) evict(group string, due *laneHeap, now time.Time) {
	if now.Sub(s.swept) < pagePause { // the search visits all lanes: limit its frequency
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

// since returns now relative to epoch.
func (s *laneSet) since(now time.Time) time.Duration { return now.Sub(s.epoch) }

// miss stores the due time of a host without a lane, if no such host is due earlier.
func (s *laneSet) miss(due time.Time) {
	if s.missing.IsZero() || due.Before(s.missing) {
		s.missing = due
	}
}

// pagePause is the minimum time between two pages of a round. A round searches the store for due
// hosts without a lane (their state in memory), page by page. The pause limits the processor time
// for the search.
const pagePause = 200 * time.Millisecond

// round is a search in the store for hosts with due deliveries that have no lane (the state of a
// host in memory). It reads the hosts page by page.
type round struct {
	runs  bool
	after int64     // id of the last host seen
	next  time.Time // time of the next page
}

// starts reports whether the next page of the store must be read at the time now. If no round is
// running and a host without a lane (its state in memory) is due, starts begins a new round. A host
// that finds no room during a round waits for the next round.
func (r *round) starts(s *laneSet, now time.Time) bool {
	if !r.runs && !s.missing.IsZero() && !now.Before(s.missing) {
		*r, s.missing = round{runs: true, next: r.next}, time.Time{}
	}
	return r.runs && !now.Before(r.next)
}

// pageEnded updates the round after a page was read. after is HostPage.After, which is zero at the
// end of the store.
func (r *round) pageEnded(after int64, now time.Time) {
	r.runs, r.after, r.next = after > 0, after, now.Add(pagePause)
}

// until returns the time until the next page is due.
func (r *round) until(s *laneSet, now time.Time) time.Duration {
	switch {
	case r.runs:
		return max(0, r.next.Sub(now))
	case s.missing.IsZero():
		return time.Hour
	}
	return max(0, s.missing.Sub(now), r.next.Sub(now))
}

// isBusy reports whether a round is running, or a host without a lane is due at now.
func (r *round) isBusy(s *laneSet, now time.Time) bool {
	return r.runs || !s.missing.IsZero() && !now.Before(s.missing)
}
