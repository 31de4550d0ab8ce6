package file

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/penstock-io/penstock/vfs"
)

// place is the identity of a file, and an offset in the file. Its text form, the resume token, has
// four decimal numbers: "1 INODE BIRTH LENGTH". The 1 is the version of the form. BIRTH is in
// nanoseconds since 1970, or 0 if the system does not report it. The device is not part of the
// form, because its number may change with a reboot.
type place struct {
	inode  uint64
	birth  int64
	length int64
}

func placeOf(info vfs.Info) place {
	return place{inode: info.Ino, birth: birthOf(info.Birth), length: info.Size}
}

func birthOf(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return t.UnixNano()
}

// sameFile reports whether p and q are places in the same file.
func (p place) sameFile(q place) bool {
	return p.inode == q.inode && (p.birth == q.birth || p.birth == 0 || q.birth == 0)
}

// at returns p with another length.
func (p place) at(length int64) place {
	p.length = length
	return p
}

func (p place) String() string {
	b := make([]byte, 0, 64)
	b = append(b, "1 "...)
	b = append(strconv.AppendUint(b, p.inode, 10), ' ')
	b = append(strconv.AppendInt(b, p.birth, 10), ' ')
	return string(strconv.AppendInt(b, p.length, 10))
}

func parsePlace(s string) (place, error) {
	bad := fmt.Errorf("its checkpoint has the resume token %q, which this version cannot read", s)
	parts := strings.Split(s, " ")
	if len(parts) != 4 || parts[0] != "1" {
		return place{}, bad
	}
	inode, err1 := strconv.ParseUint(parts[1], 10, 64)
	birth, err2 := strconv.ParseInt(parts[2], 10, 64)
	length, err3 := strconv.ParseInt(parts[3], 10, 64)
	if err1 != nil || err2 != nil || err3 != nil || length < 0 {
		return place{}, bad
	}
	return place{inode: inode, birth: birth, length: length}, nil
}
