package follow

import (
	"cmp"
	"strings"
)

// byLabel orders files by label, and files of one label by their identity. The identification of
// one file may affect that of another, so wherever several are identified, the order must depend on
// the files alone.
func byLabel(a, b *file) int {
	return cmp.Or(strings.Compare(a.label, b.label), strings.Compare(a.id(), b.id()),
		cmp.Compare(a.info.Ino, b.info.Ino),
		cmp.Compare(a.info.Dev, b.info.Dev))
}

// byNeed orders files that a route has still to read before the others.
func byNeed(a, b *file) int {
	switch {
	case isNeeded(a) == isNeeded(b):
		return 0
	case isNeeded(a):
		return -1
	}
	return 1
}

func (f *file) id() string {
	if f.entry == nil {
		return ""
	}
	return f.entry.text
}
