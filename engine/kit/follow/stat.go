package follow

import (
	"cmp"
	"strings"
	"time"

	"github.com/penstock-io/penstock/fileid"
	"github.com/penstock-io/penstock/vfs"
)

// stat is the catalogue's compact form of a vfs.Info. It has less than half the size, because a
// source may keep a hundred thousand of them.
type stat struct {
	Size           int64
	ModTime, Birth stamp
	Dev, Ino       uint64
	Links          uint64
}

// infoOf is the reverse of statOf, for a regular file without its name.
func infoOf(s stat) vfs.Info {
	return vfs.Info{Size: s.Size, ModTime: s.ModTime.time(), Birth: s.Birth.time(), Dev: s.Dev,
		Ino: s.Ino, Links: s.Links}
}

// stamp is a time in nanoseconds since 1970; 0: not known.
type stamp int64

func (s stamp) known() bool { return s != 0 }

// time returns s, the zero time if it is not known.
func (s stamp) time() time.Time {
	if !s.known() {
		return time.Time{}
	}
	return time.Unix(0, int64(s))
}

func statOf(i vfs.Info) stat {
	s := stat{Size: i.Size, Dev: i.Dev, Ino: i.Ino, Links: i.Links}
	if !i.ModTime.IsZero() {
		s.ModTime = stamp(i.ModTime.UnixNano())
	}
	if !i.Birth.IsZero() {
		s.Birth = stamp(i.Birth.UnixNano())
	}
	return s
}

func keyOf(i stat) fileid.Key { return fileid.Key{Dev: i.Dev, Ino: i.Ino} }

// sameFile reports whether two stats are of one file, as far as a stat can tell.
func sameFile(a, b stat) bool {
	return a.Dev == b.Dev && a.Ino == b.Ino && (a.Birth == b.Birth || !a.Birth.known() || !b.Birth.known())
}

// isOf reports whether a stat can be of the file with this id.
func isOf(id fileid.ID, i stat) bool {
	return keyOf(i) == id.Key() && (id.Birth == 0 || !i.Birth.known() || int64(i.Birth) == id.Birth)
}

// IsOf reports whether info can be of the file with this id.
func IsOf(id fileid.ID, info vfs.Info) bool { return isOf(id, statOf(info)) }

func compareTimes(a, b *file) int { return cmp.Compare(a.info.ModTime, b.info.ModTime) }

// byLabel orders files by label, and files of one label by their identity. The order depends on the
// files alone. It is used where several files are identified, because the identification of one may
// affect that of another.
func byLabel(a, b *file) int {
	return cmp.Or(strings.Compare(a.label, b.label), strings.Compare(a.id(), b.id()),
		cmp.Compare(a.info.Ino, b.info.Ino),
		cmp.Compare(a.info.Dev, b.info.Dev))
}

func (f *file) id() string {
	if f.entry == nil {
		return ""
	}
	return f.entry.text
}
