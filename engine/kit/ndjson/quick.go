//penstock:pure

package ndjson

import (
	"encoding/binary"
	"slices"

	"github.com/penstock-io/penstock/stream"
)

// chunk is the number of bytes that quick copies at once.
const chunk = 4 * word

// quick appends the fields of record r in order, and returns the remaining fields. It stops at the
// first field that needs an escape, has a name that is not in the cache, or has a value outside the
// record's data.
//
// Most log records need no escapes. quick therefore first checks all data of the record at once. If
// the data has control or non-ASCII characters, quick appends nothing. It copies values in whole
// chunks of 32 bytes, so it also appends nothing if fewer bytes follow the record in the batch. The
// text that follows overwrites the bytes that were copied beyond a value's end.
func (k *keys) quick(dst []byte, b *stream.Batch, r *stream.Record,
	fields []stream.Field) ([]byte, []stream.Field) {
	data := b.Data
	first, end := r.Off, r.Off+r.Len
	if len(data)-int(end) < chunk || !uncontrolled(data[first:end]) {
		return dst, fields
	}
	for i := range fields {
		f := &fields[i]
		n := int(f.Len)
		if cap(dst)-len(dst) < keyBytes+n+2*chunk {
			dst = slices.Grow(dst, keyBytes+n+2*chunk)
		}
		if int(f.Name) >= len(k) || uint(k[f.Name].n-1) >= keyBytes || f.Off < first ||
			f.Off+f.Len > end {
			return dst, fields[i:] // appendKey adds the name to the cache
		}
		key := &k[f.Name]
		at := len(dst)
		to := dst[at:cap(dst)]
		*(*[keyBytes]byte)(to) = key.text
		m := key.n
		if f.Kind == stream.Text {
			if !f.Bare && !unquoted(data[f.Off:f.Off+f.Len+word], n) {
				return dst, fields[i:]
			}
			to[m] = '"'
			m++
		} else if n == 0 || f.Kind == stream.Null {
			binary.LittleEndian.PutUint32(to[m:], 'n'|'u'<<8|'l'<<16|'l'<<24)
			dst = dst[:at+m+len("null")]
			continue
		}
		for j := 0; j < n; j += chunk {
			from, to := (*[chunk]byte)(data[int(f.Off)+j:]), (*[chunk]byte)(to[m+j:])
			v, w := binary.LittleEndian.Uint64(from[:]), binary.LittleEndian.Uint64(from[word:])
			x, y := binary.LittleEndian.Uint64(from[2*word:]),
				binary.LittleEndian.Uint64(from[3*word:])
			binary.LittleEndian.PutUint64(to[:], v)
			binary.LittleEndian.PutUint64(to[word:], w)
			binary.LittleEndian.PutUint64(to[2*word:], x)
			binary.LittleEndian.PutUint64(to[3*word:], y)
		}
		m += n
		if f.Kind == stream.Text {
			to[m] = '"'
			m++
		}
		dst = dst[:at+m]
	}
	return dst, nil
}

// uncontrolled reports whether s is ASCII without control characters. If s is shorter than a word
// (8 bytes), it also returns false for a quote or a backslash.
func uncontrolled(s []byte) bool {
	var seen uint64
	if len(s) < word {
		return plain(s) == len(s)
	}
	rest := s
	for ; len(rest) >= chunk; rest = rest[chunk:] {
		c := (*[chunk]byte)(rest)
		seen |= control(binary.LittleEndian.Uint64(c[:])) |
			control(binary.LittleEndian.Uint64(c[word:])) |
			control(binary.LittleEndian.Uint64(c[2*word:])) |
			control(binary.LittleEndian.Uint64(c[3*word:]))
	}
	for ; len(rest) >= word; rest = rest[word:] {
		seen |= control(binary.LittleEndian.Uint64(rest))
	}
	return (seen|control(binary.LittleEndian.Uint64(s[len(s)-word:])))&tops == 0
}

// unquoted reports whether the first n bytes of s have no quote and no backslash. These n bytes
// must be ASCII. s must have at least 8 more bytes (one word), because unquoted reads whole words.
func unquoted(s []byte, n int) bool {
	i := 0
	for ; n-i >= word; i += word {
		if quoting(binary.LittleEndian.Uint64(s[i:]))&tops != 0 {
			return false
		}
	}
	return quoting(binary.LittleEndian.Uint64(s[i:]))&(tops>>(8*(word-uint(n-i)))) == 0
}
