//penstock:pure

package table

import (
	"slices"
	"sort"
	"strings"
)

// maxRescan bounds the option rescan: the number of rows that are remembered for each partition.
const maxRescan = 1_000_000

// seenRow is a row that was handed out.
type seenRow struct {
	key    string
	digest rowDigest
}

// seenRows remembers the last rows of a partition that were handed out, at most max: those with the
// highest keys. All of them have keys above floor. A row of the table with a key above floor, and
// up to the position of the partition, is late if it is not remembered.
type seenRows struct {
	max   int
	floor string    // rows with this key or a lower one are not remembered
	rows  []seenRow // ascending by key, all above floor
}

// add remembers rows that were handed out. They must be ascending by key. If a key is remembered
// already, it gets the new digest, unless the new digest is unknown.
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

// merge sorts the rows after others were appended, and removes duplicates.
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

// filter removes the rows for which f, called with the key of a row, returns false.
func (s *seenRows) filter(f func(key string) bool) {
	s.rows = slices.DeleteFunc(s.rows, func(r seenRow) bool { return !f(r.key) })
}

// remove removes the rows with the keys of rows, which must be ascending by key.
func (s *seenRows) remove(rows []seenRow) {
	s.filter(func(key string) bool {
		for len(rows) > 0 && rows[0].key < key {
			rows = rows[1:]
		}
		return len(rows) == 0 || rows[0].key != key
	})
}

// search begins a search for late rows.
func (s *seenRows) search() lateSearch { return lateSearch{rows: s.rows} }

// lateSearch compares the keys in the table, in ascending order, with the remembered rows.
type lateSearch struct {
	rows    []seenRow // remembered rows that the search has not reached yet
	absent  []seenRow // remembered rows that are no longer in the table
	present []seenRow // the last remembered rows that are in the table, at most maxPairs
}

// late reports whether the row with this key is late: it is late if it is not remembered. Call late
// for the rows of the table in the order of their keys.
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

// end ends the search at pos. The remembered rows up to pos that the search has not found are
// absent: they were deleted from the table.
func (l *lateSearch) end(pos string) { l.pass(func(seen string) bool { return seen <= pos }) }

func (l *lateSearch) pass(behind func(seen string) bool) {
	for len(l.rows) > 0 && behind(l.rows[0].key) {
		l.absent = append(l.absent, l.rows[0])
		l.rows = l.rows[1:]
	}
}

// tailDeleted reports whether remembered rows after the last existing one were deleted.
func (l *lateSearch) tailDeleted() bool {
	return len(l.absent) > 0 && len(l.present) > 0 &&
		l.absent[len(l.absent)-1].key > l.present[len(l.present)-1].key
}

// discovery is a late row that was found. num is its number in the partition of late rows.
type discovery struct {
	num int64
	key string
}
