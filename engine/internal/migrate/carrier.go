package migrate

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/penstock-io/penstock/fileid"
	"github.com/penstock-io/penstock/stream"
	"github.com/penstock-io/penstock/vfs"
)

// MaxStored is the maximum size of a file with stored positions, in bytes.
const MaxStored = 64 << 20

// Carrier converts the read positions that the other program has stored into the first checkpoint
// of the new config.
type Carrier struct {
	Carried
	Files   vfs.FS
	Base    string // directory of relative paths
	Program string // program that stored the positions, such as "Flume"
	Prefix  string // prefix of the keys of notes
	UTF16   bool   // files are UTF-16, so each line end has two bytes
}

// Note adds a note about a file or setting.
func (c *Carrier) Note(key string, k Kind, format string, args ...any) {
	c.Notes = append(c.Notes, Note{Key: c.Prefix + key, Kind: k,
		Text: fmt.Sprintf(format, args...)})
}

// Path returns an absolute, clean path.
func (c *Carrier) Path(name string) string {
	if rest, ok := strings.CutPrefix(name, "~/"); ok {
		if home, err := os.UserHomeDir(); err == nil {
			name = filepath.Join(home, rest)
		}
	}
	if !filepath.IsAbs(name) {
		name = filepath.Join(c.Base, name)
	}
	return filepath.Clean(name)
}

// Read returns the contents of a file with stored positions, or nil if it does not exist.
func (c *Carrier) Read(name string) ([]byte, error) {
	dir, f, err := c.open(name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	} else if err != nil {
		return nil, err
	}
	defer dir.Close()
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, MaxStored+1))
	if err == nil && len(text) > MaxStored {
		err = fmt.Errorf("%s is larger than %d bytes: %s did not write it", name, MaxStored,
			c.Program)
	}
	return text, err
}

// Unusable returns the error for a damaged file of stored positions. It contains a remedy.
func (c *Carrier) Unusable(name string, err error) error {
	return fmt.Errorf("%s cannot be used: restore it, or move it away, so that the option start "+
		"applies to every file of %s: %w", name, c.Program, err)
}

// open opens a file and its directory. After an error, both are closed.
func (c *Carrier) open(name string) (vfs.Dir, vfs.File, error) {
	dir, err := c.Files.OpenDir(filepath.Dir(name))
	if err != nil {
		return nil, nil, err
	}
	f, err := dir.Open(filepath.Base(name))
	if err != nil {
		return nil, nil, errors.Join(err, dir.Close())
	}
	return dir, f, nil
}

// Resume converts the stored position of one file. The file may have been renamed within its
// directory after the other program stored the position.
func (c *Carrier) Resume(s StoredPosition) error {
	full := c.Path(s.File)
	dir, err := c.Files.OpenDir(filepath.Dir(full))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	base := ""
	if err == nil {
		defer dir.Close()
		if base, err = find(dir, filepath.Base(full), s); err != nil {
			return err
		}
	}
	if base == "" {
		c.Note(s.File, Differs, "does not exist anymore: data that %s had not read from it is "+
			"lost", c.Program)
		return nil
	}
	label := path.Join(path.Dir(filepath.ToSlash(full)), base)
	if base != filepath.Base(full) {
		c.Note(s.File, Differs, "is now %s, and is read under that name", base)
	}
	return c.Mark(dir, base, label, s.Offset, false)
}

// find returns the name in dir of the file to which a position belongs, or "". It tries the old
// name of the file first, and only this name if the position identifies the file by its path.
func find(dir vfs.Dir, name string, s StoredPosition) (string, error) {
	if ok, err := isFile(dir, name, s); ok || err != nil {
		return name, err
	}
	if s.Inode == 0 && s.Same == nil {
		return "", nil
	}
	entries, err := dir.Entries(".")
	if err != nil {
		return "", err
	}
	slices.SortFunc(entries, func(a, b vfs.Entry) int { return strings.Compare(a.Name, b.Name) })
	for _, e := range entries {
		if !e.Type.IsRegular() || e.Name == name {
			continue
		}
		if ok, err := isFile(dir, e.Name, s); ok || err != nil {
			return e.Name, err
		}
	}
	return "", nil
}

// isFile reports whether a position belongs to the file with the given name. It also returns false
// if the file cannot be opened.
func isFile(dir vfs.Dir, name string, s StoredPosition) (bool, error) {
	info, err := dir.Stat(name)
	if err != nil || !info.Mode.IsRegular() || s.Inode != 0 && info.Ino != s.Inode {
		return false, nil
	}
	if s.Same == nil {
		return true, nil
	}
	f, err := dir.Open(name)
	if err != nil {
		return false, nil
	}
	defer f.Close()
	return s.Same(f)
}

