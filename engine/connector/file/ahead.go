//penstock:pure

package file

import "time"

const (
	// aheadMax bounds the disk space that is reserved after the end of the file. After a crash,
	// this space may stay allocated there.
	aheadMax = 64 << 20
	// aheadMin is the number of bytes that must be written within aheadEvery before space is
	// reserved. So no space is reserved for a file that grows slowly.
	aheadMin   = 8 << 20
	aheadEvery = time.Second
)

// ahead decides how much space to reserve after the end of the file: as much as was written in the
// previous or in the current second, whichever is more, but at most aheadMax. So most writes to a
// fast-growing file need not allocate space. The zero value is ready to use.
type ahead struct {
	upTo  int64     // offset up to which space is reserved
	since time.Time // start of count
	count int64     // bytes written since that time
	pace  int64     // bytes written in the previous period
	never bool      // a reservation has failed, so no more are tried
}

// want is called before a write to the range [from, end) of the file. It returns the offset and the
// length of the space to reserve. A length of 0 means that nothing is to be reserved: the file
// grows slowly, enough space is reserved already, or an earlier reservation has failed. want also
// counts the bytes of this write as written.
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

// got notes the result of a reservation.
func (a *ahead) got(at, length int64, ok bool) {
	if !ok {
		a.never = true
		return
	}
	a.upTo = at + length
}

// moved notes that the lane now writes to another file, or that the file was truncated.
func (a *ahead) moved() { a.upTo = 0 }
