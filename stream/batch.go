package stream

import (
	"bytes"
	"cmp"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// Batch is a group of records that are delivered and settled together. While it is filled and
// processed, it has one owner. When it is sent to a worker, it becomes read-only and
// reference-counted: a goroutine that uses it calls Retain first, and Release at the end.
type Batch struct {
	// memory that all records share (the arena): first the raw bytes of the spans, which are whole
	// records with their line ends, then bytes added by processors
	Data  []byte
	Spans []Span // the covered ranges, in order
	// number of source records, the unit of every counter; set by the Reader, kept by Cut and Pick
	Origins int
	// bytes in Data that are not in the source: line ends that the Reader has added; set by the
	// Reader
	Added int
	Names []string // names of fields
	// field types declared by a SQL source, by index into Names; see [Batch.TypeOf]
	Types   []string
	Fields  []Field
	Records []Record  // empty until Split
	Payload []byte    // result of the sink's Encoder; nil in a piece made by Cut or Pick
	Time    time.Time // when it was read; set by the engine before the processors

	limits BatchLimits
	pool   *Pool
	parent *Batch // the batch from which this piece was cut; held until the last Release
	refs   atomic.Int32
	// the raw bytes of a piece are Data[lo:hi]; in other batches, hi is 0, and the raw bytes are
	// those of the spans, from the start of Data
	lo, hi uint32
	// true after a record was dropped, dead-lettered, added or parsed, and in a piece made by Pick:
	// the raw bytes then do not represent the records
	changed bool
	reasons map[int]error
	arena   arena
	spare   []byte // memory of a former Payload
}

// BatchLimits are the limits at which a batch is full.
type BatchLimits struct {
	Bytes   int // 0 means 256 KiB
	Records int // 0 means 5000
}

// DefaultBatchLimits are the default limits.
var DefaultBatchLimits = BatchLimits{Bytes: 256 << 10, Records: 5000}

// NewBatch returns an empty batch outside any pool, with one reference.
func NewBatch(l BatchLimits) *Batch {
	b := &Batch{limits: l.withDefaults()}
	b.refs.Store(1)
	return b
}

func (l BatchLimits) withDefaults() BatchLimits {
	if l.Bytes <= 0 {
		l.Bytes = DefaultBatchLimits.Bytes
	}
	if l.Records <= 0 {
		l.Records = DefaultBatchLimits.Records
	}
	return l
}

// Limits returns the limits of the batch, for readers that cut at them.
func (b *Batch) Limits() BatchLimits { return b.limits }

// Full reports whether a limit of `batch:` is reached.
func (b *Batch) Full() bool {
	return len(b.Data) >= b.limits.Bytes || b.Origins >= b.limits.Records
}

// Size estimates the bytes of memory that the batch holds. It is 0 for a piece (made by Cut or
// Pick), which uses the memory of the batch from which it was cut.
func (b *Batch) Size() int64 {
	if b.parent != nil {
		return 0
	}
	data := cap(b.arena.memory(b.Data))
	if b.arena.outgrown(b.Data) {
		data += cap(b.arena)
	}
	return int64(data + cap(b.Payload) + cap(b.Records)*recordSize + cap(b.Fields)*fieldSize)
}

// Sizes of a Record and a Field in memory, on a 64-bit system.
const recordSize, fieldSize = 56, 16

// RawBytes returns the number of the batch's raw bytes, line ends included.
func (b *Batch) RawBytes() int64 {
	lo, hi := b.rawBounds()
	return int64(hi - lo)
}

func (b *Batch) rawBounds() (lo, hi uint32) {
	if b.hi != 0 || b.parent != nil {
		return b.lo, b.hi
	}
	for i := range b.Spans {
		hi += uint32(b.Spans[i].Bytes)
	}
	return 0, hi
}

// Whole returns the batch's raw bytes, line ends included. It returns false if a record was
// dropped, dead-lettered, added or parsed, or if Pick made the batch. The raw bytes then do not
// represent the records. The bytes are shared and read-only. They are valid until the caller
// releases the batch.
func (b *Batch) Whole() ([]byte, bool) {
	if b.changed {
		return nil, false
	}
	lo, hi := b.rawBounds()
	return b.Data[lo:hi:hi], true
}

// AppendRaw appends each kept record (neither dropped nor dead-lettered) to dst, with its own line
// end (including CR) if it has one, otherwise with a new line end.
func (b *Batch) AppendRaw(dst []byte) []byte {
	if whole, ok := b.Whole(); ok {
		return append(dst, whole...)
	}
	for i := range b.Records {
		if b.Records[i].State == Kept {
			raw := b.Raw(i)
			dst = append(dst, raw...)
			// no line end follows the text; a newline at the end of the text is part of it
			if len(raw) == int(b.Records[i].Len) {
				dst = append(dst, '\n')
			}
		}
	}
	return dst
}

// Text returns the text of record i without its line end. The bytes are shared and read-only.
func (b *Batch) Text(i int) []byte {
	r := &b.Records[i]
	return b.Data[r.Off : r.Off+r.Len : r.Off+r.Len]
}

// Raw returns the text of record i, with its line end if Data contains one.
func (b *Batch) Raw(i int) []byte {
	r := &b.Records[i]
	end := r.Off + r.Len
	rest := b.Data[end:]
	switch {
	case bytes.HasPrefix(rest, crlf):
		end += 2
	case len(rest) > 0 && rest[0] == '\n':
		end++
	}
	return b.Data[r.Off:end:end]
}

var crlf = []byte("\r\n")

// Value returns the text of field f of this batch. The bytes are shared and read-only.
func (b *Batch) Value(f Field) []byte { return b.Data[f.Off : f.Off+f.Len : f.Off+f.Len] }

// Drop drops record i, which settles as dropped.
func (b *Batch) Drop(i int) {
	b.Records[i].State = Dropped
	b.changed = true
}

// DeadLetter makes record i a dead letter with the given reason. The span of the record settles
// only after the dead letter is durable.
func (b *Batch) DeadLetter(i int, reason error) {
	b.Records[i].State = Dead
	b.changed = true
	if b.reasons == nil {
		b.reasons = make(map[int]error)
	}
	b.reasons[i] = reason
}

// Reason returns why record i was dead-lettered.
func (b *Batch) Reason(i int) error { return b.reasons[i] }

// Parsed declares that the records have been parsed into fields, so that sinks must not send their
// raw bytes.
func (b *Batch) Parsed() { b.changed = true }

// Untouched reports whether all records are unchanged: none was dropped, dead-lettered, added or
// parsed. It returns false for a piece made by Pick.
func (b *Batch) Untouched() bool { return !b.changed }

// AppendKept appends to dst the indexes in Records of the kept records (neither dropped nor
// dead-lettered), in ascending order. The result is a valid argument of Pick. AppendKept calls
// Split if necessary.
func (b *Batch) AppendKept(dst []int) []int {
	b.Split()
	for i := range b.Records {
		if b.Records[i].State == Kept {
			dst = append(dst, i)
		}
	}
	return dst
}

// Kept returns the number of kept records or, before Split, the number of source records.
func (b *Batch) Kept() int {
	switch {
	case len(b.Records) == 0:
		return b.Origins
	case !b.changed:
		return len(b.Records)
	}
	n := 0
	for i := range b.Records {
		if b.Records[i].State == Kept {
			n++
		}
	}
	return n
}

// Encode sets Payload to e's encoding of the batch, in reused memory. Only the batch's single owner
// may call it.
func (b *Batch) Encode(e Encoder) (err error) {
	b.Payload, err = e.Encode(b.spare[:0], b)
	return err
}

// page is the size of a memory page; see Align.
const page = 4096

// Align prepares an empty batch for a fast read of n bytes at offset off of a file: it reserves
// memory for them. It does nothing if the batch is not empty.
//
// The first byte gets the same offset in its memory page as the byte at off has in its page of the
// file. The kernel copies from the page cache to the arena with rep movsb. On some processors this
// copy takes three to four times as long if the target's offset in its page is 1 to 31 bytes above
// the source's (glibc bug 30994). Align assumes that large allocations begin at a page boundary, as
// in Go. If they do not, the copy is only slower.
func (b *Batch) Align(off int64, n int) {
	if len(b.Data) > 0 {
		return
	}
	skip := int(off & (page - 1))
	b.arena = slices.Grow(b.arena.memory(b.Data), skip+n)
	b.Data = b.arena[skip:skip]
}

// arena is the memory for the Data of a batch on which Align was called; empty before Align.
type arena []byte

// memory returns the memory that holds the data of a batch, as a slice of length 0. After Align,
// data begins some bytes after the start of a, so memory returns all of a. If Align was not called,
// or if data was moved to larger memory since, a is not used, and memory returns data[:0].
func (a arena) memory(data []byte) []byte {
	if cap(a) == 0 || a.outgrown(data) {
		return data[:0]
	}
	return a[:0]
}

// outgrown reports whether data was reallocated since Align.
func (a arena) outgrown(data []byte) bool {
	n, d := cap(a), cap(data)
	return n > 0 && (d == 0 || &a[:n][n-1] != &data[:d][d-1])
}

// Retain adds a reference, so that the batch stays valid until the matching Release.
func (b *Batch) Retain() {
	if b.refs.Add(1) <= 1 {
		panic("penstock: BUG: Retain of a released batch")
	}
}

// Release gives back a reference. The last Release returns the arena to its pool.
func (b *Batch) Release() {
	switch n := b.refs.Add(-1); {
	case n > 0:
		return
	case n < 0:
		panic("penstock: BUG: batch released more often than retained")
	}
	if parent := b.parent; parent != nil {
		b.parent, b.Data = nil, nil
		parent.Release()
		return
	}
	if b.pool != nil {
		b.pool.put(b)
	}
}

// Pool keeps the memory (arenas) of released batches for reuse. The arena that was released last is
// reused first, because it is probably still in the CPU cache. Pool is safe for concurrent use.
type Pool struct {
	// Freed, if not nil, is called with each batch after its last Release, before its memory is
	// reused.
	Freed func(b *Batch)
	// Poison overwrites released arenas with 0xDB, so that tests detect reads after the last
	// Release.
	Poison bool
	// Keep is the maximum number of kept arenas. Zero means 16.
	Keep int

	mu   sync.Mutex // guards free
	free []*Batch
}

// Get returns an empty batch with one reference.
func (p *Pool) Get(l BatchLimits) *Batch {
	p.mu.Lock()
	var b *Batch
	if n := len(p.free); n > 0 {
		b = p.free[n-1]
		p.free[n-1] = nil
		p.free = p.free[:n-1]
	}
	p.mu.Unlock()
	if b == nil {
		b = &Batch{pool: p}
	}
	b.limits = l.withDefaults()
	b.refs.Store(1)
	return b
}

// overgrown bounds the arenas that the pool keeps. An arena is freed if it is larger than overgrown
// times the byte limit of a batch, plus 64 KiB, unless its last batch used at least half of it.
// Example: the limit is 1 MiB, and one record has 50 MiB. The arena of this record is reused once,
// for a batch of small records, and is then freed. If all records have 50 MiB, the arenas are
// reused.
const overgrown = 4

func (p *Pool) put(b *Batch) {
	if p.Freed != nil {
		p.Freed(b)
	}
	if p.Poison {
		poison(b.arena.memory(b.Data))
		poison(b.Payload)
	}
	data := b.arena.memory(b.Data)
	if cap(data) > max(2*len(b.Data), overgrown*b.limits.Bytes+64<<10) {
		data = nil
	}
	clear(b.Spans)
	if b.Payload != nil {
		b.spare = b.Payload
	}
	*b = Batch{
		Data: data, Spans: b.Spans[:0], Names: b.Names[:0], Types: b.Types[:0],
		Fields: b.Fields[:0], Records: b.Records[:0],
		spare: b.spare[:0], pool: p,
	}
	keep := cmp.Or(p.Keep, 16)
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.free) < keep {
		p.free = append(p.free, b)
	}
}

func poison(s []byte) {
	s = s[:cap(s)]
	for i := range s {
		s[i] = 0xDB
	}
}
