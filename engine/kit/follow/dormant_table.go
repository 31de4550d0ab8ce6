package follow

import (
	"hash/maphash"
	"slices"
	"strings"

	"github.com/penstock-io/penstock/fileid"
)

// dormantFile is the compact record of a dormant file: it was delivered completely and has not
// changed since. A source may have a hundred thousand of them.
type dormantFile struct {
	text       string // its id
	label      string // growing: as last seen
	dir        Dir    // growing: opens it
	key        fileid.Key
	size       int64
	modTime    stamp
	birth      stamp
	nameLen    int32        // the last nameLen bytes of label are its name beneath dir
	scan       uint32       // the last listing in which it was seen
	next, prev *dormantFile // neighbours in the list of dormant files with the same stem hash
}

type dormantTable struct {
	byKey  map[fileid.Key]*dormantFile
	byStem map[uint64]*dormantFile // the first one with this stem hash; hashes need less memory
	seed   maphash.Seed
}

func newDormantTable() dormantTable {
	return dormantTable{
		byKey: make(map[fileid.Key]*dormantFile), byStem: make(map[uint64]*dormantFile),
		seed: maphash.MakeSeed(),
	}
}

func (t *dormantTable) hash(stem string) uint64 { return maphash.String(t.seed, stem) }

// put adds d. No other record may have its key.
func (t *dormantTable) put(d *dormantFile) {
	t.byKey[d.key] = d
	of := t.hash(stem(d.label))
	d.next = t.byStem[of]
	if d.next != nil {
		d.next.prev = d
	}
	t.byStem[of] = d
}

// remove removes d, unless it was removed before.
func (t *dormantTable) remove(d *dormantFile) {
	if t.byKey[d.key] != d {
		return
	}
	delete(t.byKey, d.key)
	switch of := t.hash(stem(d.label)); {
	case d.prev != nil:
		d.prev.next = d.next
	case d.next != nil:
		t.byStem[of] = d.next
	default:
		delete(t.byStem, of)
	}
	if d.next != nil {
		d.next.prev = d.prev
	}
}

// matching returns the records that meet a condition, ordered by id.
func (t *dormantTable) matching(is func(*dormantFile) bool) []*dormantFile {
	var out []*dormantFile
	for _, d := range t.byKey {
		if is(d) {
			out = append(out, d)
		}
	}
	slices.SortFunc(out, func(a, b *dormantFile) int { return strings.Compare(a.text, b.text) })
	return out
}
