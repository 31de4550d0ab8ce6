//penstock:pure

package pipeline

import "github.com/penstock-io/penstock/stream"

// mayKill is how many processors a batch, or in the end an origin, may kill before it is suspected,
// or buried.
const mayKill = 3

// trial is what a batch has on its account at which processors have died. At first the next
// processor gets the whole batch again. After mayKill deaths it is a suspect: it is processed
// stretch by stretch, from the back to the front so that records that are added move nobody who is
// still to come, and a stretch that kills is cut in halves, until the origin is alone that does it.
// After mayKill deaths alone it is to be buried.
type trial struct {
	deaths  int       // of those that had the whole batch
	suspect bool      // from then on todo says what is left
	todo    []stretch // the last one is next, and lies behind the others
	late    int       // deaths when nothing was left to do but to finish the batch
}

// stretch is records from to to-1 of a batch.
type stretch struct{ from, to, deaths int }

// next is the stretch to be processed; false: all have been.
func (t *trial) next() (stretch, bool) {
	if len(t.todo) == 0 {
		return stretch{}, false
	}
	return t.todo[len(t.todo)-1], true
}

// pop takes the stretch off that next has given.
func (t *trial) pop() { t.todo = t.todo[:len(t.todo)-1] }

// died books the death of a processor that had b, which is again what it was before. bury: the
// records of next are to be buried, they alone have killed mayKill. hopeless: the batch kills who
// only finishes it.
func (t *trial) died(b *stream.Batch) (bury, hopeless bool) {
	if !t.suspect {
		if t.deaths++; t.deaths < mayKill {
			return false, false
		}
		b.Split()
		t.suspect, t.todo = true, append(t.todo, stretch{to: len(b.Records)})
	}
	last := len(t.todo) - 1
	if last < 0 {
		t.late++
		return false, t.late >= mayKill
	}
	s := &t.todo[last]
	if m := middleOf(b, *s); m > 0 {
		behind := stretch{from: m, to: s.to}
		*s = stretch{from: s.from, to: m}
		t.todo = append(t.todo, behind)
		return false, false
	}
	s.deaths++
	return s.deaths >= mayKill, false
}

// middleOf is where s may be cut, between two origins; 0: it is one origin.
func middleOf(b *stream.Batch, s stretch) int {
	half := (s.from + s.to) / 2
	for m := half; m < s.to; m++ {
		if m > s.from && !sameOrigin(b, m-1, m) {
			return m
		}
	}
	for m := half; m > s.from; m-- {
		if !sameOrigin(b, m-1, m) {
			return m
		}
	}
	return 0
}

func sameOrigin(b *stream.Batch, i, j int) bool {
	return b.Records[i].Span == b.Records[j].Span && b.Records[i].Origin == b.Records[j].Origin
}
