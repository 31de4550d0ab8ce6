package follow

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"slices"
	"strings"
	"time"

	"github.com/penstock-io/penstock/stream"
)

// counted are the counters that each opened route shows from the start, with the value 0. The first
// event of a kind is therefore seen as a change of its counter. docs/operating.md has the meaning
// of each.
var counted = []string{
	"files_vanished", "bytes_vanished", "files_replaced", "files_doubtful", "files_rotated",
	"files_orphaned", "files_grown",
	"files_refused", "files_unreadable", "deleted_over_budget", "files_deleted_unread", "bytes_deleted_unread",
}

// listPatience bounds the time for which listings may fail before the routes fail. The time begins
// at the last successful listing, or at the creation of the catalogue. The engine restarts the
// routes with growing waits. In a finite run (Once), a single failed listing ends the route.
const listPatience = 10 * time.Second

// lister lists the files of the source's Place. It acts on the decisions of the table, such as
// which files are new, renamed or deleted.
type lister struct {
	c            *Catalogue
	opened       bool               // a route has opened; no file is given up before that
	first        uint32             // the first successful listing; 0: there was none
	at           time.Duration      // when the last successful listing began
	searchStored bool               // there is stored progress of files that were not looked for yet
	refused      map[string]refusal // by label
	folders      map[folderOn]bool  // whether folders of missing files are missing; for one listing
}

// refusal records why a file or directory is not read.
type refusal struct {
	why  string
	scan uint32 // the last listing that refused it
}

// list lists the files for r, or for all routes if r is nil. While listings find nothing to read,
// the time between them grows from poll_min to poll_max.
func (c *Catalogue) list(r *Reader) {
	begun := c.now()
	c.lister.list(begun, r != nil && r.o.Once)
	found := 0
	for _, o := range c.readers {
		if o == r {
			o.enqueue(c.now())
			found = len(o.queue)
			noteBusy(c, o, found > 0)
			continue
		}
		if o.activity == stalled { // its backlog grows meanwhile
			o.measure()
		}
		signal(o.listed)
	}
	if r == nil { // no route is busy: Watch watches again
		for _, o := range c.readers {
			noteBusy(c, o, false)
		}
	}
	c.pace.record(begun, c.now(), found, c.o.PollMin, c.o.PollMax)
}

// list lists the place and processes the changes since the last listing.
func (l *lister) list(now time.Duration, once bool) {
	c := l.c
	c.pace.due = 0
	err := c.updateRoutes()
	c.table.begin()
	clear(l.folders)
	var rest []Listed
	found := func(s Listed) { // first the unmoved ones, so that the others are known to have moved
		if info := statOf(s.Info); !c.table.see(s.Label, info, now) && !c.dormant.see(s, info) {
			rest = append(rest, s)
		}
	}
	if err == nil {
		err = c.place.List(found, c.lister.refuse)
	}
	if err != nil {
		l.failed(err, now, once)
		return
	}
	if l.first == 0 {
		l.first = c.table.scans
	}
	l.at, c.over = now, nil
	delete(l.refused, ".")
	for _, r := range c.readers {
		if r.first == 0 {
			r.first = c.table.scans
		}
	}
	c.dormant.retire()
	c.table.compact()
	c.watched.takeFinished() // before a name that the source has changed counts as missing
	// files read first are adjacent in memory, which is released together
	if c.table.scans == l.first {
		slices.SortFunc(rest, c.lister.byOrder)
	}
	for _, s := range rest {
		l.track(s, now)
	}
	for _, f := range c.table.unlisted() {
		c.strategy.nameGone(f)
	}
	c.strategy.listed(now)
	if c.table.scans == l.first {
		c.watched.findGrown()
	}
	c.watched.recheck(now)
	for _, r := range c.readers {
		r.sweep(now)
	}
}

// failed decides whether the routes continue after a failed listing.
func (l *lister) failed(err error, now time.Duration, once bool) {
	freed := outOfDescriptors(err) && l.c.handles.openFewer()
	if freed {
		l.c.pace.soon()
	}
	l.refuse(".", fmt.Sprintf("the directory cannot be listed; it is tried again: %v", err))
	if once && !freed || now-l.at >= listPatience {
		l.c.over = fmt.Errorf("list the directory: %w", err)
	}
}

