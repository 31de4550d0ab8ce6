package sqlspan

import (
	"context"
	"fmt"
	"slices"

	"github.com/penstock-io/penstock/stream"
)

// maxParts bounds the partitions in one transaction of Take or Compact. Each partition may need a
// lock, and servers limit the number of locks.
const maxParts = 100

// Take implements [stream.PartitionLedger], over the session s: it makes this process the owner of
// the partitions in parts, and returns their progress. Until find has succeeded once, each call
// first creates missing tables, converts a ledger of Format to SharedFormat, and calls find, which
// determines the columns of the data's table.
func (l *Ledger) Take(ctx context.Context, s Session, parts []stream.Taking,
	find func() error) ([]stream.Taken, error) {
	if !l.shared.Load() {
		if err := l.share(ctx, s); err != nil {
			return nil, l.Note(err)
		}
		if err := find(); err != nil {
			return nil, err
		}
		l.shared.Store(true)
	}
	taken := make([]stream.Taken, 0, len(parts))
	for some := range slices.Chunk(parts, maxParts) {
		t, err := l.take(ctx, s, some)
		if err != nil {
			return nil, err
		}
		taken = append(taken, t...)
	}
	return taken, nil
}

// Confirm implements [stream.PartitionLedger]: from now on, this process may write to the
// partitions of the assignments.
func (l *Ledger) Confirm(assignments []uint32) {
	for _, n := range assignments {
		if loaded, ok := l.owners.Load(n); ok {
			own := loaded.(ownership)
			own.confirmed = true
			l.owners.CompareAndSwap(n, loaded, own) // unless it was released meanwhile
		}
	}
}

// Release implements [stream.PartitionLedger]: this process no longer owns the partitions of the
// assignments.
func (l *Ledger) Release(assignments []uint32) {
	for _, n := range assignments {
		l.owners.Delete(n)
	}
}

// share creates missing tables, and converts the ledger of the route from Format to SharedFormat.
func (l *Ledger) share(ctx context.Context, s Session) error {
	if err := l.Create(ctx, s); err != nil {
		return err
	}
	err := l.create(ctx, s, l.d.PresentEpochs, []string{l.d.CreateEpochs})
	if err != nil {
		return err
	}
	return convert(ctx, l, s, SharedFormat, func() error {
		return s.Run(ctx, l.statement(l.route, shareText))
	})
}

// take makes this process the owner of partitions, in one transaction. It waits until the
// transactions of the earlier owners have ended, and raises the epochs of the partitions. Then it
// reads the progress, which includes these transactions.
func (l *Ledger) take(ctx context.Context, s Session,
	parts []stream.Taking) ([]stream.Taken, error) {
	ids := make([]string, len(parts))
	for i := range parts {
		ids[i] = parts[i].Part.ID
	}
	slices.Sort(ids)
	var locks []*Statement
	if l.d.TakeParts != nil {
		locks = l.d.TakeParts(ids)
	}
	if err := s.Begin(ctx, locks...); err != nil {
		return nil, fmt.Errorf("waiting for the transactions of earlier owners: %w", err)
	}
	epochs := make(map[string]int64, len(ids))
	if err := s.Run(ctx, append(l.overParts(l.d.RaiseEpoch, ids),
		l.readEpochs("", ids, epochs)...)...); err != nil {
		return nil, err
	}
	taken, err := l.progress(ctx, s, ids, parts)
	if err == nil {
		err = l.storeTaken(ctx, s, parts, taken)
	}
	if err == nil {
		err = s.Commit(ctx)
	}
	if err != nil {
		return nil, err
	}
	for i := range parts {
		p := &parts[i]
		if !taken[i].Found && p.MustExist {
			l.owners.Delete(p.Assignment)
			continue
		}
		l.owners.Store(p.Assignment,
			ownership{assignment: p.Assignment, part: p.Part, epoch: epochs[p.Part.ID]})
	}
	return taken, nil
}

// progress returns the progress of partitions as the result of Take. If the tables do not contain a
// partition, its progress is Taking.Start, or empty if Taking.MustExist is set.
func (l *Ledger) progress(ctx context.Context, s Session, ids []string,
	parts []stream.Taking) ([]stream.Taken, error) {
	at, rows, err := readParts(ctx, l, s, ids)
	if err != nil {
		return nil, err
	}
	marks := make([]stream.Mark, 0, len(at))
	for id, watermark := range at {
		marks = append(marks, stream.Mark{Part: stream.Partition{ID: id}, Watermark: watermark})
	}
	folded, err := Fold(marks, rows)
	if err != nil {
		return nil, err
	}
	found := make(map[string]stream.Mark, len(folded))
	for _, m := range folded {
		found[m.Part.ID] = m
	}
	return answers(parts, found), nil
}

// answers returns the result of Take. found has the progress of the partitions in the tables.
func answers(parts []stream.Taking, found map[string]stream.Mark) []stream.Taken {
	taken := make([]stream.Taken, len(parts))
	for i := range parts {
		p, t := &parts[i], &taken[i]
		if t.Mark, t.Found = found[p.Part.ID]; !t.Found {
			if p.MustExist {
				continue
			}
			t.Mark = p.Start
			t.Mark.Above = slices.Clone(p.Start.Above)
		}
		t.Mark.Part = p.Part
	}
	return taken
}

// storeTaken stores the start of partitions that the tables lack: their watermark and the settled
// ranges above it. It compacts the rows of the partitions that the tables have.
func (l *Ledger) storeTaken(ctx context.Context, s Session, parts []stream.Taking,
	taken []stream.Taken) error {
	var marks []stream.Mark
	var above []stream.Span
	for i := range parts {
		if !taken[i].Found && parts[i].MustExist {
			continue
		}
		marks = append(marks, taken[i].Mark)
		if !taken[i].Found {
			for _, r := range taken[i].Mark.Above {
				above = append(above, stream.Span{Part: &parts[i].Part, Range: r})
			}
		}
	}
	if err := l.fold(ctx, s, marks); err != nil {
		return err
	}
	return insertRows(ctx, l, s, above)
}

// compactOwned folds the marks of the partitions that this process owns. It ignores the marks of
// other partitions, which the owners of these partitions fold.
func (l *Ledger) compactOwned(ctx context.Context, s Session, marks []stream.Mark) error {
	for some := range slices.Chunk(marks, maxParts) {
		var owned []ownership
		var own []stream.Mark
		for _, m := range some {
			if o, ok := confirmed(l, m.Assignment, m.Part.ID); ok {
				owned, own = append(owned, o), append(own, m)
			}
		}
		if len(owned) == 0 {
			continue
		}
		statements, seen := l.shareEpochs(owned)
		if err := s.Begin(ctx, statements...); err != nil {
			return err
		}
		kept := own[:0]
		for i, m := range own {
			if seen[m.Part.ID] == owned[i].epoch {
				kept = append(kept, m)
			}
		}
		if err := l.fold(ctx, s, kept); err != nil {
			return err
		}
		if err := s.Commit(ctx); err != nil {
			return err
		}
	}
	return nil
}
