//penstock:pure

package spooldir

import (
	"path"
	"strconv"
	"strings"

	"github.com/penstock-io/penstock/engine/kit/follow"
)

// lockName is the name of the lock file in the directory that is read. Only one process may read a
// directory.
const lockName = ".penstock.lock"

// names has the patterns that determine which files to read, and the suffix of finished files.
type names struct {
	include, exclude []string
	suffix           string
}

// wanted reports whether the file with this path, relative to the directory, should be read.
func (n names) wanted(name string) bool {
	base := path.Base(name)
	return !hidden(base) && !n.done(base) && follow.MatchesGlob(n.include, name) &&
		!follow.MatchesGlob(n.exclude, name)
}

// hidden reports whether a file is ignored because its name begins with a dot. Examples are the
// lock file and temporary files of rsync and editors.
func hidden(base string) bool { return strings.HasPrefix(base, ".") }

// done reports whether base is the name of a finished file. Such a name ends with the suffix, or
// with the suffix, a dot and a number.
func (n names) done(base string) bool {
	if n.suffix == "" {
		return false
	}
	if strings.HasSuffix(base, n.suffix) {
		return true
	}
	i := strings.LastIndexByte(base, '.')
	if i <= 0 || !strings.HasSuffix(base[:i], n.suffix) {
		return false
	}
	_, err := strconv.ParseUint(base[i+1:], 10, 32)
	return err == nil
}

// numbered returns the name to try after n names were taken. It is name for 0, name.1 for 1, and
// name.2 for 2.
func numbered(name string, n int) string {
	if n == 0 {
		return name
	}
	return name + "." + strconv.Itoa(n)
}
