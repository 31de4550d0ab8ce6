//penstock:pure

package buffer

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"slices"
)

// envelope is one entry of the store. It contains the records of one batch, or a copy of the keys
// of earlier requests. docs/formats/buffer.md describes its format.
type envelope struct {
	id       string // random id of the buffer
	number   uint64 // 1 and up, without gaps
	previous uint32 // checksum of the preceding envelope; 0 for the first
	stored   int64  // nanoseconds since 1970
	records  int
	ends     []int32 // of the records in data; nil if each line is a record
	keysFrom uint64  // first envelope of the record of keys; 0 if there is none
	keys     []key   // of the requests in data, in the same order; or copies
	data     []byte  // the records, each with a line end
	sum      uint32  // of all of the above
	size     int     // of the stored envelope; set by decode
}

const (
	magic     = "PBE1"
	magicKeys = "PBE2" // with keysFrom and keys
	idSize    = 26
	// headerSize is the total size of the fields at the start of an envelope: magic, id, number,
	// previous, stored, records and the number of ends.
	headerSize = len(magic) + idSize + 8 + 4 + 8 + 4 + 4
	sumSize    = 4
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// encode appends the envelope to dst and sets its sum.
func (e *envelope) encode(dst []byte) []byte {
	start := len(dst)
	version := magic
	if e.hasKeys() {
		version = magicKeys
	}
	dst = append(append(dst, version...), e.id...)
	dst = binary.LittleEndian.AppendUint64(dst, e.number)
	dst = binary.LittleEndian.AppendUint32(dst, e.previous)
	dst = binary.LittleEndian.AppendUint64(dst, uint64(e.stored))
	dst = binary.LittleEndian.AppendUint32(dst, uint32(e.records))
	dst = binary.LittleEndian.AppendUint32(dst, uint32(len(e.ends)))
	for _, end := range e.ends {
		dst = binary.LittleEndian.AppendUint32(dst, uint32(end))
	}
	if e.hasKeys() {
		dst = binary.LittleEndian.AppendUint64(dst, e.keysFrom)
		dst = appendKeys(dst, e.keys)
	}
	dst = append(dst, e.data...)
	e.sum = crc32.Checksum(dst[start:], castagnoli)
	return binary.LittleEndian.AppendUint32(dst, e.sum)
}

// hasKeys reports whether the envelope must be stored in the format with keys of requests.
func (e *envelope) hasKeys() bool { return e.keysFrom != 0 || len(e.keys) > 0 }

var errShort = errors.New("it is shorter than its header")

// decode parses the stored envelope text and checks its checksum. The fields of the result may
// share memory with text.
func decode(text []byte) (*envelope, error) {
	if len(text) < headerSize+sumSize {
		return nil, errShort
	}
	body, sum := text[:len(text)-sumSize], binary.LittleEndian.Uint32(text[len(text)-sumSize:])
	if got := crc32.Checksum(body, castagnoli); got != sum {
		return nil, fmt.Errorf("its checksum is %08x, stored is %08x", got, sum)
	}
	version := string(body[:len(magic)])
	if version != magic && version != magicKeys {
		return nil, fmt.Errorf("it begins with %q, want %q or %q", version, magic, magicKeys)
	}
	e := &envelope{id: string(body[len(magic) : len(magic)+idSize]), sum: sum, size: len(text)}
	rest := body[len(magic)+idSize:]
	e.number = binary.LittleEndian.Uint64(rest)
	e.previous = binary.LittleEndian.Uint32(rest[8:])
	e.stored = int64(binary.LittleEndian.Uint64(rest[12:]))
	e.records = int(binary.LittleEndian.Uint32(rest[20:]))
	ends := int(binary.LittleEndian.Uint32(rest[24:]))
	rest = rest[28:]
	if ends != 0 && ends != e.records || ends > len(rest)/4 {
		return nil, fmt.Errorf("it has %d ends of %d records", ends, e.records)
	}
	for range ends {
		e.ends = append(e.ends, int32(binary.LittleEndian.Uint32(rest)))
		rest = rest[4:]
	}
	if version == magicKeys {
		var err error
		if rest, err = e.decodeKeys(rest); err != nil {
			return nil, err
		}
	}
	e.data = rest
	return e, e.check()
}

// decodeAs is like decode, but also returns an error if the envelope does not have the given
// number.
func decodeAs(text []byte, number uint64) (*envelope, error) {
	e, err := decode(text)
	if err == nil && e.number != number {
		err = fmt.Errorf("it has the number %d", e.number)
	}
	return e, err
}

// chainError returns the error for an envelope e that contains a wrong checksum of the preceding
// envelope, which is the parameter before. The store has then lost or replaced an envelope.
func chainError(e, before *envelope) error {
	return fmt.Errorf("it follows an envelope with checksum %08x, but %d has %08x",
		e.previous, before.number, before.sum)
}

// check returns an error if e is inconsistent. The record ends must be ascending, and the last one
// must be the end of the data. Without ends, there must be one line for each record. The keys must
// belong to parts of the data. An envelope without data must have copies of keys.
func (e *envelope) check() error {
	if err := checkKeys(e.keys, len(e.data)); err != nil {
		return err
	}
	if len(e.data) == 0 && e.records == 0 && len(e.keys) > 0 {
		return nil // copies of keys
	}
	if len(e.data) == 0 || e.data[len(e.data)-1] != '\n' {
		return errors.New("its last record has no end")
	}
	if e.ends == nil {
		if n := bytes.Count(e.data, []byte{'\n'}); n != e.records {
			return fmt.Errorf("it has %d lines, want %d", n, e.records)
		}
		return nil
	}
	at := int32(0)
	for _, end := range e.ends {
		if end <= at || int(end) > len(e.data) {
			return errors.New("the ends of its records are not in order")
		}
		at = end
	}
	if int(at) != len(e.data) {
		return errors.New("data follows its last record")
	}
	return nil
}

// next returns the offset of the end of the record that begins at the given offset of e.data.
func (e *envelope) next(offset int) int {
	if e.ends == nil {
		return offset + bytes.IndexByte(e.data[offset:], '\n') + 1
	}
	n, _ := slices.BinarySearch(e.ends, int32(offset+1))
	return int(e.ends[n])
}

// A position in the buffer is one number. Its lower offsetBits bits are an offset into the data of
// an envelope. Its upper bits are the envelope's number minus one. The data of an envelope is
// therefore limited to 16 MiB.
const offsetBits = 24

// maxEnvelope bounds the data of an envelope.
const maxEnvelope = 1<<offsetBits - 1

func positionOf(number uint64, offset int) int64 { return int64(number-1)<<offsetBits | int64(offset) }

func placeOf(position int64) (number uint64, offset int) {
	return uint64(position)>>offsetBits + 1, int(position & maxEnvelope)
}
