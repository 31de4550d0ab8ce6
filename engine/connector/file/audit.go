package file

import (
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"

	"github.com/penstock-io/penstock/engine/kit/recount"
	"github.com/penstock-io/penstock/stream"
	"github.com/penstock-io/penstock/vfs"
)

// audit implements stream.Audit. It reads the file and the files that were rotated out of it.
type audit struct {
	s     *Sink
	dir   vfs.Dir
	place string // resume token in the checkpoint; "" if there is none
	count *recount.Count
}

// Audit implements stream.AuditedSink. The audit reads the files up to the place in the resume
// token of the checkpoint, which is the end of the delivered data.
func (s *Sink) Audit(_ context.Context, o stream.SinkOptions) (stream.Audit, error) {
	folder, _ := filepath.Split(filepath.Clean(s.o.Path))
	dir, err := s.host.FS().OpenDir(filepath.Clean(folder))
	if err != nil {
		return nil, fmt.Errorf("%q: %w", s.o.Path, err)
	}
	count, err := recount.New()
	if err != nil {
		return nil, errors.Join(err, dir.Close())
	}
	return &audit{s: s, dir: dir, place: o.ResumeToken, count: count}, nil
}

// Ledger implements stream.Audit.
func (a *audit) Ledger(context.Context) ([]stream.Mark, bool, error) { return nil, false, nil }

// Expect implements stream.Audit. A record of several lines is expected line by line.
func (a *audit) Expect(_ context.Context, b *stream.Batch) error {
	var id []byte
	for _, i := range b.AppendKept(nil) {
		id = b.AppendRecordID(id[:0], i)
		if err := a.count.ExpectRecord(b, i, id, a.s.o.Format == NDJSON); err != nil {
			return err
		}
	}
	return nil
}

// Compare implements stream.Audit.
func (a *audit) Compare(ctx context.Context, found func(stream.AuditDifference) error) error {
	if a.place != "" {
		if err := a.readFiles(ctx); err != nil {
			return fmt.Errorf("%q: %w", a.s.o.Path, err)
		}
	}
	return a.count.Compare(found)
}

// readFiles reads the rotated files and the current file in order, up to the place in the resume
// token of the checkpoint.
func (a *audit) readFiles(ctx context.Context) error {
	want, err := parsePlace(a.place)
	if err != nil {
		return err
	}
	_, name := filepath.Split(filepath.Clean(a.s.o.Path))
	var names []string
	if a.s.o.Rotate.Bytes > 0 {
		numbers, err := rotated(a.dir, name)
		if err != nil {
			return err
		}
		for _, n := range numbers {
			names = append(names, numbered(name, n))
		}
	}
	for _, name := range append(names, name) {
		reached, err := a.readFile(ctx, name, want)
		if err != nil || reached {
			return err
		}
	}
	return fmt.Errorf("the file in the checkpoint (inode %d) was moved or replaced, so its "+
		"records cannot be counted", want.inode)
}

// readFile reads one file. reached reports whether want is a place in this file.
func (a *audit) readFile(ctx context.Context, name string, want place) (reached bool, err error) {
	f, err := a.dir.Open(name)
	if err != nil {
		return false, err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	info, err := f.Stat()
	if err != nil {
		return false, err
	}
	length := info.Size
	if reached = placeOf(info).sameFile(want); reached {
		length = min(length, want.length)
	}
	if err := a.count.FoundLines(ctx, io.NewSectionReader(f, 0, length)); err != nil {
		return reached, fmt.Errorf("%s: %w", name, err)
	}
	return reached, nil
}

// Close implements stream.Audit.
func (a *audit) Close() error { return errors.Join(a.count.Close(), a.dir.Close()) }
