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

// Reader takes values off the front of Rest. After a value that is not there whole, Bad is set,
// Rest is empty, and every further value is zero: check once, at the end.
type Reader struct {
	Rest []byte
	Bad  bool
}

// Done reports whether every value was there and nothing is left.
func (r *Reader) Done() bool { return !r.Bad && len(r.Rest) == 0 }

// Fail sets Bad, for a value that is there and makes no sense.
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

// skip skips a varint of n bytes. Zero or less means that Rest does not begin with one.
func (r *Reader) skip(n int) {
	if n <= 0 {
		r.Fail()
		return
	}
	r.Rest = r.Rest[n:]
}

// Take takes the next n bytes, which share memory with Rest; nil if there are fewer.
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

// Text takes a text behind its length, an unsigned varint.
func (r *Reader) Text() string { return string(r.Take(r.Uvarint())) }
