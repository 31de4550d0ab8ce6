package follow

import (
	"cmp"
	"strings"
)

// byLabel orders files, and those of one label by what they are: what one file turns out to be may decide what another one
// is, so wherever that is found out for several, they come in an order that depends on them alone.
func byLabel(a, b *file) int {
	return cmp.Or(strings.Compare(a.label, b.label), strings.Compare(a.id(), b.id()), cmp.Compare(a.info.Ino, b.info.Ino),
		cmp.Compare(a.info.Dev, b.info.Dev))
}

func (f *file) id() string {
	if f.entry == nil {
		return ""
	}
	return f.entry.text
}
