package follow

import (
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/penstock-io/penstock/fileid"
)

// rotation follows growing files through rotations: a file is renamed (perhaps to an unlisted
// name), or copied away and truncated. A file that has lost its name or its content, and can no
// longer be read, becomes an awaiting file. It waits for a successor, a file that holds the same
// data.
type rotation struct {
	c *Catalogue
	// files with an id, including awaiting ones, by the stem of their label
	stems map[string][]*file
	// an awaiting file without an id has lost its name before anything of it was read
	awaiting map[*file]bool
	waited   time.Duration // when a file last began to await a successor
	tried    map[fileid.Key]tried
	// time of the last search in the directories of awaiting files; 0 if there was none
	search        time.Duration
	undecided     bool // a file found there could not be read
	folderMissing bool // folders of awaiting files are not there
}

// tried is the state of an unlisted file (one that the source does not read) when it was last
// looked at. It was then not found to have the data of an awaiting file, which has lost its name or
// its content. The unlisted file is looked at again only if it has changed, if it could not be
// read, or if other files await a successor now.
type tried struct {
	size    int64
	time    time.Time
	all     int      // number of awaiting files then
	trouble *trouble // nil: it could be read
}

func newRotation(c *Catalogue) rotation {
	return rotation{
		c: c, stems: make(map[string][]*file),
		awaiting: make(map[*file]bool), tried: make(map[fileid.Key]tried),
	}
}

// stem returns a label's last part without its last extension: the common prefix of the names of a
// rotation. Example: the stem of a/app.log is app, with which app.log.1 and app-old.log begin as
// well.
func stem(label string) string {
	base := path.Base(label)
	if i := strings.LastIndexByte(base, '.'); i > 0 {
		return base[:i]
	}
	return base
}

// index adds f, which has an id, to the files that are found by the stem of their label.
func (t *rotation) index(f *file) {
	if !t.c.grows() {
		return
	}
	key := stem(f.label)
	if list := t.stems[key]; !slices.Contains(list, f) {
		t.stems[key] = append(list, f)
	}
}

// unindex is the reverse of index. It must be called before f's label or entry changes.
func (t *rotation) unindex(f *file) {
	key := stem(f.label)
	list, ok := t.stems[key]
	if !ok {
		return
	}
	if list = slices.DeleteFunc(list, func(o *file) bool { return o == f }); len(list) > 0 {
		t.stems[key] = list
	} else {
		delete(t.stems, key)
	}
}

// inodeOf returns the inode that had the data of an awaiting file.
func (t *rotation) inodeOf(w *file) fileid.Key {
	if w.entry == nil {
		return keyOf(w.info)
	}
	id := w.entry.id
	return id.Key()
}

func (t *rotation) sortedAwaiting() []*file { return slices.SortedFunc(maps.Keys(t.awaiting), byLabel) }

// await makes f wait for a successor. Its name is deleted, or its inode holds other data.
func (t *rotation) await(f *file, why string) {
	f.handle, f.view, f.trouble = nil, nil, nil
	a := f.ensureExtras()
	f.extras = &extras{
		why: why, unreadFingerprint: a.unreadFingerprint, shrunk: a.shrunk, listed: a.listed,
	}
	for _, cur := range f.cursors {
		cur.own = nil
		cur.note.suffix = nil
	}
	t.wait(f)
}

func (t *rotation) wait(w *file) {
	w.state, w.heldUntil = w.state.on(deleted), t.c.now()+t.c.o.Growing.CopyWait
	t.awaiting[w], t.waited = true, t.c.now()
	if w.entry != nil {
		w.entry.file = w
		w.extras.unseen = t.c.table.byKey[keyOf(w.info)] == nil
		t.index(w)
	}
	clear(t.tried)
	t.search = 0
	t.c.pace.soon()
}

// awaitStored makes a file of earlier runs, with the identity e, await a successor (another file
// with the same data), and returns the record of the awaiting file. It returns nil if, by the
// stored progress, every route has read the file to its end.
func (t *rotation) awaitStored(e *Entry, why string) *file {
	c := t.c
	w := &file{
		name: e.name, label: e.name, entry: e, state: awaiting, dataElsewhere: true,
		extras: &extras{why: why},
	}
	w.info.Dev, w.info.Ino = e.id.Dev, e.id.Ino
	for _, m := range c.identify.marks(e) {
		if w.label = m.mark.Part.Name; !m.mark.Finished {
			m.r.begin(w, e)
		}
	}
	if len(w.cursors) == 0 {
		return nil
	}
	for _, r := range c.readers { // they begin in its successor
		if w.by(r) == nil {
			if _, ok := r.resume(e.text); !ok {
				r.begin(w, e)
			}
		}
	}
	t.wait(w)
	return w
}

