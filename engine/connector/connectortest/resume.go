package connectortest

import (
	"context"
	"errors"
	"io"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/penstock-io/penstock/stream"
)

// tooLate bounds the time between the end of a context and the return of Read or Deliver.
const tooLate = 5 * time.Second

// sourceResumes reads all data once to count the batches. Then it starts one process for each
// number n of batches. This process starts from marks (the stored progress of the partitions) in
// which the first n batches are settled, and must read exactly the remaining data.
func sourceResumes(t *testing.T, c SourceCase) {
	full := readAll(t, c, newSettled())
	for cut := range len(full) + 1 {
		marks := newSettled()
		marks.settleAll(full[:cut]...)
		got, want := flatten(readAll(t, c, marks)), flatten(full[cut:])
		if !slices.Equal(byID(got), byID(want)) {
			t.Fatalf("after %d of %d batches: read %d records, want %d: %s", cut, len(full),
				len(got), len(want), difference(got, want))
		}
	}
}

// sourceResumesWithHoles starts processes from marks (the stored progress of the partitions) with
// gaps: a random part of the batches is settled, as by workers of different speed. Each process
// must read exactly the batches that are not settled.
func sourceResumesWithHoles(t *testing.T, c SourceCase) {
	const rounds, seed = 20, 1
	full := readAll(t, c, newSettled())
	random := randomFrom(t, seed)
	for round := range rounds {
		marks := newSettled()
		var open []copied
		opened := random.IntN(len(full) + 1)
		for _, b := range full[:opened] {
			keep := random.IntN(2) == 0
			for _, s := range b.spans {
				marks.open(s)
				if keep {
					marks.settle(s)
				}
			}
			if !keep {
				open = append(open, b)
			}
		}
		open = append(open, full[opened:]...)
		got, want := flatten(readAll(t, c, marks)), flatten(open)
		if !slices.Equal(byID(got), byID(want)) {
			t.Fatalf("round %d: read %d records, want %d: %s", round, len(got), len(want),
				difference(got, want))
		}
	}
}

// byID sorts records by id. This is necessary because a source may read partitions in any order
// after a restart.
func byID(all []heard) []heard {
	all = slices.Clone(all)
	slices.SortFunc(all, func(a, b heard) int { return strings.Compare(a.id, b.id) })
	return all
}

// difference describes the first missing or additional record.
func difference(got, want []heard) string {
	count := make(map[heard]int)
	for _, h := range want {
		count[h]++
	}
	for _, h := range got {
		if count[h]--; count[h] < 0 {
			return "not wanted: " + h.id + " " + h.text
		}
	}
	for _, h := range want {
		if count[h] > 0 {
			return "missing: " + h.id + " " + h.text
		}
	}
	return "no difference"
}

func sourceAllSettled(t *testing.T, c SourceCase) {
	marks := newSettled()
	marks.settleAll(readAll(t, c, newSettled())...)
	for _, b := range readAll(t, c, marks) {
		if len(b.records) > 0 {
			t.Errorf("read %d records though all was settled, the first %s", len(b.records),
				b.records[0].id)
		}
	}
}

// sourceEndsWithContext reads without Once until there are no more records. Then it ends the
// context of a Read that waits. Finally it calls Read with a context that has already ended. Both
// calls of Read must return soon, with the cause of the context.
func sourceEndsWithContext(t *testing.T, c SourceCase) {
	p := begin(t, c, newSettled())
	r := p.open(false)
	want := 0
	for _, part := range c.Want {
		want += len(part)
	}
	for got := 0; got < want; {
		b, _, err := p.next(r)
		if err != nil {
			t.Fatalf("Read: %v after %d of %d records, though Once was not set", err, got, want)
		}
		got += len(b.records)
	}
	enough := errors.New("enough")
	for _, wait := range []time.Duration{100 * time.Millisecond, 0} {
		ctx, cancel := context.WithCancelCause(t.Context())
		timer := time.AfterFunc(wait, func() { cancel(enough) })
		began := time.Now()
		if wait == 0 {
			cancel(enough)
		}
		for { // spans without bytes may come first: they only seal a partition
			b := p.pool.Get(c.Limits)
			err := r.Read(ctx, b)
			sealing := err == nil && len(b.Data) == 0 && len(b.Spans) > 0
			b.Release()
			if sealing && time.Since(began) < tooLate {
				continue
			}
			if !errors.Is(err, enough) {
				t.Errorf("Read with a context that ended: %v, want its cause", err)
			}
			break
		}
		if took := time.Since(began); took > wait+tooLate {
			t.Errorf("Read returned %v after its context had ended", took-wait)
		}
		timer.Stop()
		cancel(enough)
	}
	p.end(r)
}

// sourceFinishes reads and settles all data, with a Commit after each batch. It calls Finish
// twice for each finished partition. Then it starts a new process, which must read no record.
func sourceFinishes(t *testing.T, c SourceCase) {
	p := begin(t, c, newSettled())
	r := p.open(true)
	marks := newSettled()
	p.drain(r, func(b copied) {
		marks.settleAll(b)
		if err := r.Commit(t.Context(), marks.marks()); err != nil {
			t.Errorf("Commit: %v", err)
		}
	})
	if err := r.Read(t.Context(), p.pool.Get(c.Limits)); err != io.EOF {
		t.Errorf("Read after io.EOF: %v, want io.EOF again", err)
	}
	finisher, _ := p.source.(stream.Finisher)
	if finisher != nil && !finisher.Finishes() {
		finisher = nil
	}
	for range 2 {
		for _, m := range marks.marks() {
			if finisher == nil || !m.Finished {
				continue
			}
			if err := finisher.Finish(t.Context(), m.Part); err != nil {
				t.Errorf("Finish %s: %v", m.Part.ID, err)
			}
		}
	}
	if err := r.Close(); err != nil {
		t.Errorf("Close: %v", err)
	}
	if err := r.Close(); err != nil {
		t.Errorf("second Close: %v", err)
	}
	p.end(r)
	for _, b := range readAll(t, c, marks) {
		if len(b.records) > 0 {
			t.Errorf("read %d records after all was settled and finished, the first %s",
				len(b.records), b.records[0].id)
		}
	}
}
