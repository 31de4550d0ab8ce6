// Package reread reads small JSON files, such as lists of keys, and reads them again when they
// change while the program runs.
package reread

import (
	"encoding/json"
	"fmt"
	"os"
	"sync"
)

// MaxBytes is the maximum size of a file.
const MaxBytes = 64 << 20

// File is a JSON file. It is safe for concurrent use, and must not be copied after its first use.
type File[T any] struct {
	Path string

	// Shape describes the required content in error messages. Example: "an object of lists of
	// texts". The errors of the JSON parser are not shown, because they may quote a secret.
	Shape string

	mu    sync.Mutex // guards the fields below
	seen  os.FileInfo
	value T
}

// Read returns the value of the file. If the file has changed, Read parses it again. If the file is
// now invalid or missing, Read returns the old value. It returns an error only if the file was
// never read successfully.
func (f *File[T]) Read() (T, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	info, err := os.Stat(f.Path)
	if err == nil && f.seen != nil && os.SameFile(info, f.seen) &&
		info.ModTime().Equal(f.seen.ModTime()) && info.Size() == f.seen.Size() {
		return f.value, nil
	}
	var value T
	if err == nil {
		value, err = f.parse(info.Size())
	}
	switch {
	case err == nil:
		f.value, f.seen = value, info
	case f.seen == nil:
		return f.value, err
	}
	return f.value, nil
}

func (f *File[T]) parse(size int64) (value T, err error) {
	if size > MaxBytes {
		return value, fmt.Errorf("%s is larger than %d bytes", f.Path, MaxBytes)
	}
	text, err := os.ReadFile(f.Path)
	if err != nil {
		return value, err
	}
	if json.Unmarshal(text, &value) != nil {
		return value, fmt.Errorf("%s is not %s in JSON", f.Path, f.Shape)
	}
	return value, nil
}
