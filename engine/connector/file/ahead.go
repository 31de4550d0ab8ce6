//penstock:pure

package file

import "time"

const (
	// aheadMax is how much room the file is given in advance at most: what a crash may leave allotted
	// behind its end.
	aheadMax = 64 << 20
	// aheadMin is how much has to be written within aheadEvery before any room is reserved: a slow
	// file is left as it is.
	aheadMin   = 8 << 20
	aheadEvery = time.Second
)

// ahead decides how much room the file is given before it is written: as much as it took within the
// last second, so that a quick file seldom asks for room while it is written, and a slow one never
// holds any. The zero value begins.
type ahead struct {
	upTo  int64     // of the file: room is reserved as far as here
	since time.Time // when count began
	count int64     // bytes written since
	pace  int64     // bytes written in the period before that
	never bool      // the file system reserves nothing
}

// want is told that bytes from to end are written now, and returns the room to reserve; length 0:
// none.
func (a *ahead) want(now time.Time, from, end int64) (at, length int64) {
	if past := now.Sub(a.since); past >= aheadEvery {
		a.pace = a.count
		if past >= 2*aheadEvery {
			a.pace = 0
		}
		a.since, a.count = now, 0
	}
	a.count += end - from
	room := min(max(a.pace, a.count), aheadMax)
	if a.never || room < aheadMin || a.upTo >= end+room/4 {
		return 0, 0
	}
	at = max(a.upTo, from)
	return at, end + room - at
}

// got says what became of a wish.
func (a *ahead) got(at, length int64, ok bool) {
	if !ok {
		a.never = true
		return
	}
	a.upTo = at + length
}

// moved says that another file is written from now on, or the same one cut to an earlier length.
func (a *ahead) moved() { a.upTo = 0 }
