package kafka

import (
	"sync"

	"github.com/twmb/franz-go/pkg/kgo"
)

// recordPool keeps the memory of fetched records for later fetches. The client library takes memory
// for a batch of records from the pool. It returns the memory when all records of the batch were
// recycled. If some are never recycled, the garbage collector frees the memory. A recordPool is
// safe for concurrent use.
//
// A record has many pointers. Without the pool, a fast reader would spend much of its processor
// time on garbage collection.
type recordPool struct {
	records sync.Pool // of *[]kgo.Record
	bytes   sync.Pool // of *[]byte
}

// A batch may get more memory from the pool than it needs. These constants bound the unused part,
// which the source does not count in its memory limit. So a small batch does not keep the memory of
// a large one.
const (
	leastRecords = 64
	leastBytes   = 4 << 10
	expansion    = 8 // bytes of a batch for each compressed byte
)

var (
	_ kgo.PoolRecords         = (*recordPool)(nil)
	_ kgo.PoolDecompressBytes = (*recordPool)(nil)
)

// GetRecords implements kgo.PoolRecords.
func (p *recordPool) GetRecords(n int) []kgo.Record {
	if s, ok := p.records.Get().(*[]kgo.Record); ok && cap(*s) >= n {
		if cap(*s) <= 2*n+leastRecords {
			return *s
		}
		p.records.Put(s)
	}
	return make([]kgo.Record, 0, n)
}

// PutRecords implements kgo.PoolRecords.
func (p *recordPool) PutRecords(s []kgo.Record) { p.records.Put(&s) }

// GetDecompressBytes implements kgo.PoolDecompressBytes.
func (p *recordPool) GetDecompressBytes(
	compressed []byte, _ kgo.CompressionCodecType,
) []byte {
	if s, ok := p.bytes.Get().(*[]byte); ok {
		if cap(*s) <= expansion*len(compressed)+leastBytes {
			return *s
		}
		p.bytes.Put(s)
	}
	return nil
}

// PutDecompressBytes implements kgo.PoolDecompressBytes.
func (p *recordPool) PutDecompressBytes(s []byte) { p.bytes.Put(&s) }

// recycle returns the memory of records to their pool. The records must not be used afterwards.
func recycle(records []*kgo.Record) {
	for _, r := range records {
		r.Recycle()
	}
}
