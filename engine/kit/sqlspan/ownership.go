package sqlspan

import (
	"fmt"
	"slices"

	"github.com/penstock-io/penstock/stream"
)

// ownership records that this process owns a partition, with the epoch of the partition in the
// ledger.
type ownership struct {
	assignment uint32
	part       stream.Partition
	epoch      int64
	confirmed  bool // until then, this process must not write to the partition
}

// confirmed returns the ownership of a partition under an assignment by the broker. It returns
// false unless the engine has confirmed the assignment (see Confirm). This process must then not
// write spans of the partition.
func confirmed(l *Ledger, assignment uint32, part string) (ownership, bool) {
	loaded, _ := l.owners.Load(assignment)
	own, ok := loaded.(ownership)
	return own, ok && own.confirmed && own.part.ID == part
}

// guard ensures that the epochs in the ledger are those of this process during a transaction that
// writes spans: the epoch of the route or, if the ledger has several owners, those of the
// partitions of spans. The statements read and lock the epochs in the ledger. After they have run,
// check compares the epochs with those of this process.
func (l *Ledger) guard(spans []stream.Span) (statements []*Statement,
	check func() error, err error) {
	if l.shared.Load() {
		return l.guardParts(spans)
	}
	var format, epoch int64
	return append(pointers(l.d.Share), l.readRoute(l.fence, l.d.Lock, &format, &epoch)),
		func() error { return l.check(epoch) }, nil
}

func (l *Ledger) guardParts(spans []stream.Span) ([]*Statement, func() error, error) {
	var owned []ownership
	for i := range spans {
		s := &spans[i]
		if i > 0 && s.Assignment == spans[i-1].Assignment && s.Part.ID == spans[i-1].Part.ID {
			continue
		}
		own, ok := confirmed(l, s.Assignment, s.Part.ID)
		if !ok {
			return nil, nil, &stream.FencedError{Assignment: s.Assignment, Part: *s.Part,
				Err: fmt.Errorf("its assignment in the ledger %q has ended or is not confirmed",
					l.Name)}
		}
		owned = append(owned, own)
	}
	statements, seen := l.shareEpochs(owned)
	return statements, func() error {
		for i := range owned {
			if own := &owned[i]; seen[own.part.ID] != own.epoch {
				return &stream.FencedError{Assignment: own.assignment, Part: own.part,
					Err: fmt.Errorf("its epoch in the ledger %q is %d, this process has %d",
						l.Name, seen[own.part.ID], own.epoch)}
			}
		}
		return nil
	}, nil
}

// shareEpochs returns statements that read the epochs of partitions into the map seen. They also
// lock the epochs, which then cannot change until the transaction ends.
func (l *Ledger) shareEpochs(owned []ownership) (statements []*Statement, seen map[string]int64) {
	seen = make(map[string]int64, len(owned))
	if len(owned) == 0 {
		return nil, seen
	}
	ids := make([]string, len(owned))
	for i := range owned {
		ids[i] = owned[i].part.ID
	}
	slices.Sort(ids)
	ids = slices.Compact(ids)
	if l.d.ShareParts != nil {
		statements = l.d.ShareParts(ids)
	}
	return append(statements, l.readEpochs(l.d.Lock, ids, seen)...), seen
}

func (l *Ledger) readEpochs(lock string, ids []string, seen map[string]int64) []*Statement {
	var part string
	var epoch int64
	return reading(l.overParts(l.d.epochOf+lock, ids),
		func() { seen[part] = epoch }, &part, &epoch)
}
