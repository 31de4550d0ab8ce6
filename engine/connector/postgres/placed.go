//penstock:pure

package postgres

import (
	"encoding/binary"
	"slices"

	"github.com/penstock-io/penstock"
	"github.com/penstock-io/penstock/engine/kit/sqltable"
)

const (
	null      = 0xFFFFFFFF // the length of NULL: -1
	cellMost  = 4 + 8      // bytes of a cell that is no text
	blindCopy = 16         // bytes that copying a short text writes, whatever its length
)

// appendPlaced appends the row of a record whose values stand in places, straight from the arena; false: only sqltable.Rows can lay
// it out, or refuse it, and dst is as it was. A row begins with number where that is not negative.
func appendPlaced(dst []byte, places []sqltable.Place, fields []penstock.Field, data []byte, number int) ([]byte, bool) {
	room := blindCopy + cellMost*(len(places)+2) // what a row needs beside its texts
	at, buf := len(dst), dst[:cap(dst)]
	if len(buf)-at < room {
		buf = grown(buf, at, room)
	}
	count := len(places)
	if number >= 0 {
		count++
	}
	binary.BigEndian.PutUint16(buf[at:], uint16(count))
	at += 2
	if number >= 0 {
		at = putWord(buf, at, uint64(number))
	}
	for c := range places {
		p := &places[c]
		if p.Field < 0 || fields[p.Field].Kind == penstock.Null {
			if p.Need {
				return dst, false
			}
			binary.BigEndian.PutUint32(buf[at:], null)
			at += 4
			continue
		}
		f := &fields[p.Field]
		off, n := int(f.Off), int(f.Len)
		switch {
		case f.Kind == penstock.Text && p.Text:
			if len(buf)-at < n+room {
				buf = grown(buf, at, n+room)
			}
			binary.BigEndian.PutUint32(buf[at:], f.Len)
			at += 4
			if n <= blindCopy && off+blindCopy <= len(data) {
				from, to := data[off:off+blindCopy], buf[at:at+blindCopy]
				binary.LittleEndian.PutUint64(to, binary.LittleEndian.Uint64(from))
				binary.LittleEndian.PutUint64(to[8:], binary.LittleEndian.Uint64(from[8:]))
			} else {
				copy(buf[at:], data[off:off+n])
			}
			at += n
		case p.Type == sqltable.Integer && f.Kind == penstock.Number:
			value, ok := shortInteger(data, off, n)
			if !ok {
				return dst, false
			}
			at = putWord(buf, at, value)
		default:
			return dst, false
		}
	}
	return buf[:at], true
}

// putWord puts a cell of eight bytes at buf[at:] and returns where it ends.
func putWord(buf []byte, at int, value uint64) int {
	binary.BigEndian.PutUint32(buf[at:], 8)
	binary.BigEndian.PutUint64(buf[at+4:], value)
	return at + cellMost
}

// grown returns all of the memory of buf, of which at bytes are taken, with room for n more at least.
func grown(buf []byte, at, n int) []byte {
	buf = slices.Grow(buf[:at], n)
	return buf[:cap(buf)]
}

const eight = 8

// shortInteger reads data[off:off+n], where that is 1 to 8 digits and not the end of the arena, by three multiplications
// (https://kholdstare.github.io/technical/2020/05/26/faster-integer-parsing.html).
func shortInteger(data []byte, off, n int) (value uint64, ok bool) {
	if n == 0 || n > eight || off+eight > len(data) {
		return 0, false
	}
	const zeros, tops = 0x3030303030303030, 0x8080808080808080
	w := (binary.LittleEndian.Uint64(data[off:]) ^ zeros) << (64 - eight*uint(n)) // leading zeros in front of the digits
	if (w|(w+0x7676767676767676))&tops != 0 {
		return 0, false
	}
	w = (w * 10) + (w >> 8)
	const mask, mul1, mul2 = 0x000000FF000000FF, 100 + 1000000<<32, 1 + 10000<<32
	return ((w&mask)*mul1 + ((w>>16)&mask)*mul2) >> 32 & 0xFFFFFFFF, true
}
