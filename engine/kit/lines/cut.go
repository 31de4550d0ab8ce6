//penstock:pure

package lines

import (
	"bytes"

	"github.com/penstock-io/penstock/stream"
)

// target determines where a batch ends if it does not reach its record limit first. The batch ends
// at the first record end whose offset in the file is at least the field at.
type target struct {
	at, begun int64 // begun is the offset at which the batch began
	multiple  bool  // at is a multiple of the byte limit from the file's start
}

// targetOf returns the target of a batch that began at begun and has records up to next. Both are
// offsets in the file. The target is the first multiple of the byte limit greater than begun.
// Example: with a limit of 1000 and begun at 1200, it is 2000. If next has already reached this
// multiple, the target is begun plus the byte limit, or next+1 if that is greater.
func targetOf(begun, next int64, l stream.BatchLimits) target {
	t := target{at: (begun/int64(l.Bytes) + 1) * int64(l.Bytes), begun: begun, multiple: true}
	if next >= t.at {
		t.at, t.multiple = max(begun+int64(l.Bytes), next+1), false
	}
	return t
}

// passing returns the target of a batch with the given number of records, the last of which ends at
// next. This is t, except for a batch of short records that has reached a multiple of the byte
// limit. Its target is its start plus the byte limit.
//
// Example: the limits are 1000 bytes and 20 records, and a batch with records of 30 bytes begins at
// 600. At 1020 it has 14 of 20 records, but only 420 of 1000 bytes. So its target is 1600.
func (t target) passing(next int64, records int, l stream.BatchLimits) target {
	if t.multiple && next >= t.at &&
		float64(records)*float64(l.Bytes) > float64(next-t.begun)*float64(l.Records) {
		t.at, t.multiple = t.begun+int64(l.Bytes), false
	}
	return t
}

// firstLong returns the offset of the first record in data that is too long, or -1 if there is
// none. most is the maximum length of a record without its line end. data must begin at a record's
// start. firstLong only looks for the last line end in each window of most+1 bytes. So its cost
// does not grow with the number of records.
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

// endOf returns the length of the first n records of data with their line ends. ok is false if data
// has fewer than n line ends. endOf uses a binary search: it repeatedly counts the line ends in
// half of the remaining data. So its cost does not grow with the number of records.
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

// cut describes the end of a batch as far as it follows from the bytes that were read so far.
type cut struct {
	n       int  // number of bytes in whole records
	records int  // number of records in them
	full    bool // the batch ends at n, because it has reached a limit
}

// decide finds the end of the batch in data, which begins at a record's start. off is the offset of
// data in the file, and target is the offset that the batch must reach. room is the number of
// records that the batch may still get. The batch ends with the first record that ends at the
// target or after it, or after room records. If data contains neither end, the batch takes all
// whole records in data, and is not full.
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
