package spooldir

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/penstock-io/penstock/fileid"
	"github.com/penstock-io/penstock/vfs"
)

// maxDepth is how deep a recursive listing goes.
const maxDepth = 64

// Once: how often a file is tried that cannot be read, and how many times settle (but at least endgameMin) a file that is still
// written is waited for.
const (
	onceTries     = 3
	endgameSettle = 10
	endgameMin    = 10 * time.Second
)

// sight is one regular file of a listing.
type sight struct {
	name string
	info vfs.Info
}

// scan lists the directory, follows what has changed since the last listing, and queues what there is to do.
func (r *reader) scan() {
	r.due = 0
	r.scans++
	var found []sight
	if err := r.listDir(".", 0, &found); err != nil {
		r.refuse(".", fmt.Sprintf("the directory cannot be listed; it is tried again: %v", err))
		return
	}
	delete(r.refused, ".")
	now := r.s.now()
	rest := found[:0]
	for _, s := range found { // first those that are where they were, so that the others are known to have moved
		if f := r.files[s.name]; f != nil && sameFile(f.info, s.info) {
			f.scan = r.scans
			f.saw(s.info, now)
			continue
		}
		rest = append(rest, s)
	}
	r.takeNews() // before a name that Finish has changed counts as missing
	for _, s := range rest {
		r.meet(s, now)
	}
	for name, f := range r.files {
		if f.scan != r.scans {
			delete(r.files, name)
			r.missing(f)
		}
	}
	if r.scans == 1 {
		r.findFinished()
	}
	r.lookAgain(now)
	r.enqueue(now)
}

// listDir appends what is wanted beneath name to found.
func (r *reader) listDir(name string, depth int, found *[]sight) error {
	entries, err := r.s.dir.Entries(name)
	if err != nil {
		return err
	}
	for _, e := range entries {
		full := path.Join(name, e.Name)
		switch {
		case e.Type.IsDir():
			if !r.s.o.Recursive || hidden(e.Name) {
				continue
			}
			if depth >= maxDepth {
				r.refuse(full, "it lies too deep")
				continue
			}
			if err := r.listDir(full, depth+1, found); err != nil && !errors.Is(err, fs.ErrNotExist) {
				r.refuse(full, fmt.Sprintf("the directory cannot be listed: %v", err))
			}
		case !r.s.names.wanted(full):
		case !e.Type.IsRegular():
			r.refuse(full, kind(e.Type))
		default:
			info, err := r.s.dir.Stat(full)
			if err == nil && info.Mode.IsRegular() {
				*found = append(*found, sight{full, info})
			} else if err != nil && !errors.Is(err, fs.ErrNotExist) {
				r.refuse(full, err.Error())
			}
		}
	}
	return nil
}

// kind says why something that is no regular file is not read.
func kind(t fs.FileMode) string {
	switch {
	case t&fs.ModeSymlink != 0:
		return "it is a symlink, which may lead anywhere; put the file itself here"
	case t&fs.ModeNamedPipe != 0:
		return "it is a FIFO, which has no end and cannot be read again"
	case t&fs.ModeSocket != 0:
		return "it is a socket"
	case t&fs.ModeDevice != 0:
		return "it is a device"
	}
	return "it is no regular file"
}

// meet follows a file whose name is new, or has been given to another file.
func (r *reader) meet(s sight, now time.Duration) {
	key := keyOf(s.info)
	if f := r.byKey[key]; f != nil && sameFile(f.info, s.info) {
		if f.scan == r.scans {
			r.refuse(s.name, fmt.Sprintf("it is a hard link to %q, which is read", f.name))
			return
		}
		if r.files[f.name] == f {
			delete(r.files, f.name)
		}
		r.displace(s.name)
		r.s.log.Info("a file was renamed", "from", f.name, "to", s.name)
		f.rename(s.name)
		f.scan, f.orphan = r.scans, false
		f.saw(s.info, now)
		r.files[s.name] = f
		if f.entry != nil {
			r.s.renamed(f.entry, s.name)
		}
		return
	}
	delete(r.refused, s.name)
	r.displace(s.name)
	f := &file{name: s.name, info: s.info, since: now, unread: max(now, 1), scan: r.scans}
	r.files[s.name] = f
	r.byKey[key] = f
}

