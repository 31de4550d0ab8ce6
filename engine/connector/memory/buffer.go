package memory

import (
	"bytes"
	"slices"

	"github.com/penstock-io/penstock/stream"
)

// recordOverhead is the number of bytes that each record counts against the limit in addition to
// its text and line end. chunkBytes is the maximum size of a chunk. A larger record has a chunk of
// its own.
const (
	recordOverhead = 8
	chunkBytes     = 64 << 10
)

// buffer holds records. The position of a record is the number of bytes that were added to the
// buffer up to and including this record and the line end after it. A buffer is not safe for
// concurrent use.
type buffer struct {
	chunks    []chunk // ascending, without gaps
	start     int64   // position before the first record
	end       int64   // position of the last record
	held      int64   // bytes counted against the limit
	chunkSize int
}

// chunk is a sequence of records. It is freed as a whole.
type chunk struct {
	from int64
	data []byte // records, each followed by a line end
	ends []int  // for each record, the offset in data after its line end
	odd  bool   // a record contains a line end or ends in CR, so the lines are not the records
}

func (c *chunk) to() int64 { return c.from + int64(len(c.data)) }

func (c *chunk) cost() int64 { return int64(len(c.data) + recordOverhead*len(c.ends)) }

// costOf returns the number of bytes that records count against the limit.
func costOf(records [][]byte) (n int64) {
	for _, r := range records {
		n += int64(len(r)) + 1 + recordOverhead
	}
	return n
}

// add appends copies of records.
func (b *buffer) add(records [][]byte) {
	for _, r := range records {
		if n := len(b.chunks); n == 0 || len(b.chunks[n-1].data)+len(r)+1 > b.chunkSize {
			b.chunks = append(b.chunks, chunk{from: b.end})
		}
		c := &b.chunks[len(b.chunks)-1]
		c.data = append(append(c.data, r...), '\n')
		c.ends = append(c.ends, len(c.data))
		c.odd = c.odd || bytes.IndexByte(r, '\n') >= 0 || bytes.HasSuffix(r, []byte("\r"))
		b.end = c.to()
	}
	b.held += costOf(records)
}

// free frees the chunks that end at or before a position. It reports whether there were any.
func (b *buffer) free(upTo int64) bool {
	n := 0
	for n < len(b.chunks) && b.chunks[n].to() <= upTo {
		b.held -= b.chunks[n].cost()
		n++
	}
	b.chunks = slices.Delete(b.chunks, 0, n)
	b.start = b.end
	if len(b.chunks) > 0 {
		b.start = b.chunks[0].from
	}
	return n > 0
}

// read fills batch with the records between two positions (from and until), as long as batch has
// room. For each record, it appends an offset in batch.Data to the slice ends: the offset after the
// record's line end. It returns the position of the last record, or from if it has read none, and
// the extended slice. odd means that a record may contain a line end or end in CR. Use the returned
// offsets then to separate the records.
func (b *buffer) read(batch *stream.Batch, from, until int64, ends []int) (to int64, _ []int, odd bool) {
	i, found := slices.BinarySearchFunc(b.chunks, from, func(c chunk, at int64) int {
		switch {
		case c.to() <= at:
			return -1
		case c.from > at:
			return 1
		}
		return 0
	})
	for ; found && i < len(b.chunks) && from < until && !batch.Full(); i++ {
		c := &b.chunks[i]
		offset := int(from - c.from)
		k, _ := slices.BinarySearch(c.ends, offset+1)
		for ; k < len(c.ends) && from < until && !batch.Full(); k++ {
			batch.Data = append(batch.Data, c.data[offset:c.ends[k]]...)
			batch.Origins++
			ends = append(ends, len(batch.Data))
			offset = c.ends[k]
			from = c.from + int64(offset)
		}
		odd = odd || c.odd
	}
	return from, ends, odd
}
