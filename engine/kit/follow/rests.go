package follow

import (
	"hash/fnv"

	"github.com/penstock-io/penstock/fileid"
)

// rest is the compact record of a resting file: it was delivered completely and has not changed
// since.
type rest struct {
	text       string // its id
	label      string // growing: as last seen
	dir        Dir    // growing: opens it
	name       int    // bytes at the end of label that are its name beneath dir
	key        fileid.Key
	size       int64
	modTime    stamp
	birth      stamp
	scan       uint32 // the last listing in which it was seen
	next, prev int32  // neighbours with the same stem hash, as indexes + 1; 0: none
	used       bool
}

// chunk is how many rests are allocated at once.
const chunk = 4096

// rests are the resting files. A spool directory with finished: keep, or a folder of inactive logs,
// may have a hundred thousand of them, so they are stored without an allocation for each.
type rests struct {
	chunks [][]rest
	free   []int32
	byKey  map[fileid.Key]int32
	stems  map[uint32]int32 // first index by the hash of the stem; nil: not needed
}

func newRests(stems bool) rests {
	t := rests{byKey: make(map[fileid.Key]int32)}
	if stems {
		t.stems = make(map[uint32]int32)
	}
	return t
}

func (t *rests) at(i int32) *rest { return &t.chunks[i/chunk][i%chunk] }

func (t *rests) get(key fileid.Key) *rest {
	if i, ok := t.byKey[key]; ok {
		return t.at(i)
	}
	return nil
}

func (t *rests) len() int { return len(t.byKey) }

// put adds d. No other rest may have its key.
func (t *rests) put(d rest) {
	if len(t.free) == 0 {
		first := int32(len(t.chunks) * chunk)
		t.chunks = append(t.chunks, make([]rest, chunk))
		for i := int32(chunk - 1); i >= 0; i-- {
			t.free = append(t.free, first+i)
		}
	}
	i := t.free[len(t.free)-1]
	t.free = t.free[:len(t.free)-1]
	d.used, d.next, d.prev = true, 0, 0
	if t.stems != nil {
		h := hashOf(stem(d.label))
		if first, ok := t.stems[h]; ok {
			d.next = first + 1
			t.at(first).prev = i + 1
		}
		t.stems[h] = i
	}
	*t.at(i) = d
	t.byKey[d.key] = i
}

// remove removes the file at key.
func (t *rests) remove(key fileid.Key) {
	i, ok := t.byKey[key]
	if !ok {
		return
	}
	d := t.at(i)
	if t.stems != nil {
		if d.next > 0 {
			t.at(d.next - 1).prev = d.prev
		}
		if d.prev > 0 {
			t.at(d.prev - 1).next = d.next
		} else if h := hashOf(stem(d.label)); d.next > 0 {
			t.stems[h] = d.next - 1
		} else {
			delete(t.stems, h)
		}
	}
	*d = rest{}
	delete(t.byKey, key)
	t.free = append(t.free, i)
}

// each calls found with every rest until found returns false. found may remove its argument.
func (t *rests) each(found func(*rest) bool) {
	for _, list := range t.chunks {
		for i := range list {
			if list[i].used && !found(&list[i]) {
				return
			}
		}
	}
}

// ofStem appends the rests with stem name to dst, at most most of them.
func (t *rests) ofStem(dst []rest, name string, most int) []rest {
	i, ok := t.stems[hashOf(name)]
	if !ok {
		return dst
	}
	for i++; i > 0 && most > 0; {
		d := t.at(i - 1)
		if stem(d.label) == name {
			dst = append(dst, *d)
			most--
		}
		i = d.next
	}
	return dst
}

func hashOf(s string) uint32 {
	h := fnv.New32a()
	_, _ = h.Write([]byte(s)) // it never fails
	return h.Sum32()
}