// displace makes room for another file under a name.
func (r *reader) displace(name string) {
	if old := r.files[name]; old != nil {
		delete(r.files, name)
		r.missing(old)
	}
}

// missing deals with a file that the directory does not have any more.
func (r *reader) missing(f *file) {
	key := keyOf(f.info)
	switch {
	case f.entry == nil, f.sealed: // nothing of it was read, or all
		r.closeFile(f)
		if r.byKey[key] == f {
			delete(r.byKey, key)
		}
		r.release(f)
	case f.handle != nil:
		f.orphan = true
		r.s.log.Warn("a file was renamed or deleted while it was read; it is read to its end", "file", f.name, "read", f.cursor.Next)
		r.s.h.Count("files_orphaned", 1)
	default:
		if r.byKey[key] == f {
			delete(r.byKey, key)
		}
		r.lose(f, "its name is gone and it was not held open")
	}
}

// enqueue queues all files that have something to be done, in order.
func (r *reader) enqueue(now time.Duration) {
	lost := slices.DeleteFunc(r.queue, func(f *file) bool { return !f.lost })
	var todo []*file
	for _, f := range r.byKey {
		if r.ready(f, now) {
			todo = append(todo, f)
		}
	}
	for _, f := range r.after {
		if r.ready(f, now) {
			todo = append(todo, f)
		}
	}
	slices.SortFunc(todo, func(a, b *file) int {
		if r.s.o.Order == "oldest" {
			if c := a.info.ModTime.Compare(b.info.ModTime); c != 0 {
				return c
			}
		}
		return strings.Compare(a.name, b.name)
	})
	r.queue = append(lost, todo...)
}

// ready says whether there is something to be done with f now; if not, when to look again.
func (r *reader) ready(f *file, now time.Duration) bool {
	if f.retryAt > now {
		r.dueAt(f.retryAt)
		return false
	}
	if f.sealed {
		return f.changed()
	}
	if f.orphan {
		f.saw(f.info, now)
	}
	at, now := r.s.quietAt(f.info.ModTime, f.since)
	if at <= now {
		return true
	}
	r.dueAt(at)
	if f.info.Size-max(f.cursor.Next, f.drained) >= r.target {
		return true
	}
	if f.entry == nil && f.info.Size < fileid.MaxHead || f.info.Size <= f.drained && !f.changed() {
		return false
	}
	if wait := f.unread + r.s.o.Settle; f.unread > 0 && wait > now {
		r.dueAt(wait)
		return false
	}
	return true
}

// ended says whether a reader with Once has come to its end, and how: io.EOF, or what was left.
func (r *reader) ended() (bool, error) {
	var failed []*file
	young := 0
	for _, f := range r.byKey {
		switch {
		case f.sealed:
		case f.failed == nil:
			young++
		case f.failures.N < onceTries:
			return false, nil
		default:
			failed = append(failed, f)
		}
	}
	now := r.s.now()
	if young == 0 {
		r.endgame = 0
	} else if r.endgame == 0 {
		r.endgame = now
	}
	if young > 0 && now-r.endgame < max(endgameMin, endgameSettle*r.s.o.Settle) {
		return false, nil
	}
	if young > 0 {
		r.s.log.Warn("files are still being written; what was there of them is read, the rest is left to the next run", "files", young)
	}
	if len(failed) == 0 {
		return true, io.EOF
	}
	slices.SortFunc(failed, func(a, b *file) int { return cmp.Compare(a.name, b.name) })
	return true, fmt.Errorf("%q: %d files could not be read, the first is %q: %w; mend that and run again",
		r.s.o.Path, len(failed), failed[0].name, failed[0].failed)
}

// rename gives f another name; spans that were handed out keep the partition with the old one.
func (f *file) rename(name string) {
	f.name = name
	if f.part != nil {
		part := *f.part
		part.Name = name
		f.part = &part
	}
}