// track starts to follow a file with a new name, or with a name that belonged to another file.
func (l *lister) track(s Listed, now time.Duration) {
	c, info := l.c, statOf(s.Info)
	if c.table.byKey[keyOf(info)] == nil && c.dormant.isHardLink(s.Label, keyOf(info)) {
		return
	}
	change, f := c.table.resolve(s, info, now)
	if change == isHardLink {
		c.lister.refuse(s.Label, fmt.Sprintf("it is a hard link to %q, which is read", f.label))
		return
	}
	delete(l.refused, s.Label)
	if change == isNew {
		return
	}
	if f.label != s.Label {
		c.log.Info("file renamed", "from", f.label, "to", s.Label)
	}
	c.rotation.unindex(f)
	f.rename(s.Dir, s.Name, s.Label)
	f.scan, f.state = c.table.scans, f.state.on(renamed)
	f.update(info, now)
	if f.entry != nil {
		c.ids.noteName(f.entry, s.Name)
		c.rotation.index(f)
	}
}

// Kind returns the reason why a directory entry of type t, which is not a regular file, is not
// read.
func Kind(t fs.FileMode) string {
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

// filesToRead returns the files in which r has something to do, in the order in which they are
// read. Growing files that are unidentified or unlisted are checked in the order of their labels:
// the check of one may affect the next one, and the result must not depend on the random order of a
// map.
func (l *lister) filesToRead(r *Reader, now time.Duration) []*file {
	var out, odd []*file
	for _, f := range l.c.table.byKey {
		if l.c.grows() && (f.isUnlisted() || f.entry == nil && f.info.Size > 0) {
			odd = append(odd, f)
		} else if l.c.strategy.ready(r, f, now) {
			out = append(out, f)
		}
	}
	slices.SortFunc(odd, byLabel)
	odd = append(odd, l.c.watched.files...)
	for _, f := range odd {
		if (l.c.table.has(f) || f.state == finished) && l.c.strategy.ready(r, f, now) {
			out = append(out, f)
		}
	}
	slices.SortFunc(out, func(a, b *file) int {
		if n := compareTimes(a, b); n != 0 && !l.c.o.ByName {
			return n
		}
		return byLabel(a, b)
	})
	return out
}

// byOrder orders listed files as they are read: by modification time, unless ByName is set, and
// then by label.
func (l *lister) byOrder(a, b Listed) int {
	if n := a.Info.ModTime.Compare(b.Info.ModTime); n != 0 && !l.c.o.ByName {
		return n
	}
	return strings.Compare(a.Label, b.Label)
}

func (c *Catalogue) count(name string, n int64) {
	for _, r := range c.readers {
		r.count(name, n)
	}
}

// refuse logs that a file or directory is not read, once for each label and reason.
func (l *lister) refuse(label, why string) {
	was := l.refused[label].why
	l.refused[label] = refusal{why, l.c.table.scans}
	if was == why {
		return
	}
	l.c.log.Warn("file skipped", "file", label, "reason", why)
	l.c.count("files_refused", 1)
}

// fail logs once that f cannot be read, and schedules another attempt. If f has no name any more
// and could be reached only by its handle, f is given up as lost.
func (h *handles) fail(f *file, err error) {
	t := &trouble{}
	if f.trouble != nil {
		t = f.trouble
	}
	wait, next, _ := unreadable.Next(t.failures, nil)
	t.failures, t.retryAt = next, h.c.now()+wait
	h.c.pace.dueAt(t.retryAt)
	h.close(f)
	if f.entry != nil && f.byHandle() {
		h.c.lose(f, err.Error())
		return
	}
	if f.trouble == nil {
		h.c.log.Warn("a file cannot be read; it is tried again, the others go on", "file", f.label, "error", err)
		h.c.count("files_unreadable", 1)
	}
	t.last = err
	f.trouble = t
}

// readFailed handles a read error. A file that has just become shorter is looked at again soon.
func (h *handles) readFailed(f *file, err error) {
	if errors.Is(err, io.ErrUnexpectedEOF) {
		h.c.pace.soon()
		return
	}
	h.fail(f, err)
}

// readable notes that f was read. A damaged file counts as unreadable until it has changed.
func (h *handles) readable(f *file) {
	if f.trouble != nil && !f.trouble.broken.is(f.info) {
		h.c.log.Info("a file can be read again", "file", f.label, "after_failures", f.trouble.failures.N)
		f.trouble = nil
	}
}

// lose gives up f, because its unread bytes are unreachable. why is the reason.
func (c *Catalogue) lose(f *file, why string) {
	if f.state == ended {
		return
	}
	c.handles.unfollow(f, ends)
	if f.entry == nil {
		c.vanished(f)
		return
	}
	if left := f.left(); !c.grows() || left > 0 && !f.dataElsewhere {
		c.h.Fault(fmt.Errorf("file %q is gone before it was read to its end, %d of %d bytes are "+
			"lost: %s", f.label, left, max(f.info.Size, f.read()+left), why))
		for _, cur := range f.cursors {
			if c.grows() && cur.left() == 0 {
				continue
			}
			cur.r.count("files_vanished", 1)
			cur.r.count("bytes_vanished", cur.left())
		}
	}
	if f.entry.file == f { // else another file has its data for some route (see gather)
		c.ids.end(f.entry)
	}
	c.giveUp(f)
}

// giveUp stops following f, of which nothing more can be read. Its routes still hand out the seal
// (end) of the file's partition.
func (c *Catalogue) giveUp(f *file) {
	c.rotation.unindex(f)
	if c.grows() && len(f.cursors) > 1 {
		c.completions.add(c, f)
	}
	for _, cur := range f.cursors {
		if !cur.sealed {
			cur.r.lostCursors = append(cur.r.lostCursors, cur)
		}
	}
	c.release(f)
}

// end stops following f, which every route has read completely or no route has read at all.
func (c *Catalogue) end(f *file) {
	c.handles.unfollow(f, ends)
	c.release(f)
}

// release detaches the id and the cursors from a file that is no longer followed.
func (c *Catalogue) release(f *file) {
	if f.entry == nil {
		return
	}
	c.rotation.unindex(f)
	for _, cur := range f.cursors {
		c.drop(cur)
	}
	if f.entry.file == f {
		f.entry.file = nil
	}
	f.entry, f.cursors = nil, nil
}

// drop ends a cursor of a file that is no longer followed.
func (c *Catalogue) drop(cur *cursor) {
	if o := cur.original; o != nil {
		c.copies.endOriginal(cur)
		if o.entry.file == cur.f {
			o.entry.file = nil
		}
	}
	cur.r.noteUnsaved(cur)
	c.ids.unref(cur.entry, cur.r, false)
	if cur.entry.file == cur.f {
		cur.entry.file = nil
	}
}

// vanished reports and counts a file that is gone before anything of it was read, unless its data
// is in another file.
func (c *Catalogue) vanished(f *file) {
	if f.info.Size == 0 || f.isEmpty() || f.dataElsewhere || f.isHeldElsewhere() {
		return
	}
	c.h.Fault(fmt.Errorf("file %q is gone before anything of it was read, %d bytes are lost", f.label, f.info.Size))
	c.count("files_vanished", 1)
	c.count("bytes_vanished", f.info.Size)
}

// replaced is called if the data of f was replaced by other data in the same inode or under the
// same name. It makes f a new file. A separate record gets the old identity. If files may grow,
// this record awaits a copy with the read data.
func (c *Catalogue) replaced(f *file, why string) {
	if f.state == finished { // it was delivered; later changes of it do not matter
		c.watched.drop(f)
		return
	}
	old, now := *f, c.now()
	f.dropView()
	c.rotation.unindex(f)
	c.ids.displace(old.entry)
	*f = file{
		dir: f.dir, name: f.name, label: f.label, info: f.info, scan: f.scan,
		firstScan: f.firstScan,
		handle:    f.handle, refreshedAt: f.refreshedAt,
		state: f.state, nameless: f.nameless, since: now, unread: max(now, 1),
		closedForRoom: f.closedForRoom, foundEmpty: true,
	}
	if old.extras != nil && old.extras.listed != "" {
		f.ensureExtras().listed = old.extras.listed
	}
	c.pace.soon()
	gone := &old
	gone.handle, gone.view = nil, nil
	for _, cur := range gone.cursors {
		for ; cur != nil; cur = cur.original {
			c.ids.displace(cur.entry)
			if cur.f = gone; cur.entry.file == f {
				cur.entry.file = gone
			}
		}
	}
	if gone.entry.file == f {
		gone.entry.file = gone
	}
	c.strategy.rewritten(gone, why)
}

// seal notes that the batches of a route contain all of a file.
func (c *Catalogue) seal(cur *cursor) {
	f := cur.f
	cur.sealed, cur.last = true, cur.pos.Next
	if f.view != nil {
		cur.last = f.info.Size
	}
	c.ids.noteSealed(cur)
	c.strategy.sealed(cur)
	c.closeSealed(f)
}

// closeSealed closes a file that every route has sealed, unless only the handle leads to it.
func (c *Catalogue) closeSealed(f *file) {
	if f.dir != nil && f.state != nameless && f.all((*cursor).isSealed) {
		c.handles.close(f)
	}
}

var _ stream.Reader = (*Reader)(nil)
