//penstock:pure

package table

import (
	"slices"
	"sort"
	"strings"
)

// maxRescan bounds the option rescan, and so the keys that a partition remembers.
const maxRescan = 1_000_000

// seenRow is a row that was handed out.
type seenRow struct {
	key    string
	digest rowDigest
}

// seen are the rows near the end of what was handed out of a partition: what is in the table
// between floor and there, and not among them, came late. It holds at most max rows, the highest.
type seen struct {
	max   int
	floor string    // of what lies at or below, nothing is remembered
	rows  []seenRow // ascending by key, all above floor
}

// add notes rows, ascending by key, that were handed out. Of a key that is known, the new digest
// is kept.
func (s *seen) add(rows []seenRow) {
	rows = rows[sort.Search(len(rows), func(i int) bool { return rows[i].key > s.floor }):]
	if len(rows) == 0 {
		return
	}
	before := len(s.rows)
	s.rows = append(s.rows, rows...)
	if before > 0 && rows[0].key <= s.rows[before-1].key {
		s.merge()
	}
	s.shrink()
}

// merge puts the rows in order after some were appended.
func (s *seen) merge() {
	slices.SortStableFunc(s.rows, func(a, b seenRow) int { return strings.Compare(a.key, b.key) })
	n := 0
	for i, row := range s.rows {
		if i > 0 && row.key == s.rows[n-1].key {
			if row.digest != (rowDigest{}) {
				s.rows[n-1].digest = row.digest
			}
			continue
		}
		s.rows[n] = row
		n++
	}
	clear(s.rows[n:])
	s.rows = s.rows[:n]
}

func (s *seen) shrink() {
	if over := len(s.rows) - s.max; over > 0 {
		s.floor = s.rows[over-1].key
		s.rows = s.rows[over:]
	}
	if cap(s.rows) > 4*s.max+64 {
		s.rows = slices.Clone(s.rows)
	}
}

// keep drops the keys for which f returns false.
func (s *seen) keep(f func(key string) bool) {
	s.rows = slices.DeleteFunc(s.rows, func(r seenRow) bool { return !f(r.key) })
}

// remove drops keys, which ascend.
func (s *seen) remove(keys []string) {
	s.keep(func(key string) bool {
		for len(keys) > 0 && keys[0] < key {
			keys = keys[1:]
		}
		return len(keys) == 0 || keys[0] != key
	})
}

// search begins to look through keys for ones that came late.
func (s *seen) search() lateSearch { return lateSearch{rows: s.rows} }

// lateSearch is one pass along ascending keys.
type lateSearch struct {
	rows    []seenRow // not passed yet
	absent  []string  // passed keys that the table no longer has
	present []seenRow // the last of those that it has, at most maxPairs
}

// late reports whether the next key was not seen.
func (l *lateSearch) late(key []byte) bool {
	l.pass(func(seen string) bool { return seen < string(key) })
	if len(l.rows) == 0 || l.rows[0].key != string(key) {
		return true
	}
	if len(l.present) == maxPairs {
		l.present = append(l.present[:0], l.present[1:]...)
	}
	l.present = append(l.present, l.rows[0])
	l.rows = l.rows[1:]
	return false
}

// end tells that the table has no more keys up to pos.
func (l *lateSearch) end(pos string) { l.pass(func(seen string) bool { return seen <= pos }) }

func (l *lateSearch) pass(behind func(seen string) bool) {
	for len(l.rows) > 0 && behind(l.rows[0].key) {
		l.absent = append(l.absent, l.rows[0].key)
		l.rows = l.rows[1:]
	}
}

// tailGone reports whether the rows behind the last one that is present were deleted.
func (l *lateSearch) tailGone() bool {
	return len(l.absent) > 0 && len(l.present) > 0 && l.absent[len(l.absent)-1] > l.present[len(l.present)-1].key
}

// discovery is a row that was found late: its number in the partition of such rows, and its key.
type discovery struct {
	num int64
	key string
}
