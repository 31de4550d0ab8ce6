package vfs

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
)

// holderMax is how many bytes of the holder's text are shown.
const holderMax = 256

func (d *osDir) Lock(name, text string) (io.Closer, error) {
	dir, last, done, err := d.parent("lock", name)
	if err != nil {
		return nil, err
	}
	defer done()
	f, err := dir.openLast(name, last, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, fmt.Errorf("lock %q: %w", filepath.Join(d.path, name), err)
	}
	if err := takeLock(f); err != nil {
		if errors.Is(err, ErrLocked) {
			err = fmt.Errorf("held by %s: %w", holder(f), err)
		}
		return nil, errors.Join(fmt.Errorf("lock %q: %w", filepath.Join(d.path, name), err), f.Close())
	}
	err = f.Truncate(0)
	if err == nil {
		_, err = f.WriteAt([]byte(text), 0)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("lock %q: write who we are: %w", filepath.Join(d.path, name), bare(err)), f.Close())
	}
	return f, nil
}

// holder reads what the holder wrote about itself, quoted, because the file is anybody's.
func holder(f *os.File) string {
	text := make([]byte, holderMax)
	n, err := f.ReadAt(text, 0)
	who := strings.TrimSpace(string(text[:n]))
	if who == "" || err != nil && !errors.Is(err, io.EOF) {
		return "a process that did not say who it is"
	}
	return fmt.Sprintf("%q", who)
}
