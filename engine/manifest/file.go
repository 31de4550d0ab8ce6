package manifest

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"time"
)

// Version is the version of the format. See docs/formats/manifest.md.
const Version = 1

// Manifest is the content of a manifest file. The names of its JSON fields are stable.
type Manifest struct {
	Version int `json:"version"`
	// OK reports whether all available data was delivered, parked, dead-lettered or dropped.
	OK      bool      `json:"ok"`
	Error   string    `json:"error,omitempty"`
	Config  string    `json:"config"`
	Program string    `json:"program"`
	Begun   time.Time `json:"begun"`
	Ended   time.Time `json:"ended"`
	Routes  []Account `json:"routes"`
}

// Account has the counts of one route in this run, in source records and source bytes.
type Account struct {
	Pipeline    string      `json:"pipeline"`
	Route       string      `json:"route"`
	ReadRecords int64       `json:"read_records"`
	ReadBytes   int64       `json:"read_bytes"`
	Delivered   int64       `json:"delivered"`
	Dead        int64       `json:"dead"`
	Dropped     int64       `json:"dropped"`
	Parked      int64       `json:"parked"` // records in the store of the sink, not delivered yet
	Partitions  []Partition `json:"partitions"`
}

// Partition is one partition of a source, such as a file or table.
type Partition struct {
	Name      string  `json:"name"`
	ID        string  `json:"partition"`
	From      string  `json:"from"` // position at which this run began to read
	To        string  `json:"to"`   // position up to which this run has read
	Ranges    []Range `json:"ranges"`
	Records   int64   `json:"records"`
	Bytes     int64   `json:"bytes"`
	Delivered int64   `json:"delivered"`
	Dead      int64   `json:"dead"`
	Dropped   int64   `json:"dropped"`
	SHA256    string  `json:"sha256,omitempty"` // hash of the bytes of the ranges, in order
}

// Range is a range of positions that this run has read. It begins after From and includes To.
type Range struct {
	From string `json:"from"`
	To   string `json:"to"`
}

// File is a manifest file that is not complete yet. Create it before the run, so that a wrong path
// fails early. After the run, Write moves it to its path atomically.
type File struct {
	path string
	part *os.File
}

// Create creates the file path + ".part". It returns an error if Write would replace a file that is
// not a manifest, such as the config.
func Create(path string) (*File, error) {
	if err := checkReplaced(path); err != nil {
		return nil, fmt.Errorf("manifest %s: %w; give another path", path, err)
	}
	f, err := os.OpenFile(path+".part", os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return nil, fmt.Errorf("manifest: %w", err)
	}
	return &File{path, f}, nil
}

// beginning is the beginning of each manifest.
const beginning = "{\n  \"version\": "

// checkReplaced returns an error unless the file at path is missing, empty or a manifest.
func checkReplaced(path string) error {
	info, err := os.Stat(path)
	if errors.Is(err, fs.ErrNotExist) || err == nil && info.Mode().IsRegular() && info.Size() == 0 {
		return nil
	} else if err != nil {
		return err
	}
	if !info.Mode().IsRegular() {
		return errors.New("it is not a regular file")
	}
	file, err := os.Open(path)
	if err != nil {
		return err
	}
	defer file.Close()
	begin := make([]byte, len(beginning))
	if _, err := io.ReadFull(file, begin); err != nil || string(begin) != beginning {
		return errors.New("it is another file, and not a manifest that may be replaced")
	}
	return nil
}

// Write writes m to the file, closes it and moves it to its path, where it replaces an older
// manifest. After a nil result, the new manifest survives a power loss. Write returns an error if it
// would replace another file. The manifest then stays in the file path + ".part".
func (f *File) Write(m *Manifest) error {
	enc := json.NewEncoder(f.part)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	err := enc.Encode(m)
	if err == nil {
		err = f.part.Sync()
	}
	if err = errors.Join(err, f.part.Close()); err == nil {
		if err = checkReplaced(f.path); err != nil { // the run may have created this file
			return fmt.Errorf("manifest %s: %w; the manifest is kept as %s", f.path, err,
				f.part.Name())
		}
		err = os.Rename(f.part.Name(), f.path)
	}
	if err != nil {
		return fmt.Errorf("manifest: %w", err)
	}
	dir, err := os.Open(filepath.Dir(f.path))
	if err != nil {
		return fmt.Errorf("manifest: %w", err)
	}
	return errors.Join(dir.Sync(), dir.Close())
}
