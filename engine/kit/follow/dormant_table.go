package follow

import (
	"hash/fnv"

	"github.com/penstock-io/penstock/fileid"
)

// dormantFile is the compact record of a dormant file: it was delivered completely and has not
// changed since.
type dormantFile struct {
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

// chunk is the number of records that are allocated at once.
const chunk = 4096

// dormantTable holds the dormant files. A spool directory with finished: keep, or a folder of
// inactive logs, may have a hundred thousand dormant files, so they are stored without an
// allocation for each.
type dormantTable struct {
	chunks [][]dormantFile
	free   []int32
	byKey  map[fileid.Key]int32
	stems  map[uint32]int32 // first index by the hash of the stem; nil: not needed
}

func newDormantTable(stems bool) dormantTable {
	t := dormantTable{byKey: make(map[fileid.Key]int32)}
	if stems {
		t.stems = make(map[uint32]int32)
	}
	return t
}

func (t *dormantTable) at(i int32) *dormantFile { return &t.chunks[i/chunk][i%chunk] }

func (t *dormantTable) get(key fileid.Key) *dormantFile {
	if i, ok := t.byKey[key]; ok {
		return t.at(i)
	}
	return nil
}

func (t *dormantTable) len() int { return len(t.byKey) }

// put adds d. No other record may have its key.
func (t *dormantTable) put(d dormantFile) {
	if len(t.free) == 0 {
		first := int32(len(t.chunks) * chunk)
		t.chunks = append(t.chunks, make([]dormantFile, chunk))
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
func (t *dormantTable) remove(key fileid.Key) {
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
	*d = dormantFile{}
	delete(t.byKey, key)
	t.free = append(t.free, i)
}

// each calls found with every dormant file until found returns false. found may remove the file
// that it gets.
func (t *dormantTable) each(found func(*dormantFile) bool) {
	for _, list := range t.chunks {
		for i := range list {
			if list[i].used && !found(&list[i]) {
				return
			}
		}
	}
}

// ofStem appends to dst the records of files with a stem (the parameter name), such as app for
// app.log. The parameter most limits their number.
func (t *dormantTable) ofStem(dst []dormantFile, name string, most int) []dormantFile {
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
