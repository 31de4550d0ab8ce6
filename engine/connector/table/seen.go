//penstock:pure

package table

import (
	"slices"
	"sort"
)

// maxRescan bounds the option rescan, and so the keys that a partition remembers.
const maxRescan = 1_000_000

// seen are the keys near the end of what was handed out of a partition: what is in the table between floor and there, and not
// among them, came late. It holds at most max keys, the highest.
type seen struct {
	max   int
	floor string   // of what lies at or below, nothing is remembered
	keys  []string // ascending, all above floor
}

// add notes keys, ascending, that were handed out.
func (s *seen) add(keys []string) {
	from := sort.Search(len(keys), func(i int) bool { return keys[i] > s.floor })
	keys = keys[from:]
	if len(keys) == 0 {
		return
	}
	if n := len(s.keys); n == 0 || keys[0] > s.keys[n-1] {
		s.keys = append(s.keys, keys...)
	} else {
		s.keys = append(s.keys, keys...)
		slices.Sort(s.keys)
		s.keys = slices.Compact(s.keys)
	}
	s.shrink()
}

func (s *seen) shrink() {
	if over := len(s.keys) - s.max; over > 0 {
		s.floor = s.keys[over-1]
		s.keys = s.keys[over:]
	}
	if cap(s.keys) > 4*s.max+64 {
		s.keys = slices.Clone(s.keys)
	}
}

// keep forgets the keys that f does not want to keep.
func (s *seen) keep(f func(key string) bool) {
	s.keys = slices.DeleteFunc(s.keys, func(k string) bool { return !f(k) })
}

// search begins to look through keys for ones that came late.
func (s *seen) search() lateSearch { return lateSearch{keys: s.keys} }

// lateSearch is one pass along ascending keys.
type lateSearch struct{ keys []string }

// late says whether the next key was not seen.
func (l *lateSearch) late(key []byte) bool {
	for len(l.keys) > 0 && l.keys[0] < string(key) {
		l.keys = l.keys[1:]
	}
	return len(l.keys) == 0 || l.keys[0] != string(key)
}

// discovery is a row that was found late: its number in the partition of such rows, and its key.
type discovery struct {
	num int64
	key string
}
