//penstock:pure

package pipeline

import "github.com/penstock-io/penstock/stream"

// maxDeaths is the number of processors that a batch may kill before it is suspected, and that an
// origin alone may kill before it is dead-lettered.
const maxDeaths = 3

// trial records how many processors a batch has killed. At first the next processor gets the whole
// batch again. After maxDeaths deaths the batch is a suspect, and is processed range by range. This
// goes from back to front, so that added records do not move the remaining ranges. A range that
// kills is halved until it is a single origin. After maxDeaths deaths on that origin alone, the
// origin is dead-lettered.
type trial struct {
	deaths  int           // of processors that had the whole batch
	suspect bool          // todo holds the ranges that are left to process
	todo    []recordRange // ranges to process, the last one first
	late    int           // deaths after all ranges were processed
}

// recordRange holds the records from to to-1 of a batch.
type recordRange struct{ from, to, deaths int }

// next returns the next range to process, or false if none is left.
func (t *trial) next() (recordRange, bool) {
	if len(t.todo) == 0 {
		return recordRange{}, false
	}
	return t.todo[len(t.todo)-1], true
}

// pop removes the range that next returned last.
func (t *trial) pop() { t.todo = t.todo[:len(t.todo)-1] }

// died records the death of a processor that was processing b. The caller has restored b.
// deadLetter means that the records of next must be dead-lettered, because they alone have killed
// maxDeaths processors. giveUp means that the batch kills processors even when only its end is left
// to process.
func (t *trial) died(b *stream.Batch) (deadLetter, giveUp bool) {
	if !t.suspect {
		if t.deaths++; t.deaths < maxDeaths {
			return false, false
		}
		b.Split()
		t.suspect, t.todo = true, append(t.todo, recordRange{to: len(b.Records)})
	}
	last := len(t.todo) - 1
	if last < 0 {
		t.late++
		return false, t.late >= maxDeaths
	}
	s := &t.todo[last]
	if m := middleOf(b, *s); m > 0 {
		behind := recordRange{from: m, to: s.to}
		*s = recordRange{from: s.from, to: m}
		t.todo = append(t.todo, behind)
		return false, false
	}
	s.deaths++
	return s.deaths >= maxDeaths, false
}

// middleOf returns the index at which s is split, which is between two origins. It returns 0 if s
// is a single origin.
func middleOf(b *stream.Batch, s recordRange) int {
	half := (s.from + s.to) / 2
	for m := half; m < s.to; m++ {
		if m > s.from && !stream.SameOrigin(b.Records, m-1, m) {
			return m
		}
	}
	for m := half; m > s.from; m-- {
		if !stream.SameOrigin(b.Records, m-1, m) {
			return m
		}
	}
	return 0
}
