//penstock:pure

package table

import (
	"slices"
	"sort"
	"strings"
)

// maxRescan bounds the option rescan, and so the number of remembered keys per partition.
const maxRescan = 1_000_000

// seenRow is a row that was handed out.
type seenRow struct {
	key    string
	digest rowDigest
}

// seenRows is the set of rows near the end of a partition that were handed out. Other rows of the
// table between floor and that end are late. It holds at most max rows, those with the highest
// keys.
type seenRows struct {
	max   int
	floor string    // rows at or below it are not remembered
	rows  []seenRow // ascending by key, all above floor
}

// add records rows, ascending by key, that were handed out. For a known key the new digest is
// stored.
func (s *seenRows) add(rows []seenRow) {
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

// merge restores the order after rows were appended.
func (s *seenRows) merge() {
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

func (s *seenRows) shrink() {
	if over := len(s.rows) - s.max; over > 0 {
		s.floor = s.rows[over-1].key
		s.rows = s.rows[over:]
	}
	if cap(s.rows) > 4*s.max+64 {
		s.rows = slices.Clone(s.rows)
	}
}

// filter removes the keys for which f returns false.
func (s *seenRows) filter(f func(key string) bool) {
	s.rows = slices.DeleteFunc(s.rows, func(r seenRow) bool { return !f(r.key) })
}

// remove removes keys, which ascend.
func (s *seenRows) remove(keys []string) {
	s.filter(func(key string) bool {
		for len(keys) > 0 && keys[0] < key {
			keys = keys[1:]
		}
		return len(keys) == 0 || keys[0] != key
	})
}

// search begins a search for late rows.
func (s *seenRows) search() lateSearch { return lateSearch{rows: s.rows} }

// lateSearch is one pass over ascending keys.
type lateSearch struct {
	rows    []seenRow // not reached yet
	absent  []string  // passed keys that the table no longer contains
	present []seenRow // the last existing rows, at most maxPairs
}

// late reports whether key, the next one in the table, was not seen.
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

// end records that the table has no more keys up to pos.
func (l *lateSearch) end(pos string) { l.pass(func(seen string) bool { return seen <= pos }) }

func (l *lateSearch) pass(behind func(seen string) bool) {
	for len(l.rows) > 0 && behind(l.rows[0].key) {
		l.absent = append(l.absent, l.rows[0].key)
		l.rows = l.rows[1:]
	}
}

// tailDeleted reports whether rows after the last existing one were deleted.
func (l *lateSearch) tailDeleted() bool {
	return len(l.absent) > 0 && len(l.present) > 0 &&
		l.absent[len(l.absent)-1] > l.present[len(l.present)-1].key
}

// discovery is a late row: its number in the partition of late rows, and its key.
type discovery struct {
	num int64
	key string
}