func (t *rotation) unwait(w *file) {
	t.unindex(w)
	delete(t.awaiting, w)
}

// follow processes the awaiting files, which have lost their names or their contents. It searches
// their directories for successors (files with the same data), and gives up the awaiting files
// after their waiting time. It also searches for files of earlier runs that are not listed.
func (t *rotation) follow(now time.Duration) {
	c := t.c
	if c.lister.searchStored {
		c.lister.searchStored = false
		t.awaitStoredFiles()
		c.identify.recogniseKnown()
	}
	t.holdMissingFolders()
	if t.search == 0 || now-t.search >= c.o.PollMax {
		if held := t.deletedUnread(); len(t.awaiting)+len(held) > 0 {
			t.search = max(now, 1)
			t.searchUnlisted(held)
		}
	}
	if len(t.awaiting) > 0 {
		c.pace.dueAt(t.search + c.o.PollMax)
	}
	t.expire(now)
}

// awaitStoredFiles makes the files that earlier runs have read and the listing does not have wait
// for successors (files with the same data).
func (t *rotation) awaitStoredFiles() {
	c := t.c
	for _, e := range c.ids.withoutFile() {
		if e.file != nil || e.liesAt(func(id fileid.ID) bool { return c.identify.isStillListed(e, id) }) {
			continue
		}
		if t.awaitStored(e, "its name is gone and it was not held open") != nil {
			continue
		}
		// Forget the progress of the file, unless FromEnd is set or the folder is missing. With
		// FromEnd, the progress shows that the route is not new: a route without any progress
		// begins at the ends of the files, and skips the lines before.
		for _, m := range c.identify.marks(e) {
			if !c.o.Growing.FromEnd && !c.lister.isFolderMissing(m.mark.Part.Name, e.id.Dev) {
				delete(m.r.forgets.stored, e.text)
				m.r.forgets.add(e.text)
			}
		}
	}
}

// expire gives up awaiting files for which no file with the same data was found within their
// waiting time. It gives up none before a route has opened.
func (t *rotation) expire(now time.Duration) {
	c := t.c
	if !c.lister.opened {
		return
	}
	for _, w := range t.sortedAwaiting() {
		if w.state != awaiting {
			continue // the end of another file has resolved it already
		}
		if now < w.heldUntil {
			c.pace.dueAt(w.heldUntil)
			continue
		}
		if w.entry == nil {
			t.unwait(w)
			w.state = w.state.on(ends)
			c.vanished(w)
			continue
		}
		if t.mayHaveSuccessor(w, now) || w.state != awaiting {
			continue
		}
		t.unwait(w)
		if w.entry.phase != known {
			t.logRewritten(w)
			w.dataElsewhere = true
		}
		c.lose(w, w.extras.why)
	}
}

// missed returns the number of bytes, as far as known, that a route had not read when they were
// overwritten.
func (cur *cursor) missed() int64 {
	seen := max(cur.f.extras.shrunk, cur.f.extras.unreadFingerprint.At)
	return max(cur.unsettled, seen-max(cur.pos.Next, cur.skipTo))
}

// logRewritten reports a file with replaced bytes, and the number of unread bytes as far as known.
func (t *rotation) logRewritten(w *file) {
	c := t.c
	c.count("files_replaced", 1)
	most := int64(0)
	for _, cur := range w.cursors {
		missed := cur.missed()
		if missed > 0 {
			cur.r.count("bytes_vanished", missed)
		}
		most = max(most, missed)
	}
	if most <= 0 {
		c.log.Warn(w.extras.why, "file", w.label, "read", w.read())
		return
	}
	c.h.Fault(fmt.Errorf("file %q was rewritten before it was read to its end, %d bytes are lost", w.label, most))
}

// sawAll is called when f was read to its end. If awaiting files had the inode of f before, f was
// not recognised as one of them, so it has other data. Their data is then searched for only in
// other inodes.
func (t *rotation) sawAll(f *file) {
	for w := range t.awaiting {
		if w.entry != nil && isOf(w.entry.id, f.info) &&
			(w.entry.phase != known || f.info.Birth.known()) {
			t.c.ids.displace(w.entry)
			w.extras.unseen = false
		}
	}
}

// isRelated reports whether a rotation may have changed a given label (from) to that of f.
func (t *rotation) isRelated(f *file, from string) bool {
	return strings.HasPrefix(path.Base(f.label), stem(from))
}
