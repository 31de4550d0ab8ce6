//penstock:pure

package postgres

import (
	"encoding/binary"

	"github.com/penstock-io/penstock/engine/kit/sqltable"
	"github.com/penstock-io/penstock/stream"
)

const (
	null      = 0xFFFFFFFF // the length of NULL, -1
	cellMost  = 4 + 8      // size of a non-text cell
	blindCopy = 16         // bytes that copying a short text writes, regardless of its length
)

// roomFor returns the space that a row needs in addition to its texts.
func roomFor(places []sqltable.Place) int { return blindCopy + cellMost*(len(places)+2) }

// putPlaced encodes a record as a row at the start of dst, which has enough space. For each column,
// places has the index in fields of the column's value. data is the memory of the batch, to which
// the fields refer. In mode upsert, the row begins with number, the number of the record in the
// batch. In mode append, number is negative. putPlaced returns the size of the row, or 0 if only
// sqltable.Rows can encode or refuse the record.
func putPlaced(dst []byte, places []sqltable.Place, fields []stream.Field, data []byte,
	number int) int {
	binary.BigEndian.PutUint16(dst, uint16(len(places)))
	at := 2
	if number >= 0 {
		binary.BigEndian.PutUint16(dst, uint16(len(places)+1))
		at = putWord(dst, at, uint64(number))
	}
	for _, p := range places {
		if p.Field < 0 {
			if p.Need {
				return 0
			}
			binary.BigEndian.PutUint32(dst[at:], null)
			at += 4
			continue
		}
		f := &fields[p.Field]
		off, n := int(f.Off), int(f.Len)
		switch {
		case f.Kind == stream.Text && p.Text:
			cell := dst[at : at+4+blindCopy]
			binary.BigEndian.PutUint32(cell, f.Len)
			if n <= blindCopy && off+blindCopy <= len(data) {
				text := data[off : off+blindCopy]
				binary.LittleEndian.PutUint64(cell[4:], binary.LittleEndian.Uint64(text))
				binary.LittleEndian.PutUint64(cell[12:], binary.LittleEndian.Uint64(text[8:]))
			} else {
				copy(dst[at+4:], data[off:off+n])
			}
			at += 4 + n
		case f.Kind == stream.Number && p.Type == sqltable.Integer:
			value, ok := shortInteger(data, off, n)
			if !ok {
				return 0
			}
			at = putWord(dst, at, value)
		case f.Kind == stream.Null && !p.Need:
			binary.BigEndian.PutUint32(dst[at:], null)
			at += 4
		default:
			return 0
		}
	}
	return at
}

// putWord encodes an eight-byte cell at dst[at:] and returns the offset of its end in dst.
func putWord(dst []byte, at int, value uint64) int {
	cell := dst[at : at+cellMost]
	binary.BigEndian.PutUint32(cell, 8)
	binary.BigEndian.PutUint64(cell[4:], value)
	return at + cellMost
}

const eight = 8

// shortInteger parses data[off:off+n] with three multiplications
// (https://kholdstare.github.io/technical/2020/05/26/faster-integer-parsing.html). ok is false
// unless the text is 1 to 8 digits, and data continues for at least 8 bytes from off.
func shortInteger(data []byte, off, n int) (value uint64, ok bool) {
	if n == 0 || n > eight || off+eight > len(data) {
		return 0, false
	}
	const zeros, tops = 0x3030303030303030, 0x8080808080808080
	// fill up with zeros in front of the digits
	w := (binary.LittleEndian.Uint64(data[off:]) ^ zeros) << (64 - eight*uint(n))
	if (w|(w+0x7676767676767676))&tops != 0 {
		return 0, false
	}
	w = (w * 10) + (w >> 8)
	const mask, mul1, mul2 = 0x000000FF000000FF, 100 + 1000000<<32, 1 + 10000<<32
	return ((w&mask)*mul1 + ((w>>16)&mask)*mul2) >> 32 & 0xFFFFFFFF, true
}
