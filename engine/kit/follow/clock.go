//penstock:pure

package follow

import "time"

const (
	// stepMin is the minimum step of the wall clock that is detected. The wall clock has made a
	// step if its difference to the monotonic clock has changed since the last comparison.
	stepMin = 50 * time.Millisecond
	// skewMin is the minimum difference between the file system's clock and the local clock that is
	// taken into account. A smaller difference may come from the granularity of file times.
	skewMin = 100 * time.Millisecond
	skewMax = 24 * time.Hour // with a larger difference, the two clocks are unrelated
)

// clock decides whether a file is quiet, that is, unchanged for the time settle. It uses two times.
// One is the monotonic time at which this process last saw a change. The other is the modification
// time, a wall time of the file system's clock. The modification time is ignored if the two clocks
// are unrelated (see skewMax). After a step of the local clock (a change to another time), it is
// ignored until settle has passed.
//
// A clock step cannot be detected if it happens before startup, between the last write to a file
// and this process's first look at the file. The file may then seem quiet too early. Lines that the
// writer adds later are found when the file is finished.
type clock struct {
	settle  time.Duration
	skew    time.Duration // of the file system's clock against ours
	foreign bool          // the file system's times are unusable

	looked  bool
	offset  int64         // wall minus monotonic time at the last look
	stepped time.Duration // monotonic time of the last step seen
	steps   int
}

// calibrate learns the file system's clock from a file that was written just now.
func (c *clock) calibrate(wall, mtime int64) {
	switch d := time.Duration(mtime - wall); {
	case d.Abs() > skewMax:
		c.foreign = true
	case d.Abs() > skewMin:
		c.skew = d
	}
}

// observe compares the clocks. Call it before quietAt.
func (c *clock) observe(mono time.Duration, wall int64) {
	offset := wall - int64(mono)
	if c.looked && time.Duration(offset-c.offset).Abs() > stepMin {
		c.stepped = mono
		c.steps++
	}
	c.looked, c.offset = true, offset
}

// quietAt returns the monotonic time at which a file will have been unchanged for the time settle,
// if it does not change before. mono and wall are the current time of the two clocks. The file is
// quiet now if the result is not after mono. mtime is the last modification time of the file. since
// is the monotonic time at which this process last saw a change. Example: with a settle of 5s, a
// file that last changed at 10s becomes quiet at 15s.
func (c *clock) quietAt(mono time.Duration, wall, mtime int64, since time.Duration) time.Duration {
	seen := since + c.settle
	if c.foreign || c.steps > 0 && mono-c.stepped < c.settle {
		return seen
	}
	age := time.Duration(wall + int64(c.skew) - mtime)
	return min(seen, mono+c.settle-age)
}
