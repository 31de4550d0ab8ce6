//penstock:pure

package waiting

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"

	"github.com/penstock-io/penstock/engine/internal/framelog"
	"github.com/penstock-io/penstock/stream"
	"github.com/penstock-io/penstock/wire"
)

// See docs/formats/waiting.md for the format. Numbers of fixed width are little-endian.
const (
	magic     = "PSTKWAIT"
	version   = 1
	frameHead = framelog.HeadSize
	maxText   = math.MaxUint16 / 2
)

// Kinds of a record.
const (
	kindPart = 1 // a partition; it gets the next number
	kindBoot = 2 // the boot that the due times in the following records refer to
	kindWait = 3 // a range waits; replaces all earlier records of the range
	kindDone = 4 // a range no longer waits
)

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

var errRecord = errors.New("a record is invalid")

// checkHeader returns an error if b is not the header of the given segment.
func checkHeader(b []byte, segment uint64) error {
	format, number, err := framelog.ParseHeader(b, magic)
	switch {
	case err != nil:
		return err
	case format > version:
		return fmt.Errorf("its format is %d, this program reads up to %d: run the newer program",
			format, version)
	case number != segment:
		return fmt.Errorf("it is segment %d under the name of another", number)
	}
	return nil
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
