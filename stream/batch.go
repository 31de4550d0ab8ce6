package stream

import (
	"bytes"
	"cmp"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// Batch is records that travel and settle together. It has one owner while it is filled and
// processed; from dispatch on it is read-only and counted by reference: who reads it holds it by
// Retain.
type Batch struct {
	Data    []byte   // arena: first the spans' raw bytes, whole records with their line ends; behind them what processors wrote
	Spans   []Span   // what it covers, in order
	Origins int      // source records in it, the unit of every counter; set by the Reader, kept by Cut and Pick
	Added   int      // bytes in Data that the source does not have: line ends that the Reader added; set by it
	Names   []string // of fields
	Types   []string // what a SQL source knows of the fields' types, by index into Names; see [Batch.TypeOf]
	Fields  []Field
	Records []Record  // empty until Split
	Payload []byte    // what the sink's Encoder made; nil in a piece
	Time    time.Time // when it was read; set by the engine before the processors

	limits  BatchLimits
	pool    *Pool
	parent  *Batch // a piece holds it until its own last Release
	refs    atomic.Int32
	lo, hi  uint32 // the raw bytes that are this batch's: Data[lo:hi]; hi 0 means all that the spans count
	changed bool   // a record was dropped, buried, added or parsed: the raw bytes are not the whole truth
	reasons map[int]error
	arena   []byte // what Align cut Data from: its memory begins there, or Data has outgrown it
	spare   []byte // a former Payload's memory
}

// BatchLimits say when a batch is full.
type BatchLimits struct {
	Bytes   int // 0 means 256 KiB
	Records int // 0 means 5000
}

// DefaultBatchLimits are those of a config that does not say otherwise.
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

// Limits returns what the batch is full at, for readers that cut by it.
func (b *Batch) Limits() BatchLimits { return b.limits }

// Full says whether the bytes or records of `batch:` are reached.
func (b *Batch) Full() bool {
	return len(b.Data) >= b.limits.Bytes || b.Origins >= b.limits.Records
}

// Size is how many bytes of memory the batch holds for itself.
func (b *Batch) Size() int64 {
	if b.parent != nil {
		return 0
	}
	data := cap(b.memory())
	if b.outgrown() {
		data += cap(b.arena)
	}
	return int64(data + cap(b.Payload) + cap(b.Records)*72 + cap(b.Fields)*16)
}

// RawBytes is how many source bytes the batch covers.
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

// Whole returns the batch's raw bytes, line ends included, and true when they are exactly its
// records: nothing was dropped, buried, added or parsed. The bytes are shared: read-only, and only
// while the batch is held.
func (b *Batch) Whole() ([]byte, bool) {
	if b.changed {
		return nil, false
	}
	lo, hi := b.rawBounds()
	return b.Data[lo:hi:hi], true
}

// AppendRaw appends each kept record and a line end to dst: with its own line end (CR kept) where
// it has one.
func (b *Batch) AppendRaw(dst []byte) []byte {
	if whole, ok := b.Whole(); ok {
		return append(dst, whole...)
	}
	for i := range b.Records {
		if b.Records[i].State == Kept {
			raw := b.Raw(i)
			dst = append(dst, raw...)
			if len(raw) == int(b.Records[i].Len) { // no line end of its own: one that its text ends with is text
				dst = append(dst, '\n')
			}
		}
	}
	return dst
}

// Text returns the text of record i without its line end. Shared, read-only.
func (b *Batch) Text(i int) []byte {
	r := &b.Records[i]
	return b.Data[r.Off : r.Off+r.Len : r.Off+r.Len]
}

// Raw returns the text of record i with the line end that it has in the arena, if any.
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

// Value returns the text of field f of this batch. Shared, read-only.
func (b *Batch) Value(f Field) []byte { return b.Data[f.Off : f.Off+f.Len : f.Off+f.Len] }

// Drop leaves record i out; it settles as dropped.
func (b *Batch) Drop(i int) {
	b.Records[i].State = Dropped
	b.changed = true
}

// Bury makes record i a dead letter, which is durable before its span may settle.
func (b *Batch) Bury(i int, reason error) {
	b.Records[i].State = Dead
	b.changed = true
	if b.reasons == nil {
		b.reasons = make(map[int]error)
	}
	b.reasons[i] = reason
}

// Reason returns why record i was buried.
func (b *Batch) Reason(i int) error { return b.reasons[i] }

// Parsed tells that records were given fields, so that their raw bytes are not the whole truth any
// more.
func (b *Batch) Parsed() { b.changed = true }

// Untouched says whether every record is as it was read: none dropped, buried, added or parsed.
func (b *Batch) Untouched() bool { return !b.changed }

// AppendKept appends to dst the indexes in Records of those that go to the sink, ascending, as Pick
// takes them. A batch that was not split is split.
func (b *Batch) AppendKept(dst []int) []int {
	b.Split()
	for i := range b.Records {
		if b.Records[i].State == Kept {
			dst = append(dst, i)
		}
	}
	return dst
}

// Kept counts the records that go to the sink; before Split, the origins.
func (b *Batch) Kept() int {
	if len(b.Records) == 0 || !b.changed {
		if len(b.Records) == 0 {
			return b.Origins
		}
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

// Encode sets Payload to what e makes of the batch, in memory that is used again. It belongs to the
// batch's one owner.
func (b *Batch) Encode(e Encoder) (err error) {
	b.Payload, err = e.Encode(b.spare[:0], b)
	return err
}

// page is how far apart in memory and in a file two bytes are that a processor takes for neighbours
// when it copies.
const page = 4096

// Align gives an empty batch room for n bytes, the first of which stands in its page of memory
// where the byte at offset off stands in its page of the file. Who is about to read much of a file
// at off calls it: the kernel copies between the file's pages and the arena by one instruction, rep
// movsb, which takes three to four times as long on an AMD Zen 3 where the target is 1 to 31 bytes
// further on in its page than the source (glibc's bug 30994; measured here from file to file). It
// assumes that large memory begins at a page, as Go's does; where it does not, nothing but time is
// lost. A batch that is not empty stays as it is.
func (b *Batch) Align(off int64, n int) {
	if len(b.Data) > 0 {
		return
	}
	skip := int(off & (page - 1))
	b.arena = slices.Grow(b.memory(), skip+n)
	b.Data = b.arena[skip:skip]
}

// memory is what Data is kept in, empty, from where it begins.
func (b *Batch) memory() []byte {
	if cap(b.arena) == 0 || b.outgrown() {
		return b.Data[:0]
	}
	return b.arena[:0]
}

// outgrown says that Data has been moved elsewhere since Align.
func (b *Batch) outgrown() bool {
	a, d := cap(b.arena), cap(b.Data)
	return a > 0 && (d == 0 || &b.arena[:a][a-1] != &b.Data[:d][d-1])
}

// Retain adds a reference.
func (b *Batch) Retain() {
	if b.refs.Add(1) <= 1 {
		panic("penstock: BUG: Retain of a released batch")
	}
}

// Release gives a reference back; the last one returns the arena to its pool.
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

// Pool keeps the arenas of released batches, the last used first, because it is still in the
// processor's cache. It is safe for concurrent use.
type Pool struct {
	// Freed, when set, is called with each batch whose last reference was given back, before its
	// memory is reused.
	Freed func(b *Batch)
	// Poison overwrites released arenas with 0xDB, so that who reads a batch after its last Release is
	// found out. For tests.
	Poison bool
	// Keep is how many arenas are kept; more are left to the garbage collector. 0 means 16.
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

// overgrown is how many times its limit an arena may be and still be kept, when it was not full at
// least by half: one huge record must not hold its memory for ever, but where all are huge making
// it anew costs more than all else.
const overgrown = 4

func (p *Pool) put(b *Batch) {
	if p.Freed != nil {
		p.Freed(b)
	}
	if p.Poison {
		poison(b.memory())
		poison(b.Payload)
	}
	data := b.memory()
	if cap(data) > max(2*len(b.Data), overgrown*b.limits.Bytes+64<<10) {
		data = nil
	}
	clear(b.Spans)
	if b.Payload != nil {
		b.spare = b.Payload
	}
	*b = Batch{
		Data: data, Spans: b.Spans[:0], Names: b.Names[:0], Types: b.Types[:0], Fields: b.Fields[:0], Records: b.Records[:0],
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
