package checkpoint

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/penstock-io/penstock/vfs"
)

// OldestFormat and Format are the oldest and the newest file format that [Convert] can write. Each
// version of the program reads all formats up to the newest that it knows.
const (
	OldestFormat = 2
	Format       = version
)

// CheckFormat returns an error if [Convert] cannot write the format.
func CheckFormat(format uint16) error {
	if format < OldestFormat || format > Format {
		return fmt.Errorf("this program writes the formats %d to %d, not %d", OldestFormat,
			Format, format)
	}
	return nil
}

// Convert rewrites the checkpoint in dir in the given format, so that an earlier version of the
// program can read it. It keeps a copy of the original log, and returns the name of the copy as
// aside. If the log is damaged, or the format cannot represent it, Convert returns an error and
// changes nothing. It returns fs.ErrNotExist if there is no checkpoint. The caller must hold the
// lock of the directory.
func Convert(dir vfs.Dir, format uint16) (aside string, err error) {
	if err := CheckFormat(format); err != nil {
		return "", err
	}
	s := &Store{dir: dir, version: format}
	f, err := dir.OpenFile(Name, os.O_RDWR|os.O_APPEND, fileMode)
	if err != nil {
		return "", fmt.Errorf("open checkpoint %s: %w", s.path(), err)
	}
	l, err := s.resume(f, version)
	if err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	if err := l.convertible(format); err != nil {
		return "", fmt.Errorf("checkpoint %s: %w", s.path(), err)
	}
	if aside, err = setAside(dir, f, fmt.Sprintf("v%d", l.version)); err != nil {
		return "", fmt.Errorf("keep a copy of checkpoint %s: %w", s.path(), err)
	}
	if err := s.replace(); err != nil {
		return "", err
	}
	return aside, s.failed
}

// convertible returns an error if the log is damaged, or if the format cannot represent its
// contents.
func (l *loaded) convertible(format uint16) error {
	if l.bad != nil && !l.torn {
		return fmt.Errorf("it is damaged at byte %d: %w: start this program once, which keeps a "+
			"copy and resumes from the entries before the damage", l.good, l.bad)
	}
	if format >= 3 {
		return nil
	}
	waiting := 0
	for _, r := range l.st.alive() {
		for _, p := range r.live() {
			if p.mark.Waiting {
				waiting++
			}
		}
	}
	if waiting > 0 {
		return fmt.Errorf("%d partitions have batches that wait for a retry, which format %d "+
			"cannot represent: run this program until `penstock status` shows no waiting batches",
			waiting, format)
	}
	return nil
}

// convertCommand returns the command that makes a log readable for this version of the program. The
// newer version that wrote the log must run the command.
func convertCommand(path string) string {
	return fmt.Sprintf("penstock checkpoint convert --format %d %s", Format, filepath.Dir(path))
}
