//penstock:pure

package waiting

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"math"

	"github.com/penstock-io/penstock/stream"
	"github.com/penstock-io/penstock/wire"
)

// See docs/formats/waiting.md for the format. Numbers of fixed width are little-endian.
const (
	magic      = "PSTKWAIT"
	version    = 1
	headerSize = 24 // magic, version u16, reserved u16, segment u64, CRC-32C u32
	frameHead  = 8  // length u32, CRC-32C u32
	maxFrame   = 64 << 20
	maxText    = math.MaxUint16 / 2
)

// Kinds of a record.
const (
	kindPart = 1 // a partition; it gets the next number
	kindBoot = 2 // the boot that the due times in the following records refer to
	kindWait = 3 // a range waits; replaces all earlier records of the range
	kindDone = 4 // a range no longer waits
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// due is the due time of an attempt, measured by two clocks.
type due struct {
	wall int64 // nanoseconds since 1970
	boot int64 // nanoseconds since the boot; 0 if unknown
}

// record is one record of a segment.
type record struct {
	kind  byte
	part  stream.Partition // kindPart
	boot  string           // kindBoot
	n     uint32           // kindWait, kindDone: number of the partition
	r     stream.Range     // kindWait, kindDone
	due   due
	entry entry // kindWait
}

func appendHeader(dst []byte, segment uint64) []byte {
	start := len(dst)
	dst = append(dst, magic...)
	dst = binary.LittleEndian.AppendUint16(dst, version)
	dst = binary.LittleEndian.AppendUint16(dst, 0)
	dst = binary.LittleEndian.AppendUint64(dst, segment)
	return binary.LittleEndian.AppendUint32(dst, crc32.Checksum(dst[start:], castagnoli))
}

var (
	errNotSegment = errors.New("it does not begin like a file of waiting batches")
	errHeader     = errors.New("its header is damaged")
	errRecord     = errors.New("a record is invalid")
)

func parseHeader(b []byte, segment uint64) error {
	switch {
	case len(b) < headerSize || string(b[:len(magic)]) != magic:
		return errNotSegment
	case crc32.Checksum(b[:headerSize-4],
		castagnoli) != binary.LittleEndian.Uint32(b[headerSize-4:]):
		return errHeader
	case binary.LittleEndian.Uint16(b[8:]) > version:
		return fmt.Errorf("its format is %d, this program reads up to %d: run the newer program",
			binary.LittleEndian.Uint16(b[8:]), version)
	case binary.LittleEndian.Uint64(b[12:]) != segment:
		return fmt.Errorf("it is segment %d under the name of another",
			binary.LittleEndian.Uint64(b[12:]))
	}
	return nil
}

// checksum returns the checksum of a frame, which is one write in a segment file. The checksum also
// covers the number of the segment and the offset of the frame in it. So a frame that was moved has
// a wrong checksum.
func checksum(segment uint64, offset int64, payload []byte) uint32 {
	var where [20]byte
	binary.LittleEndian.PutUint64(where[0:], segment)
	binary.LittleEndian.PutUint64(where[8:], uint64(offset))
	binary.LittleEndian.PutUint32(where[16:], uint32(len(payload)))
	return crc32.Update(crc32.Checksum(where[:], castagnoli), castagnoli, payload)
}

// seal completes frame b, which has a gap of frameHead bytes before its payload. seal writes the
// length and the checksum of the payload into this gap.
func seal(b []byte, segment uint64, offset int64) {
	binary.LittleEndian.PutUint32(b, uint32(len(b)-frameHead))
	binary.LittleEndian.PutUint32(b[4:], checksum(segment, offset, b[frameHead:]))
}

func appendText(dst []byte, s string) []byte {
	return append(binary.AppendUvarint(dst, uint64(len(s))), s...)
}

func appendPart(dst []byte, p stream.Partition) []byte {
	return appendText(appendText(append(dst, kindPart), p.ID), p.Name)
}

func appendBoot(dst []byte, id string) []byte { return appendText(append(dst, kindBoot), id) }

func appendRange(dst []byte, n uint32, r stream.Range) []byte {
	dst = binary.AppendUvarint(dst, uint64(n))
	dst = binary.AppendVarint(dst, r.From.Num)
	dst = binary.AppendVarint(dst, r.To.Num-r.From.Num)
	return appendText(appendText(dst, r.From.Key), r.To.Key)
}

func appendDone(dst []byte, n uint32, r stream.Range) []byte {
	return appendRange(append(dst, kindDone), n, r)
}

func appendWait(dst []byte, n uint32, e *entry, d due) []byte {
	dst = appendRange(append(dst, kindWait), n, e.rangeOf())
	dst = binary.AppendVarint(dst, d.wall)
	dst = binary.AppendVarint(dst, d.boot)
	suspect := uint32(0)
	if e.has(isSuspect) {
		suspect = 1
	}
	for _, v := range [...]uint32{
		e.batch, e.records, e.bytes, e.attempts, uint32(e.failures), suspect, e.elapsed, e.n,
		e.step, e.prev, e.slept,
	} {
		dst = binary.AppendUvarint(dst, uint64(v))
	}
	return dst
}

// reader reads the records in a payload.
type reader struct{ wire.Reader }

func (c *reader) uint32() uint32 {
	v := c.Uvarint()
	c.Bad = c.Bad || v > math.MaxUint32
	return uint32(v)
}

func (c *reader) text() string {
	text := c.Text()
	c.Bad = c.Bad || len(text) > maxText
	return text
}

// next reads one record of a segment file. parts is the number of partitions that the segment has
// defined so far. next returns an error if the record refers to any other partition.
func (c *reader) next(parts int) (r record, err error) {
	r.kind = byte(c.Uvarint())
	switch r.kind {
	case kindPart:
		r.part = stream.Partition{ID: c.text(), Name: c.text()}
	case kindBoot:
		r.boot = c.text()
	case kindWait, kindDone:
		r.n = c.uint32()
		r.r.From.Num = c.Varint()
		r.r.To.Num = r.r.From.Num + c.Varint()
		r.r.From.Key = c.text()
		r.r.To.Key = c.text()
		c.Bad = c.Bad || int(r.n) >= parts || r.r.From.Compare(r.r.To) >= 0
	default:
		c.Bad = true
	}
	if r.kind == kindWait && !c.Bad {
		r.due = due{c.Varint(), c.Varint()}
		e := &r.entry
		e.batch, e.records, e.bytes, e.attempts = c.uint32(), c.uint32(), c.uint32(), c.uint32()
		failures, suspect := c.uint32(), c.uint32()
		e.failures = uint16(min(failures, math.MaxUint16))
		e.set(isSuspect, suspect == 1)
		e.elapsed, e.n, e.step, e.prev, e.slept = c.uint32(), c.uint32(), c.uint32(), c.uint32(),
			c.uint32()
		c.Bad = c.Bad || suspect > 1
	}
	if c.Bad {
		return r, errRecord
	}
	return r, nil
}
