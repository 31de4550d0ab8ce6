//penstock:pure

package pipeline

import "github.com/penstock-io/penstock/stream"

// maxDeaths is the number of processors that a batch may kill before trial searches for the record
// that kills them. It is also the number of processors that a single source record may kill before
// it is dead-lettered.
const maxDeaths = 3

// trial finds the source record (origin) of a batch that kills processors. First, the whole batch
// is processed again. After maxDeaths deaths, its records are split into two ranges, which are
// processed one by one. Each range that kills a processor is split again, until it has a single
// origin. After maxDeaths deaths of this origin alone, the origin is dead-lettered.
//
// Example: record 5 of the records 0 to 7 kills processors. After 3 deaths of the whole batch, the
// ranges 4-7 (dies), 6-7 (succeeds), 4-5 (dies) and 5 (dies) are processed. After 3 deaths, 5
// becomes a dead letter. Then 4 and 0-3 are processed.
//
// Of two ranges, the one with the higher indexes is processed first. If its processor adds records,
// they move only records behind them, not the remaining range.
type trial struct {
	deaths  int           // of processors that processed the whole batch
	suspect bool          // the batch is processed in ranges
	todo    []recordRange // ranges to process; the end of the slice comes first
	late    int           // deaths after all ranges of todo were processed
}

// recordRange has the records of a batch with from <= index < to.
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

// died is called after a processor has died while it processed b. The caller has restored b to its
// state before that. There are three results:
//
//   - deadLetter: a range with a single origin has killed maxDeaths processors. Its records must be
//     dead-lettered. The method next returns this range.
//   - giveUp: the batch must fail, because processors still die of it after all ranges were
//     processed.
//   - Both are false: another processor processes the batch again.
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

// middleOf returns the index at which s is split into two ranges. Records that come from the same
// source record (origin) stay together. It returns 0 if s has only one origin.
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
