package deadletter

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"time"
)

// Entry is a letter as it stands in a file.
type Entry line

// Text is the record's text, byte for byte.
func (e *Entry) Text() []byte {
	if e.Record != nil {
		return []byte(*e.Record)
	}
	return e.RecordBase64
}

// Filter says which letters are meant. The zero value means all.
type Filter struct {
	Reason       string    // part of the reason or detail, in any case; "": any
	Since, Until time.Time // when it was written: from, and before; zero: no bound
	IDs          []string  // these alone; none: any
}

// Takes says whether the filter means e.
func (f *Filter) Takes(e *Entry) bool {
	if f.Reason != "" && !strings.Contains(strings.ToLower(e.Reason+"\n"+e.Detail), strings.ToLower(f.Reason)) {
		return false
	}
	if !f.Since.IsZero() && e.Time.Before(f.Since) || !f.Until.IsZero() && !e.Time.Before(f.Until) {
		return false
	}
	if len(f.IDs) == 0 {
		return true
	}
	for _, id := range f.IDs {
		if id == e.ID {
			return true
		}
	}
	return false
}

// Entries reads letters one after another. What is no letter is passed over and counted.
type Entries struct {
	r       *bufio.Reader
	Skipped int // lines that are no letters
}

// NewEntries reads from r.
func NewEntries(r io.Reader) *Entries { return &Entries{r: bufio.NewReaderSize(r, 256<<10)} }

// Next returns the next letter; io.EOF: there is none. A last line without an end is still being
// written, and is none.
func (s *Entries) Next() (*Entry, error) {
	for {
		text, err := s.r.ReadBytes('\n')
		if err == io.EOF {
			return nil, io.EOF
		}
		if err != nil {
			return nil, err
		}
		e := new(Entry)
		if err := json.Unmarshal(bytes.TrimSpace(text), e); err != nil || e.ID == "" || e.Version != Version {
			s.Skipped++
			continue
		}
		return e, nil
	}
}

// partitionPrefix begins the ids of the partitions that letters are when they are replayed.
const partitionPrefix = "letter."

// PartitionOf is the id of the partition that a letter is when it is replayed: each is one of its
// own, so that the checkpoint says of every single one whether it was delivered.
func PartitionOf(letterID string) string {
	sum := sha256.Sum256([]byte(letterID))
	return partitionPrefix + hex.EncodeToString(sum[:16])
}

// IsPartition says whether a partition's id is a letter's. A route's own source must not see it.
func IsPartition(id string) bool { return strings.HasPrefix(id, partitionPrefix) }

// ParseTime reads a bound of a filter: a time (RFC 3339, or a date), or how long before now.
func ParseTime(text string, now time.Time) (time.Time, error) {
	if d, err := time.ParseDuration(text); err == nil && d >= 0 {
		return now.Add(-d), nil
	}
	for _, form := range []string{time.RFC3339, "2006-01-02T15:04:05", "2006-01-02 15:04:05", "2006-01-02"} {
		if at, err := time.ParseInLocation(form, text, time.UTC); err == nil {
			return at, nil
		}
	}
	return time.Time{}, fmt.Errorf("%q is neither a time such as 2026-11-21T13:00:00Z nor how long ago, such as 90m", text)
}
