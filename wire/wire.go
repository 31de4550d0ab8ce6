//penstock:pure

// Package wire reads small binary records, such as entries of a state file, that may be torn,
// damaged or forged. Write them with the Append functions of encoding/binary.
//
//	r := wire.Reader{Rest: entry}
//	id, size := r.Text(), r.Uvarint()
//	if !r.Done() {
//		return errDamaged
//	}
//
// The package has no clock and no goroutines, so it runs under testing/synctest.
package wire

import "encoding/binary"

// Reader takes values from the front of Rest. If a value is incomplete, Reader sets Bad and empties
// Rest, and every further value is zero. So a single check at the end is enough.
type Reader struct {
	Rest []byte
	Bad  bool
}

// Done reports whether every value was complete and nothing is left.
func (r *Reader) Done() bool { return !r.Bad && len(r.Rest) == 0 }

// Fail sets Bad. Call it for a complete value that is invalid.
func (r *Reader) Fail() { r.Bad, r.Rest = true, nil }

// Uvarint takes an unsigned varint.
func (r *Reader) Uvarint() uint64 {
	v, n := binary.Uvarint(r.Rest)
	r.skip(n)
	return v
}

// Varint takes a signed (zigzag) varint.
func (r *Reader) Varint() int64 {
	v, n := binary.Varint(r.Rest)
	r.skip(n)
	return v
}

// skip skips a varint of n bytes. If n is zero or less, Rest does not begin with a varint.
func (r *Reader) skip(n int) {
	if n <= 0 {
		r.Fail()
		return
	}
	r.Rest = r.Rest[n:]
}

// Take removes the next n bytes from Rest and returns them. They share memory with Rest. If Rest
// has fewer than n bytes, Take returns nil.
func (r *Reader) Take(n uint64) []byte {
	if n > uint64(len(r.Rest)) {
		r.Fail()
		return nil
	}
	taken := r.Rest[:n:n]
	r.Rest = r.Rest[n:]
	return taken
}

// Byte takes one byte.
func (r *Reader) Byte() byte {
	if b := r.Take(1); b != nil {
		return b[0]
	}
	return 0
}

// Int64 takes 8 bytes, little-endian.
func (r *Reader) Int64() int64 {
	if b := r.Take(8); b != nil {
		return int64(binary.LittleEndian.Uint64(b))
	}
	return 0
}

// Text takes a text that follows its length, an unsigned varint.
func (r *Reader) Text() string { return string(r.Take(r.Uvarint())) }
