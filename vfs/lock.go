package vfs

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
)

// holderMax is the number of bytes of the holder's text that an error shows.
const holderMax = 256

func (d *osDir) Lock(name, text string) (io.Closer, error) {
	path := filepath.Join(d.path, name)
	f, err := d.openFile(name, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, fmt.Errorf("lock %q: %w", path, err)
	}
	return LockFile(f, path, text, func() error { return takeLock(f.File) })
}

// LockFile implements [Dir].Lock for other packages. It takes over f, which was just opened for
// reading and writing. It calls take, which must lock f without blocking, and return ErrLocked if
// another holder has the lock. Then LockFile replaces the file's content with text, which
// identifies the holder. Closing the result releases the lock. path is for error messages only.
func LockFile(f File, path, text string, take func() error) (io.Closer, error) {
	if err := take(); err != nil {
		if errors.Is(err, ErrLocked) {
			err = fmt.Errorf("held by %s: %w", holder(f), err)
		}
		return nil, errors.Join(fmt.Errorf("lock %q: %w", path, err), f.Close())
	}
	err := f.Truncate(0)
	if err == nil {
		err = write(f, []byte(text))
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("lock %q: write the holder's name: %w", path, bare(err)),
			f.Close())
	}
	return f, nil
}

// holder returns the text that the lock's holder wrote, quoted because anyone may have written it.
func holder(f File) string {
	text := make([]byte, holderMax)
	n, err := f.ReadAt(text, 0)
	who := strings.TrimSpace(string(text[:n]))
	if who == "" || err != nil && !errors.Is(err, io.EOF) {
		return "an unnamed process"
	}
	return fmt.Sprintf("%q", who)
}
