//penstock:pure

package lines

import (
	"bytes"

	"github.com/penstock-io/penstock/stream"
)

// nextMultiple is the first multiple of step behind off.
func nextMultiple(off, step int64) int64 { return (off/step + 1) * step }

// target is where a batch ends that is not full of records before: at the first record end at or
// after at.
type target struct {
	at, begun int64 // begun is where the batch began
	multiple  bool  // at is a multiple of its bytes from the file's start
}

// targetOf is the target of a batch that began at begun and goes on at next: the next multiple, or,
// if it went on over that, where it has all its bytes.
func targetOf(begun, next int64, l stream.BatchLimits) target {
	t := target{at: nextMultiple(begun, int64(l.Bytes)), begun: begun, multiple: true}
	if next >= t.at {
		t.at, t.multiple = max(begun+int64(l.Bytes), next+1), false
	}
	return t
}

// passing is the target of a batch that has come to the record end next with so many records:
// another one, if next is at the multiple and the batch has used up more of its records than of its
// bytes.
func (t target) passing(next int64, records int, l stream.BatchLimits) target {
	if t.multiple && next >= t.at && float64(records)*float64(l.Bytes) > float64(next-t.begun)*float64(l.Records) {
		t.at, t.multiple = t.begun+int64(l.Bytes), false
	}
	return t
}

// firstLong returns where the first record of more than most bytes begins in data, which starts at
// a record's start, or -1. Line ends do not count. It looks at windows of most+1 bytes from behind,
// so that its cost does not grow with the number of records.
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

// endOf returns how many bytes of data the first n records take, line ends included, and false when
// data has fewer line ends. It halves what is left by counting, so that its cost does not grow with
// the number of records either.
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

// decide takes whole records from data, which starts at a record's start, at offset off of the
// file: up to the first record end at or after target, or room records, whichever comes first;
// without a limit reached, all whole records.
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
