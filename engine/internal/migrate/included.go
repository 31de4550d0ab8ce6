package migrate

import (
	"os"
	"path/filepath"
	"strings"
)

// NoteIncluded adds a note about a setting that includes other files. These are given by a glob,
// which may be relative to a folder. They are not converted, so the result is not runnable. The
// exception is a glob in an existing folder that matches no file. remedy tells how to convert them.
func (b *Builder) NoteIncluded(v *Value, folder, glob, remedy string) {
	full := glob
	if !filepath.IsAbs(glob) {
		full = filepath.Join(folder, glob)
	}
	_, missing := os.Stat(filepath.Dir(full))
	found, err := filepath.Glob(full)
	if strings.ContainsAny(glob, "*?[") && missing == nil && err == nil && len(found) == 0 {
		b.Note(v, Unneeded, "no file matches %s", full)
		return
	}
	b.NoteLostInput(v, "the files %s are not read: %s", glob, remedy)
}
