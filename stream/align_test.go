package stream_test

import (
	"bytes"
	"testing"
	"unsafe"

	"github.com/penstock-io/penstock/stream"
)

// place returns the offset, within its page of memory, of the next byte that is appended to b.
func place(b *stream.Batch) int64 {
	next := b.Data[len(b.Data) : len(b.Data)+1]
	return int64(uintptr(unsafe.Pointer(&next[0])) & 4095)
}

// TestAlign checks that data read at an offset of a file gets the same offset in its page of memory
// as in its page of the file. This also holds for a reused arena. A batch that has outgrown its
// arena must return the larger arena to the pool, so that later batches allocate nothing.
func TestAlign(t *testing.T) {
	const size = 256 << 10
	p := &stream.Pool{}
	offsets := []int64{0, 1, 4095, 4096, 262_187, 1<<40 + 31}
	read := func(off int64) *stream.Batch {
		b := p.Get(stream.BatchLimits{})
		b.Align(off, size)
		return b
	}
	for _, off := range offsets {
		b := read(off)
		if len(b.Data) != 0 || cap(b.Data) < size || place(b) != off&4095 {
			t.Errorf("aligned for offset %d: %d bytes of %d, the next at %d of its page", off,
				len(b.Data), cap(b.Data), place(b))
		}
		if got := b.Size(); got < int64(cap(b.Data))+off&4095 {
			t.Errorf("aligned for offset %d: Size %d does not count all of the arena", off, got)
		}
		b.Data = append(b.Data, "some bytes"...)
		if next := place(b); next != (off+10)&4095 {
			t.Errorf("the byte after those at %d stands at %d of its page", off, next)
		}
		if b.Align(7, size); string(b.Data) != "some bytes" {
			t.Errorf("a batch that holds something was aligned: %q", b.Data)
		}
		b.Release()
	}
	if n := testing.AllocsPerRun(50, func() {
		for _, off := range offsets {
			read(off).Release()
		}
	}); n > 0 {
		t.Errorf("%v allocations for %d arenas that are there", n, len(offsets))
	}

	b := read(100)
	b.Data = append(b.Data[:cap(b.Data)], "more than there was room for"...)
	if b.Size() < int64(cap(b.Data))+size {
		t.Errorf("Size %d does not count the arena that was outgrown beside the one of %d bytes",
			b.Size(), cap(b.Data))
	}
	grown := cap(b.Data)
	b.Release()
	if b = read(100); cap(b.Data)+4096 < grown || place(b) != 100 {
		t.Errorf("an arena of %d bytes was outgrown to one of %d, which is not used again",
			cap(b.Data), grown)
	}
	b.Release()
}

// TestAlignPoisons checks that Poison overwrites the data of an aligned arena, and that the next
// batch reuses the arena but starts empty.
func TestAlignPoisons(t *testing.T) {
	p := &stream.Pool{Poison: true}
	b := p.Get(stream.BatchLimits{})
	b.Align(3, 64<<10)
	b.Data = append(b.Data, bytes.Repeat([]byte("x"), 64<<10)...)
	data := b.Data
	b.Release()
	for i, c := range data {
		if c != 0xDB {
			t.Fatalf("byte %d is %#x after the last Release", i, c)
		}
	}
	b = p.Get(stream.BatchLimits{})
	if b.Align(0, 64<<10); len(b.Data) != 0 || cap(b.Data) < 64<<10 {
		t.Errorf("taken again: %d bytes of %d", len(b.Data), cap(b.Data))
	}
}

// TestSize checks that Size counts records and fields with their sizes in memory.
func TestSize(t *testing.T) {
	b := new(stream.Batch)
	b.Records, b.Fields = make([]stream.Record, 7), make([]stream.Field, 9)
	want := 7*unsafe.Sizeof(stream.Record{}) + 9*unsafe.Sizeof(stream.Field{})
	if got := b.Size(); got != int64(want) && unsafe.Sizeof(uintptr(0)) == 8 {
		t.Errorf("Size is %d for 7 records and 9 fields, want %d", got, want)
	}
}
