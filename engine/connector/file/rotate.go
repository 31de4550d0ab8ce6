package file

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/penstock-io/penstock/stream"
	"github.com/penstock-io/penstock/vfs"
)

// leastRotate is the minimum of the option rotate.bytes, the limit on a file's size. With a smaller
// limit, for example due to a wrong unit, every batch would get its own file.
const leastRotate = stream.Size(4 << 10)

// Rotate configures rotation. The file out.log is renamed to out.log.1, the next out.log to
// out.log.2: the highest number is the newest renamed file. The sink removes files with records
// only when it is opened: those that are newer than the file in the checkpoint (see unrotate).
type Rotate struct {
	Bytes stream.Size `yaml:"bytes" doc:"a batch that would make the file larger than this starts a new file; 0: no limit"`
}

func (r Rotate) validate() error {
	if r.Bytes != 0 && r.Bytes < leastRotate {
		return stream.OptionErrorf("rotate.bytes", "is %v, want %v or more, or 0 for one file",
			r.Bytes, leastRotate)
	}
	return nil
}

// fits returns how many of the deliveries in group fit into the current file. 0 means that the file
// must first be rotated.
func (l *lane) fits(group []*delivery) int {
	limit := int64(l.sink.o.Rotate.Bytes)
	if limit == 0 {
		return len(group)
	}
	l.mu.Lock()
	length := l.length
	l.mu.Unlock()
	for n, d := range group {
		if length += int64(len(d.data)); length > limit {
			if n == 0 && length == int64(len(d.data)) {
				return 1 // a batch larger than the limit gets a file of its own
			}
			return n
		}
	}
	return len(group)
}

// rotate renames the file to the next number and creates a new file. Before the rename, it syncs
// the old file and, with fsync: ack, answers its deliveries. Both names are durable before the
// first write: a place in the checkpoint thus never refers to a file that a crash could remove.
func (l *lane) rotate() error {
	if l.ack {
		l.syncGroup()
	}
	l.syncing <- struct{}{}
	defer func() { <-l.syncing }()
	l.mu.Lock()
	old, upTo, broken := l.file, l.length, errors.Join(l.broken, l.over)
	l.mu.Unlock()
	switch {
	case broken != nil:
		return broken
	case old == nil:
		return errStopped
	}
	if err := l.syncTo(old, upTo); err != nil {
		return err
	}
	numbers, err := rotated(l.dir, l.name)
	if err != nil {
		return err
	}
	next := uint64(1)
	if len(numbers) > 0 {
		next = numbers[len(numbers)-1] + 1
	}
	f, at, err := begin(l.dir, l.name, next, l.sink.o.mode())
	if err != nil {
		return err
	}
	l.sink.host.Count("rotations", 1)
	l.ahead.moved()
	l.mu.Lock()
	reserved := l.reserved
	l.file, l.id = f, at
	l.length, l.synced, l.begun, l.settled, l.reserved = 0, 0, 0, 0, false
	l.mu.Unlock()
	if reserved {
		err = release(old, upTo)
	}
	return errors.Join(err, old.Close())
}

// begin renames the file and creates a new one. If it fails, it restores the old name.
func begin(dir vfs.Dir, name string, number uint64,
	mode fs.FileMode) (f vfs.File, at place, err error) {
	if err := dir.RenameNew(name, dir, numbered(name, number)); err != nil {
		return nil, place{}, fmt.Errorf("rotate: %w", err)
	}
	defer func() {
		if err != nil {
			if f != nil {
				err = errors.Join(err, f.Close(), dir.Remove(name))
			}
			f, err = nil, errors.Join(fmt.Errorf("rotate: %w", err),
				dir.RenameNew(numbered(name, number), dir, name))
		}
	}()
	// If a crash kept the new file but not the rename, the old file would have no name.
	if err := dir.Sync(); err != nil {
		return nil, place{}, err
	}
	if f, err = dir.OpenFile(name, os.O_RDWR|os.O_CREATE|os.O_EXCL, mode); err != nil {
		return nil, place{}, err
	}
	if err := setMode(f, mode); err != nil {
		return f, place{}, err
	}
	info, err := f.Stat()
	if err != nil {
		return f, place{}, err
	}
	return f, placeOf(info), dir.Sync()
}

func numbered(name string, n uint64) string { return name + "." + strconv.FormatUint(n, 10) }

// rotated returns the numbers of the rotated files of name, in ascending order.
func rotated(dir vfs.Dir, name string) ([]uint64, error) {
	entries, err := dir.Entries(".")
	if err != nil {
		return nil, err
	}
	var numbers []uint64
	for _, e := range entries {
		digits, ok := strings.CutPrefix(e.Name, name+".")
		n, err := strconv.ParseUint(digits, 10, 63)
		if ok && err == nil && numbered(name, n) == e.Name {
			numbers = append(numbers, n)
		}
	}
	slices.Sort(numbers)
	return numbers, nil
}

// unrotate undoes rotations that are not in the checkpoint. want is the place in the checkpoint.
// unrotate gives the rotated file with the identity of want its name back, and removes newer files,
// including the current one, because their records will be delivered again. It does nothing if the
// current file has this identity, or if no file has it.
func unrotate(dir vfs.Dir, name string, want place) error {
	is := func(name string) (bool, error) {
		info, err := dir.Stat(name)
		if errors.Is(err, fs.ErrNotExist) {
			return false, nil
		}
		return err == nil && placeOf(info).sameFile(want), err
	}
	if here, err := is(name); here || err != nil {
		return err
	}
	numbers, err := rotated(dir, name)
	if err != nil {
		return err
	}
	for i, n := range slices.Backward(numbers) {
		found, err := is(numbered(name, n))
		if err != nil {
			return err
		}
		if !found {
			continue
		}
		// Remove the newest file first: if a crash interrupts the loop, the next start can
		// continue it.
		if err := dir.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		for _, newer := range slices.Backward(numbers[i+1:]) {
			if err := dir.Remove(numbered(name, newer)); err != nil {
				return err
			}
		}
		if err := dir.RenameNew(numbered(name, n), dir, name); err != nil {
			return err
		}
		return dir.Sync()
	}
	return nil
}
