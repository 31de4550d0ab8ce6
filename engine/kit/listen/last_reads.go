//penstock:pure

package listen

import "time"

// lastReads bounds the reads from a connection during a drain. A connection is not read while the
// memory of the source (package intake) is full. Meanwhile the operating system may have received
// data for it. The sender believes that this data has arrived, and does not send it again, so the
// source must read it. But the source must not read forever if the sender keeps sending. A
// connection gets no more reads once its reads have returned lastBytes or have taken lastTime in
// total. The reads also end when two of them in a row have got no data within lastWait. A single
// one proves nothing: the process may have been suspended until the deadline had passed.
type lastReads struct {
	bytes int
	spent time.Duration
	empty int // reads without data since the last one with data
}

const (
	lastBytes = 64 << 20 // more than the default buffers of a connection
	lastTime  = time.Second
	// lastWait is the time in which a read must get data. It can be short: a read returns at once
	// if the system has already received data.
	lastWait = 10 * time.Millisecond
)

// deadline returns the deadline of a read that begins at now.
func (l *lastReads) deadline(now time.Time) time.Time {
	if l.ended() {
		return past
	}
	return now.Add(lastWait)
}

// ended reports whether no more reads are allowed.
func (l *lastReads) ended() bool { return l.isExhausted() || l.empty >= 2 }

// isExhausted reports whether more data may have arrived than the reads may return.
func (l *lastReads) isExhausted() bool { return l.bytes >= lastBytes || l.spent >= lastTime }

// add counts a read of n bytes that took the given time.
func (l *lastReads) add(n int, took time.Duration) {
	l.bytes += n
	l.spent += took
	l.empty++
	if n > 0 {
		l.empty = 0
	}
}
