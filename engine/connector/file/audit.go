package file

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path/filepath"

	"github.com/penstock-io/penstock/engine/kit/recount"
	"github.com/penstock-io/penstock/stream"
	"github.com/penstock-io/penstock/vfs"
)

// audit implements stream.Audit. It reads the file and the files that were rotated out of it.
type audit struct {
	s     *Sink
	dir   vfs.Dir // nil if the folder does not exist
	place string  // resume token in the checkpoint; "" if there is none
	count *recount.Count
}

// Audit implements stream.AuditedSink. The audit reads the files up to the place in the resume
// token of the checkpoint, which is the end of the delivered data. Without a token, it reads them
// to their ends, because the next start keeps all of their content.
func (s *Sink) Audit(_ context.Context, o stream.SinkOptions) (stream.Audit, error) {
	folder, _ := filepath.Split(filepath.Clean(s.o.Path))
	dir, err := s.host.FS().OpenDir(filepath.Clean(folder))
	if err != nil && (o.ResumeToken != "" || !errors.Is(err, fs.ErrNotExist)) {
		return nil, fmt.Errorf("%q: %w", s.o.Path, err)
	}
	a := &audit{s: s, dir: dir, place: o.ResumeToken}
	if a.count, err = recount.New(); err != nil {
		return nil, errors.Join(err, a.Close())
	}
	return a, nil
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
	if a.dir != nil {
		if err := a.readFiles(ctx); err != nil {
			return fmt.Errorf("%q: %w", a.s.o.Path, err)
		}
	}
	return a.count.Compare(found)
}

// readFiles reads the rotated files and the current file in order, up to the place in the resume
// token of the checkpoint.
func (a *audit) readFiles(ctx context.Context) error {
	var want place
	if a.place != "" {
		var err error
		if want, err = parsePlace(a.place); err != nil {
			return err
		}
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
		if a.place == "" && errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil || reached {
			return err
		}
	}
	if a.place == "" {
		return nil
	}
	return fmt.Errorf("the file in the checkpoint (inode %d) was moved or replaced, so its "+
		"records cannot be counted", want.inode)
}

// readFile reads one file. reached reports whether want, the place in the token, is in this file.
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
	if reached = a.place != "" && placeOf(info).sameFile(want); reached {
		length = min(length, want.length)
	}
	if err := a.count.FoundLines(ctx, io.NewSectionReader(f, 0, length)); err != nil {
		return reached, fmt.Errorf("%s: %w", name, err)
	}
	return reached, nil
}

// Close implements stream.Audit.
func (a *audit) Close() error {
	var errs []error
	if a.dir != nil {
		errs = append(errs, a.dir.Close())
	}
	if a.count != nil {
		errs = append(errs, a.count.Close())
	}
	return errors.Join(errs...)
}
