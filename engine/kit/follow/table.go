//penstock:pure

package follow

import (
	"maps"
	"slices"
	"time"

	"github.com/penstock-io/penstock/fileid"
)

// table matches listings with the known files. The calls for one listing are [table.begin],
// [table.see] for each listed file, [table.resolve] for those that see did not recognise, and
// [table.unlisted]. A table decides by labels and stats alone, touches no file, and reads no clock.
type table struct {
	byLabel   map[string]*file     // files of the last listing
	byKey     map[fileid.Key]*file // the same, and files that are read without a listed name
	largest   int                  // size of byKey before its last compaction
	scans     uint32               // listings, including those that failed
	displaced []*file              // in this listing: their labels were given to other files
}

// change is a listing's result for a name that is new or leads to another file than before.
type change uint8

const (
	isNew change = iota
	isRenamed
	isHardLink
)

func newTable() table {
	return table{byLabel: make(map[string]*file), byKey: make(map[fileid.Key]*file)}
}

// compactAbove is the size from which a map is large enough to be worth a compaction.
const compactAbove = 4096

// compact rebuilds the maps after most of the files were removed. A Go map keeps the memory that it
// had when it was largest.
func (t *table) compact() {
	t.largest = max(t.largest, len(t.byKey))
	if t.largest > compactAbove && len(t.byKey) < t.largest/4 {
		t.byLabel, t.byKey, t.largest = rebuilt(t.byLabel), rebuilt(t.byKey), len(t.byKey)
	}
}

// rebuilt returns a copy of m. Unlike maps.Clone, it allocates only as much as the entries need.
func rebuilt[K comparable](m map[K]*file) map[K]*file {
	out := make(map[K]*file, len(m))
	maps.Copy(out, m)
	return out
}

// begin prepares the table for the files of the next listing.
func (t *table) begin() {
	t.scans++
	t.displaced = nil
}

// see records a listed file and reports whether it still has the same label.
func (t *table) see(label string, info stat, now time.Duration) bool {
	f := t.byLabel[label]
	if f == nil || !sameFile(f.info, info) {
		return false
	}
	f.scan = t.scans
	f.update(info, now)
	return true
}

// resolve processes a label that is new or leads to another file now. It is called after see was
// called for every listed file. So if the label leads to a known file that see has not found under
// its old label, the file was renamed. resolve returns the file of the label; for a hard link, this
// is the file that is read.
func (t *table) resolve(s Listed, info stat, now time.Duration) (change, *file) {
	key := keyOf(info)
	f := t.byKey[key]
	if f != nil && sameFile(f.info, info) {
		if f.scan == t.scans {
			return isHardLink, f
		}
		t.unlabel(f)
		t.displace(s.Label)
		t.byLabel[s.Label], f.scan = f, t.scans
		return isRenamed, f
	}
	t.displace(s.Label)
	created := newFile(s, info, now, t.scans)
	created.foundEmpty = info.Size == 0
	t.byLabel[s.Label] = created
	if f != nil { // its inode was used again before its name was seen to be gone
		t.remove(f)
		t.displaced = append(t.displaced, f)
	}
	t.byKey[key] = created
	return isNew, created
}

// displace makes room for another file under a label.
func (t *table) displace(label string) {
	if old := t.byLabel[label]; old != nil {
		delete(t.byLabel, label)
		t.displaced = append(t.displaced, old)
	}
}

// unlisted returns the files that the listing does not have, and removes them from byLabel.
func (t *table) unlisted() []*file {
	var list []*file
	for _, f := range t.displaced {
		if f.scan != t.scans && !slices.Contains(list, f) { // else it has another label
			list = append(list, f)
		}
	}
	for label, f := range t.byLabel {
		if f.scan != t.scans {
			delete(t.byLabel, label)
			list = append(list, f)
		}
	}
	slices.SortFunc(list, byLabel)
	return list
}

func (t *table) has(f *file) bool { return t.byKey[keyOf(f.info)] == f }

// add adds an unlisted file.
func (t *table) add(f *file) { t.byKey[keyOf(f.info)] = f }

func (t *table) unlabel(f *file) {
	if t.byLabel[f.label] == f {
		delete(t.byLabel, f.label)
	}
}

// remove removes f by label and inode.
func (t *table) remove(f *file) {
	t.unlabel(f)
	if t.has(f) {
		delete(t.byKey, keyOf(f.info))
	}
}