// Mark adds a file to the checkpoint as delivered up to an offset (at). If the offset is inside a
// line of an unfinished file, Mark uses the end of the line before. If the file is compressed or
// shorter than the offset, or if the offset is negative, Mark adds the file as unread, so that it
// is read from its beginning. A file that does not exist is ignored.
func (c *Carrier) Mark(dir vfs.Dir, name, label string, at int64, finished bool) error {
	f, err := dir.Open(name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	} else if err != nil {
		return err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return err
	}
	head := make([]byte, min(info.Size, fileid.MaxHead))
	if _, err := f.ReadAt(head, 0); err != nil && err != io.EOF {
		return err
	}
	switch {
	case at < 0:
		c.Note(label, Differs, "the position of %s, %d, is invalid: it is read from its "+
			"beginning, and repeats the data that %s delivered", c.Program, at, c.Program)
		at = 0
	case at > info.Size:
		c.Note(label, Differs, "has %d bytes, but %s had read %d: it was rewritten, and is read "+
			"from its beginning", info.Size, c.Program, at)
		at = 0
	case at > 0 && compressed(head):
		c.Note(label, Differs, "is compressed: it is read from its beginning, and repeats the "+
			"data that %s delivered", c.Program)
		at = 0
	case at > 0 && !finished:
		begin, err := c.lineBefore(f, at)
		if err != nil {
			return err
		}
		if begin < at {
			c.Note(label, Differs, "the position of %s, byte %d, is inside a line: the %d bytes "+
				"before it are repeated", c.Program, at, at-begin)
		}
		at = begin
	}
	m, err := markAt(f, info, head, at)
	if err != nil {
		return err
	}
	m.Part.Name, m.Finished = label, finished && at > 0
	if at > 0 {
		c.Marks = append(c.Marks, m)
	} else {
		c.Begun = append(c.Begun, m)
	}
	return nil
}

// markAt returns the mark of a file at an offset. head has the first bytes of the file.
func markAt(f vfs.File, info vfs.Info, head []byte, at int64) (m stream.Mark, err error) {
	before := make([]byte, min(at, fileid.MaxBefore))
	if _, err := f.ReadAt(before, at-int64(len(before))); err != nil && err != io.EOF {
		return m, err
	}
	seen := fileid.File{Dev: info.Dev, Ino: info.Ino, Size: info.Size, Head: head,
		ModTime: info.ModTime.UnixNano()}
	if !info.Birth.IsZero() {
		seen.Birth = info.Birth.UnixNano()
	}
	withHead := fileid.Fingerprint{}.WithHead(head[:min(int64(len(head)), at)])
	fingerprint := withHead.WithPlace(at, before)
	if at == info.Size {
		fingerprint.ModTime = seen.ModTime
	}
	m.Part.ID = fileid.New(seen, nil).String()
	m.Watermark.Num, m.Metadata = at, fingerprint.String()
	return m, nil
}

// compressed reports whether head is the beginning of a gzip or zstd file. Penstock's positions in
// such a file count decompressed bytes.
func compressed(head []byte) bool {
	return bytes.HasPrefix(head, []byte{0x1f, 0x8b}) ||
		bytes.HasPrefix(head, []byte{0x28, 0xb5, 0x2f, 0xfd})
}

// lineBefore returns the last offset up to at that is the end of a line, or 0.
func (c *Carrier) lineBefore(f vfs.File, at int64) (int64, error) {
	const step = 4096 // even, so that a block of UTF-16 begins with a whole unit
	var buf [step]byte
	find := func(data []byte) int { return bytes.LastIndexByte(data, '\n') + 1 }
	if c.UTF16 {
		find, at = lastUTF16Line, at-at%2
	}
	for end := at; end > 0; {
		n := min(end, step)
		if _, err := f.ReadAt(buf[:n], end-n); err != nil && err != io.EOF {
			return 0, err
		}
		if i := find(buf[:n]); i > 0 {
			return end - n + int64(i), nil
		}
		end -= n
	}
	return 0, nil
}

// lastUTF16Line returns the offset after the last LF in data, or 0. It accepts the two bytes of an
// LF in both byte orders, because it does not know the order. This is safe: read in the other
// order, the two bytes are U+0A00, which is not a character and therefore does not occur in text.
func lastUTF16Line(data []byte) int {
	for i := len(data) - 2; i >= 0; i -= 2 {
		if data[i] == '\n' && data[i+1] == 0 || data[i] == 0 && data[i+1] == '\n' {
			return i + 2
		}
	}
	return 0
}
