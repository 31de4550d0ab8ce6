package intake

import (
	"bytes"
	"slices"
)

// Cutter cuts a stream of bytes into records at a delimiter. It cuts a record that is longer than
// the maximum into several records. Only one goroutine may use a Cutter.
type Cutter struct {
	max   int
	delim byte
	size  int
	buf   []byte // bytes after the last delimiter
	long  int64
}

// The size of the buffer that Space returns: its minimum, and the maximum to which it grows while
// reads fill the buffer.
const (
	minSpace  = 4 << 10
	mostSpace = 64 << 10
)

// NewCutter returns a Cutter for records that end with delim. A record has at most max bytes. size
// is the expected number of bytes of a read. Zero means that it is unknown. If size is below 64
// KiB, the buffer for reads grows while reads fill it.
func NewCutter(max int, delim byte, size int) *Cutter {
	if size <= 0 {
		size = minSpace
	}
	return &Cutter{max: max, delim: delim, size: size}
}

// Space returns the buffer for the next read.
func (c *Cutter) Space() []byte {
	if free := cap(c.buf) - len(c.buf); free < minSpace {
		c.buf = slices.Grow(c.buf, max(c.size-len(c.buf), minSpace))
	}
	return c.buf[len(c.buf):min(cap(c.buf), len(c.buf)+max(c.size, minSpace))]
}

// Cut returns the records that are complete after a read of n bytes into Space.
func (c *Cutter) Cut(n int) Records {
	if n >= c.size && c.size < mostSpace {
		c.size *= 2 // the sender fills the buffer
	}
	c.buf = c.buf[:len(c.buf)+n]
	end := bytes.LastIndexByte(c.buf, c.delim) + 1
	var out Records
	if c.delim == '\n' && !hasLong(c.buf[:end], c.max) {
		out = Lines(c.take(end))
		out.verbatim = true
	} else {
		c.each(c.buf[:end], &out)
		c.drop(end)
	}
	for len(c.buf) > c.max {
		out.Add(c.buf[:c.max])
		c.long++
		c.drop(c.max)
	}
	return out
}

// Write adds data and returns the records that are complete now. It is for data that the caller has
// in a slice of its own. For data that was read into the buffer from Space, call Cut instead.
func (c *Cutter) Write(data []byte) Records {
	c.buf = append(c.buf, data...)
	return c.Cut(0)
}

// Keep moves the incomplete record of before, an earlier Cutter of the same stream, to c.
func (c *Cutter) Keep(before *Cutter) { c.buf, before.buf = before.buf, nil }

// End returns the bytes after the last delimiter as a record, or no record if there are none.
func (c *Cutter) End() Records {
	var out Records
	if len(c.buf) > 0 {
		out.Add(c.buf)
		c.buf = nil
	}
	return out
}

// Pending returns the number of bytes after the last delimiter.
func (c *Cutter) Pending() int { return len(c.buf) }

// Long returns the number of pieces that Cut and Write have cut off from records longer than the
// maximum, since the last call of Long.
func (c *Cutter) Long() int64 {
	n := c.long
	c.long = 0
	return n
}

// take removes the first n bytes from c.buf and returns them. If n is at least half of the buffer's
// capacity, take returns the memory of c.buf itself and copies the remaining bytes to a new buffer.
// Otherwise it returns a copy.
func (c *Cutter) take(n int) []byte {
	if n < cap(c.buf)/2 {
		data := bytes.Clone(c.buf[:n])
		c.drop(n)
		return data
	}
	data, rest := c.buf[:n:n], c.buf[n:]
	c.buf = append(make([]byte, 0, max(c.size, len(rest)+minSpace)), rest...)
	return data
}

func (c *Cutter) drop(n int) {
	c.buf = c.buf[:copy(c.buf, c.buf[n:])]
}

// each cuts data into records and adds them to out. data must end with a delimiter.
func (c *Cutter) each(data []byte, out *Records) {
	for len(data) > 0 {
		end := bytes.IndexByte(data, c.delim)
		record := data[:end]
		if c.delim == '\n' {
			record = bytes.TrimSuffix(record, []byte{'\r'})
		}
		for ; len(record) > c.max; record = record[c.max:] {
			out.Add(record[:c.max])
			c.long++
		}
		out.Add(record)
		data = data[end+1:]
	}
}

// hasLong reports whether a line of data has more than most bytes before its line end.
func hasLong(data []byte, most int) bool {
	for len(data) > most {
		i := bytes.LastIndexByte(data[:most+1], '\n')
		if i < 0 {
			return true
		}
		data = data[i+1:]
	}
	return false
}
