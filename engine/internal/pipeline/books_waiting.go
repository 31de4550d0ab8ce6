//penstock:pure

package pipeline

import (
	"github.com/penstock-io/penstock/engine/internal/waiting"
	"github.com/penstock-io/penstock/stream"
)

// waitIndex finds the ranges of a partition that wait for a retry.
type waitIndex interface {
	// First returns the start of a partition's first waiting range, and false if there is none.
	First(partitionID string) (stream.Position, bool)
}

// waits reports whether any range of a partition waits for a retry.
func (k *books) waits(id string) bool {
	if k.waiting == nil {
		return false
	}
	_, ok := k.waiting.First(id)
	return ok
}

// handOver settles a range of a batch that waits for a retry, so that the checkpoint can advance
// beyond the range. This is safe, because the store of waiting batches has stored the range durably
// before.
func (k *books) handOver(part *stream.Partition, r stream.Range) {
	if p := k.parts[part.ID]; p != nil {
		k.settleRange(p, r)
		k.markDirty(p)
	}
}

// abandon is called when ranges that waited for a retry cannot be read again, because the source no
// longer has their data. It settles the ranges, so that the progress can move past them, and
// subtracts their records from the records read.
func (k *books) abandon(ranges []waiting.Range) error {
	for i := range ranges {
		k.counts.readRecords -= ranges[i].Records
		k.counts.readBytes -= ranges[i].Bytes
		p, err := k.partition(&ranges[i].Part)
		if err != nil {
			return err
		}
		k.settleRange(p, ranges[i].Range)
		k.markDirty(p)
	}
	return nil
}
