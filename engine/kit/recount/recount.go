// Package recount compares two collections of texts that are too large for the memory. Audits of
// sinks use it to compare the expected records with those at the destination.
//
// A [Count] writes a hash of each text, and the id of its record, to one of 256 files in a
// temporary directory. Compare reads one file at a time. So it needs memory only for the hashes and
// ids of about 1/256 of the distinct texts.
package recount

import (
	"bufio"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strconv"

	"github.com/penstock-io/penstock/stream"
)

const (
	buckets  = 256
	sumBytes = 16 // size of a hash
	maxID    = 1 << 12
	bufBytes = 8 << 10 // size of each file's buffer
)

type sum [sumBytes]byte

// Count counts texts. It must be used by one goroutine.
type Count struct {
	dir   string
	files [buckets]*bucket // each is nil until it is used
	text  []byte           // scratch memory of ExpectRecord
}

type bucket struct {
	f *os.File
	w *bufio.Writer
}

// New returns a Count. It creates a temporary directory, which Close removes.
func New() (*Count, error) {
	dir, err := os.MkdirTemp("", "penstock-audit-")
	if err != nil {
		return nil, err
	}
	return &Count{dir: dir}, nil
}

// Expect adds a text that should be found. id is the id of its record.
func (c *Count) Expect(id, text []byte) error {
	if len(id) == 0 || len(id) > maxID {
		return errors.New("BUG: a record's id is empty or too long")
	}
	return c.add(id, text)
}

// Found adds a text that was found.
func (c *Count) Found(text []byte) error { return c.add(nil, text) }

// add writes the hash of the text, the length of the id and the id.
func (c *Count) add(id, text []byte) error {
	hash := sha256.Sum256(text)
	b := c.files[hash[0]]
	if b == nil {
		f, err := os.Create(filepath.Join(c.dir, strconv.Itoa(int(hash[0]))))
		if err != nil {
			return err
		}
		b = &bucket{f, bufio.NewWriterSize(f, bufBytes)}
		c.files[hash[0]] = b
	}
	entry := binary.BigEndian.AppendUint16(hash[:sumBytes:sumBytes], uint16(len(id)))
	_, err := b.w.Write(append(entry, id...))
	return err
}

// tally compares how many times a text was expected with how many times it was found.
type tally struct {
	id      string // id of a record with this text; "" if the text was not expected
	missing int64  // times expected minus times found; negative if found more often
}

// Compare reports each expected text that occurred fewer or more times than expected, by a call of
// found. It ignores texts that were not expected.
func (c *Count) Compare(found func(stream.AuditDifference) error) error {
	for _, b := range c.files {
		if b == nil {
			continue
		}
		all, err := b.read()
		if err != nil {
			return err
		}
		for _, t := range all {
			if t.id == "" || t.missing == 0 {
				continue
			}
			d := stream.AuditDifference{RecordID: t.id, Missing: t.missing}
			if err := found(d); err != nil {
				return err
			}
		}
	}
	return nil
}

func (b *bucket) read() (map[sum]*tally, error) {
	if err := b.w.Flush(); err != nil {
		return nil, err
	}
	if _, err := b.f.Seek(0, io.SeekStart); err != nil {
		return nil, err
	}
	all := make(map[sum]*tally)
	r := bufio.NewReader(b.f)
	head, id := make([]byte, sumBytes+2), make([]byte, maxID)
	for {
		if _, err := io.ReadFull(r, head); err == io.EOF {
			return all, nil
		} else if err != nil {
			return nil, err
		}
		n := binary.BigEndian.Uint16(head[sumBytes:])
		if _, err := io.ReadFull(r, id[:n]); err != nil {
			return nil, err
		}
		t := all[sum(head)]
		if t == nil {
			t = new(tally)
			all[sum(head)] = t
		}
		if n == 0 {
			t.missing--
			continue
		}
		if t.missing++; t.id == "" {
			t.id = string(id[:n])
		}
	}
}

// Close removes the temporary directory.
func (c *Count) Close() error {
	var errs []error
	for _, b := range c.files {
		if b != nil {
			errs = append(errs, b.f.Close())
		}
	}
	return errors.Join(append(errs, os.RemoveAll(c.dir))...)
}
