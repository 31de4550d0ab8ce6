//penstock:pure

package lines

import "bytes"

// nextMultiple is the first multiple of step behind off.
func nextMultiple(off, step int64) int64 { return (off/step + 1) * step }

// firstLong returns where the first record of more than most bytes begins in data, which starts at a record's
// start, or -1. Line ends do not count. It looks at windows of most+1 bytes from behind, so that its cost does not grow with
// the number of records.
func firstLong(data []byte, most int) int {
	for pos := 0; len(data)-pos > most; {
		i := bytes.LastIndexByte(data[pos:pos+most+1], '\n')
		if i < 0 {
			return pos
		}
		pos += i + 1
	}
	return -1
}

// endOf returns how many bytes of data the first n records take, line ends included, and false when data has fewer
// line ends. It halves what is left by counting, so that its cost does not grow with the number of records either.
func endOf(data []byte, n int) (int, bool) {
	if n <= 0 {
		return 0, true
	}
	base := 0
	for len(data) > 64 {
		half := len(data) / 2
		if c := bytes.Count(data[:half], newline); c >= n {
			data = data[:half]
		} else {
			n -= c
			base += half
			data = data[half:]
		}
	}
	for i, c := range data {
		if c == '\n' {
			if n--; n == 0 {
				return base + i + 1, true
			}
		}
	}
	return 0, false
}

var newline = []byte{'\n'}

// cut is where a batch ends in the bytes at hand.
type cut struct {
	n       int  // how many bytes it takes: whole records
	records int  // how many records those are
	full    bool // a limit was reached at n: the batch ends there
}

// decide takes whole records from data, which starts at a record's start, at offset off of the file: up to the first
// record end at or after target, or room records, whichever comes first; without a limit reached, all
// whole records.
func decide(data []byte, off, target int64, room int) cut {
	var c cut
	if before := target - 1 - off; before < int64(len(data)) {
		if i := bytes.IndexByte(data[before:], '\n'); i >= 0 {
			c.n, c.full = int(before)+i+1, true
		}
	}
	if !c.full {
		c.n = bytes.LastIndexByte(data, '\n') + 1
	}
	c.records = bytes.Count(data[:c.n], newline)
	if c.records < room {
		return c
	}
	if c.records > room {
		c.n, _ = endOf(data[:c.n], room)
		c.records = room
	}
	c.full = true
	return c
}
