//penstock:pure

package parse

import (
	"bytes"
	"encoding/binary"
	"math/bits"

	"github.com/penstock-io/penstock/stream"
)

// word is the number of bytes that quick reads at a time.
const word = 8

const (
	ones = 0x0101010101010101
	tops = 0x8080808080808080

	fiveBytes = 1<<40 - 1
	sixBytes  = 1<<48 - 1
)

// quick parses typical lines faster than the rest of split. It processes eight bytes at a time. A
// typical line has a time of the usual length, a request `METHOD TARGET HTTP/x.y` with a method of
// at most seven capital letters, a status of three digits, and a size of at most seven digits. If
// quick returns false, the caller must parse the line itself. d is the line and eight more bytes.
// The line must not contain a backslash.
func (c *clf) quick(d []byte, off uint32, f *clfRow) bool {
	n := len(d) - word
	at := c.quickHead(d, off, f)
	end := at + clfStampLen
	if at < 0 || end >= n || load(d, end)&0xFFFFFF != ']'|' '<<8|'"'<<16 {
		return false
	}
	f[clfTimestamp] = stream.Field{Name: c.names[clfTimestamp], Off: off + uint32(at),
		Len: uint32(clfStampLen)}
	from := min(end+3, n)
	to := bytes.IndexByte(d[from:n], '"') + from
	if to < from || !c.quickRequest(d, off, from, to, f) {
		return false
	}
	const spaces = ' ' | ' '<<32
	status := load(d, to+1)
	if status&0xFF_0000_00FF != spaces || notDigits(status>>8)&0xFFFFFF != 0 || d[to+2] == '0' {
		return false
	}
	f[clfStatus] = stream.Field{Name: c.names[clfStatus], Kind: stream.Number,
		Off: off + uint32(to+2), Len: 3}
	at = to + 6
	if at > n {
		return false
	}
	size := bits.TrailingZeros64(notDigits(load(d, at))) / 8
	if size == word || size > 1 && d[at] == '0' {
		return false
	}
	f[clfSize] = stream.Field{Name: c.names[clfSize], Kind: stream.Number, Off: off + uint32(at),
		Len: uint32(size)}
	if size == 0 {
		if d[at] != '-' {
			return false
		}
		c.null(f, clfSize, off, at)
		size = 1
	}
	at += size
	if c.count <= clfReferrer {
		return at == n
	}
	return at < n && c.quickTail(d, off, at, f)
}

// quickHead parses host, identity and user. It returns the position after the opening bracket of
// the time, or -1 if the line is not typical.
func (c *clf) quickHead(d []byte, off uint32, f *clfRow) int {
	n := len(d) - word
	i := bytes.IndexByte(d[:n], ' ')
	if i <= 0 {
		return -1
	}
	c.put(f, clfHost, d, off, 0, i)
	const nobody = ' ' | '-'<<8 | ' '<<16 | '-'<<24 | ' '<<32 | '['<<40
	if load(d, i)&sixBytes == nobody {
		c.null(f, clfIdentity, off, i+1)
		c.null(f, clfUser, off, i+3)
		return i + 6
	}
	for _, field := range []int{clfIdentity, clfUser} {
		from := i + 1
		size := bytes.IndexByte(d[from:n], ' ')
		if size <= 0 {
			return -1
		}
		i = from + size
		c.put(f, field, d, off, from, i)
	}
	if d[i+1] != '[' {
		return -1
	}
	return i + 2
}

// quickRequest parses `METHOD TARGET HTTP/x.y`, which is d[from:to].
func (c *clf) quickRequest(d []byte, off uint32, from, to int, f *clfRow) bool {
	const protocol = 'H' | 'T'<<8 | 'T'<<16 | 'P'<<24 | '/'<<32 | '.'<<48
	last := to - word - 1
	if last <= from || d[last] != ' ' {
		return false
	}
	p := load(d, last+1)
	if p&(fiveBytes|0xFF<<48) != protocol || d[to-3] == ' ' || d[to-1] == ' ' {
		return false
	}
	w := load(d, from)
	method := bits.TrailingZeros64(equals(w, ' ')) / 8
	if method == 0 || method == word || from+method >= last || !letters(w, method) {
		return false
	}
	f[clfMethod] = stream.Field{Name: c.names[clfMethod], Bare: true, Off: off + uint32(from),
		Len: uint32(method)}
	c.bare(f, clfPath, d, off, from+method+1, last)
	f[clfProtocol] = stream.Field{Name: c.names[clfProtocol], Bare: true, Off: off + uint32(last+1),
		Len: word}
	return true
}

// quickTail parses referrer and agent, which end the line.
func (c *clf) quickTail(d []byte, off uint32, at int, f *clfRow) bool {
	n := len(d) - word
	if load(d, at)&0xFFFF != ' '|'"'<<8 || at+2 > n {
		return false
	}
	from := at + 2
	to := bytes.IndexByte(d[from:n], '"') + from
	if to < from || load(d, to)&0xFFFFFF != '"'|' '<<8|'"'<<16 || to+3 >= n {
		return false
	}
	c.bare(f, clfReferrer, d, off, from, to)
	from = to + 3
	if bytes.IndexByte(d[from:n], '"') != n-1-from {
		return false
	}
	c.bare(f, clfAgent, d, off, from, n-1)
	return true
}

// bare sets field k to the text s[from:to], and marks the text as free of quotes and backslashes.
func (c *clf) bare(f *clfRow, k int, s []byte, off uint32, from, to int) {
	c.put(f, k, s, off, from, to)
	f[k].Bare = true
}

func load(d []byte, at int) uint64 { return binary.LittleEndian.Uint64(d[at:]) }

// equals looks for bytes in w that are equal to c. The lowest byte with its top bit set in the
// result is the first such byte; higher bits are meaningless. The result is 0 if there is none.
func equals(w uint64, c byte) uint64 {
	w ^= ones * uint64(c)
	return (w - ones) &^ w & tops
}

// notDigits returns a word in which the top bit of a byte is set if this byte of w is not a digit.
// All other bits are 0.
func notDigits(w uint64) uint64 {
	w ^= ones * '0'
	return (w | (w&^tops + ones*(0x80-10))) & tops
}

// letters reports whether the first n of the eight bytes of w are capital letters.
func letters(w uint64, n int) bool {
	below, above := w&^tops+ones*(0x80-'A'), w&^tops+ones*(0x80-'Z'-1)
	return (^below|above|w)&tops<<(8*(word-n)) == 0
}
