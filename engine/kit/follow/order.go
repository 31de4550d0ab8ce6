package follow

import (
	"cmp"
	"maps"
	"slices"
	"strings"
)

// What one file turns out to be may decide what another one is: a copy, a hard link, the file that
// was waited for. So wherever that is found out for several, they come in an order that depends on
// them alone, and what happens can be told from what was there.

// byLabel orders files, and those of one label by what they are.
func byLabel(a, b *file) int {
	return cmp.Or(strings.Compare(a.label, b.label), strings.Compare(a.partID(), b.partID()), cmp.Compare(a.info.Ino, b.info.Ino),
		cmp.Compare(a.info.Dev, b.info.Dev))
}

func (f *file) partID() string {
	if f.part == nil {
		return ""
	}
	return f.part.ID
}

// inOrder returns the files that are waited for.
func (t *rotated) inOrder() []*file { return slices.SortedFunc(maps.Values(t.widows), byLabel) }

// byID orders ids that a route has stored.
func byID(a, b knownID) int { return strings.Compare(a.text, b.text) }

// byGen orders the ids of an inode, the newest first.
func byGen(a, b knownID) int { return cmp.Or(cmp.Compare(b.id.Gen, a.id.Gen), byID(a, b)) }

// askable says whether to ask if a growing file is ready may change what is known of others.
func (r *Reader) askable(f *file) bool {
	return r.grow != nil && (f.orphan || f.entry == nil && f.info.Size > 0 && (r.marked || r.scans != r.first))
}

// unlisted takes the files that the last listing does not have off the list of names.
func (r *Reader) unlisted() []*file {
	var list []*file
	for label, f := range r.files {
		if f.scan != r.scans {
			delete(r.files, label)
			list = append(list, f)
		}
	}
	slices.SortFunc(list, byLabel)
	return list
}
