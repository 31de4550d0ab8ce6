package deadletter

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/penstock-io/penstock/vfs"
)

// Text returns the text of the record, byte for byte.
func (e *Entry) Text() []byte {
	if e.Record != nil {
		return []byte(*e.Record)
	}
	return e.RecordBase64
}

// Filter selects dead letters. The zero value selects all.
type Filter struct {
	Reason string // part of the reason or detail, ignoring case; "" means any
	// Range of the time at which the letter was written. Since is inclusive, and Until is
	// exclusive. Zero means no limit.
	Since, Until time.Time
	IDs          []string // only letters with these ids; empty means any
}

// Takes reports whether the filter selects e.
func (f *Filter) Takes(e *Entry) bool {
	if f.Reason != "" &&
		!strings.Contains(strings.ToLower(e.Reason+"\n"+e.Detail), strings.ToLower(f.Reason)) {
		return false
	}
	if !f.Since.IsZero() && e.Time.Before(f.Since) || !f.Until.IsZero() && !e.Time.Before(f.Until) {
		return false
	}
	return len(f.IDs) == 0 || slices.Contains(f.IDs, e.ID)
}

// Entries reads dead letters one after another. It skips and counts lines that are not dead letters
// in the format Version.
type Entries struct {
	r       *bufio.Reader
	Skipped int // number of skipped lines
	opened  []io.Closer
}

// OpenEntries returns a reader of the dead letters that are in the file at path now. If there is no
// such file, there are no letters. The caller closes the reader.
func OpenEntries(disk vfs.FS, path string) (*Entries, error) {
	s := NewEntries(strings.NewReader(""))
	if err := s.open(disk, path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, errors.Join(fmt.Errorf("dead letters %q: %w", path, err), s.Close())
	}
	return s, nil
}

func (s *Entries) open(disk vfs.FS, path string) error {
	dir, err := disk.OpenDir(filepath.Dir(path))
	if err != nil {
		return err
	}
	s.opened = append(s.opened, dir)
	file, err := dir.Open(filepath.Base(path))
	if err != nil {
		return err
	}
	s.opened = append(s.opened, file)
	info, err := file.Stat()
	if err == nil {
		s.r.Reset(io.NewSectionReader(file, 0, info.Size))
	}
	return err
}

// Each calls take with each dead letter that is in the file at path now, and returns the number of
// lines that are not dead letters. If there is no such file, there are no letters. Each ends early
// if take returns an error.
func Each(disk vfs.FS, path string, take func(*Entry) error) (skipped int, err error) {
	entries, err := OpenEntries(disk, path)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, entries.Close()) }()
	for {
		e, err := entries.Next()
		if err == io.EOF {
			return entries.Skipped, nil
		}
		if err != nil {
			return entries.Skipped, fmt.Errorf("dead letters %s: %w", path, err)
		}
		if err := take(e); err != nil {
			return entries.Skipped, err
		}
	}
}

// Close closes a reader that OpenEntries has returned. It may be called twice.
func (s *Entries) Close() error {
	var errs []error
	for _, c := range slices.Backward(s.opened) {
		errs = append(errs, c.Close())
	}
	s.opened = nil
	return errors.Join(errs...)
}

// NewEntries returns a reader of the dead letters in r.
func NewEntries(r io.Reader) *Entries { return &Entries{r: bufio.NewReaderSize(r, 256<<10)} }

// Next returns the next dead letter, or io.EOF. It ignores a last line without a line end, because
// another process may be writing this line.
func (s *Entries) Next() (*Entry, error) {
	for {
		text, err := s.r.ReadBytes('\n')
		if err != nil {
			return nil, err
		}
		if e, ok := parse(text); ok {
			return e, nil
		}
		s.Skipped++
	}
}

// parse returns the letter in a line. It returns false if the line is not a letter in the format
// Version.
func parse(line []byte) (*Entry, bool) {
	e, ok := decode(line)
	return e, ok && e.Version == Version
}

// decode returns the letter in a line, in any version of the format. It returns false if the line
// is not a letter, for example because its record is missing, or because a damaged byte is not
// UTF-8.
func decode(line []byte) (*Entry, bool) {
	e := new(Entry)
	if !utf8.Valid(line) || json.Unmarshal(bytes.TrimSpace(line), e) != nil {
		return e, false
	}
	return e, e.ID != "" && (e.Record != nil || e.RecordBase64 != nil)
}

// IsLetters reports whether r begins like a file of a [Store].
func IsLetters(r io.Reader) (bool, error) {
	head := make([]byte, len(linePrefix))
	_, err := io.ReadFull(r, head)
	if err == io.EOF || err == io.ErrUnexpectedEOF {
		return false, nil
	}
	return bytes.Equal(head, linePrefix), err
}

// partitionPrefix is the prefix of the partition ids of replayed dead letters.
const partitionPrefix = "letter."

// PartitionOf returns the partition id of a dead letter in a replay. In a replay each letter is a
// partition of its own, so that the checkpoint records for each letter whether it was settled.
func PartitionOf(letterID string) string {
	sum := sha256.Sum256([]byte(letterID))
	return partitionPrefix + hex.EncodeToString(sum[:16])
}

// IsPartition reports whether the partition id is that of a dead letter in a replay. The route's
// own source does not know these partitions, so their progress must not be passed to it.
func IsPartition(id string) bool { return strings.HasPrefix(id, partitionPrefix) }

// Discarded is stored as metadata with the progress of a dead letter that an operator has
// discarded, which settles it without a delivery. The route's checkpoint has this progress, and the
// ledger of its sink does not.
const Discarded = "discarded"

// ParseTime parses a time of a filter. The text is an RFC 3339 time, a date with or without a time
// of day (in UTC), or a duration. A duration means a time before now: 2h means two hours ago.
func ParseTime(text string, now time.Time) (time.Time, error) {
	if d, err := time.ParseDuration(text); err == nil && d >= 0 {
		return now.Add(-d), nil
	}
	for _, form := range []string{time.RFC3339, "2006-01-02T15:04:05", "2006-01-02 15:04:05",
		"2006-01-02"} {
		if at, err := time.ParseInLocation(form, text, time.UTC); err == nil {
			return at, nil
		}
	}
	return time.Time{}, fmt.Errorf("%q is neither a time such as 2026-11-21T13:00:00Z nor how "+
		"long ago, such as 90m", text)
}
