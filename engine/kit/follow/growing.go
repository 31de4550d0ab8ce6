package follow

import (
	"bytes"
	"io/fs"
	"slices"
	"time"

	"github.com/penstock-io/penstock/engine/kit/lines"
	"github.com/penstock-io/penstock/stream"
)

// onceWait is the upper limit of GoneWait if a reader has Once.
const onceWait = time.Second

// growing is the strategy for files that may grow without end: each is read to its end again and
// again, followed through rotations, and sealed some time after its listed name is gone (see end).
type growing struct {
	c    *Catalogue
	o    *Growing
	use  budgetUse
	kept int // sealed unlisted files that stay open until all routes have saved their ends
}

// end returns the state of the end of a file that may grow without end. A file is complete if it
// has had no listed name and no change for GoneWait, and a listing after this time does not contain
// the file either.
func (g *growing) end(f *file) ending {
	now := g.c.now()
	if f.isUnlisted() {
		if f.info.Links > 0 && g.c.lister.isFolderMissing(f.label, f.info.Dev) {
			f.nameless = now // its name is missing with its folder
		}
		// its successor may still be about to appear
		at := max(f.since, f.nameless) + g.goneWait()
		// it may have a new name that no listing has seen yet
		return ending{sealed: g.c.lister.at >= at, at: at}
	}
	wait := g.o.PartialWait
	if wait <= 0 && f.view != nil {
		wait = g.goneWait() // compressed files do not continue a line
	}
	if wait <= 0 {
		return ending{}
	}
	at := f.since + wait
	return ending{flush: now >= at, at: at}
}

func (g *growing) goneWait() time.Duration {
	for _, r := range g.c.readers {
		if r.o.Once {
			return min(onceWait, g.o.GoneWait)
		}
	}
	return g.o.GoneWait
}

func (g *growing) endOf(f *file) (ending, bool) {
	end := g.end(f)
	e := f.entry
	if !end.sealed || e == nil {
		return end, true
	}
	end.sealed = !g.c.rotation.mayHaveSuccessor(f, g.c.now()) && !g.mayBeListed(f)
	return end, f.entry == e && e.file == f && f.handle != nil
}

// missesMin is the number of successive listings that must lack a file with a name before the file
// is complete. A listing may miss a file that is renamed meanwhile.
const missesMin = 3

// mayBeListed reports whether f may have a listed name that the last listings have missed.
func (g *growing) mayBeListed(f *file) bool {
	if f.info.Links == 0 || g.c.table.scans >= f.scan+missesMin {
		return false
	}
	g.c.pace.soon()
	return true
}

// ready reports whether a route has something to do. New data is read immediately.
func (g *growing) ready(r *Reader, f *file, now time.Duration) bool {
	c, cur := g.c, f.by(r)
	isSealed := cur != nil && cur.sealed
	if c.unpacker.isTroubled(r, f, now) || f.entry != nil && cur == nil || f.isUnlisted() &&
		!isSealed && !g.reach(f) {
		return false
	}
	switch {
	case cur != nil && cur.waitsForOriginal():
		return false
	case isSealed:
		return cur.changed()
	case f.isEmpty() || f.view != nil && !c.unpacker.isWhole(f):
		return false
	case f.entry == nil && f.info.Size == 0:
		if !f.isUnlisted() {
			return false
		}
		if at := g.end(f).at; now < at {
			c.pace.dueAt(at)
		} else {
			c.end(f)
		}
		return false
	case f.entry == nil && f.heldUntil > now:
		c.pace.dueAt(f.heldUntil)
		return c.copies.mayCompareAgain(f, now)
	case f.entry == nil:
		return !c.identify.recall(f)
	case !cur.isDrained() || cur.touch:
		return true
	}
	at, partial := g.end(f).at, cur.partial()
	switch {
	case at == 0 || !f.isUnlisted() && !partial:
		return false
	case now >= at:
		return true
	}
	c.pace.dueAt(at)
	return false
}

// reach stats a file without a listed name by its handle, and reports whether it could. A closed
// file is reopened by its unlisted name, one that the source does not read. If that name is gone as
// well, the file awaits a successor: another file with the same data.
func (g *growing) reach(f *file) bool {
	if g.c.handles.restat(f) {
		return true
	}
	if f.trouble == nil && f.state != ended {
		g.await(f, "a rotated file is gone before it was read to its end")
	}
	return false
}

// await makes f, which is gone, an awaiting file.
func (g *growing) await(f *file, why string) {
	g.c.handles.unfollow(f, deleted)
	g.c.rotation.unindex(f)
	if f.entry == nil {
		g.c.rotation.wait(f)
		return
	}
	g.c.rotation.await(f, why)
}

func (g *growing) mismatch(f *file, e *Entry, why string) {
	g.c.ids.displace(e)
	g.c.rotation.awaitStored(e, why+rereading)
}

func (g *growing) resumed(cur *cursor, m stream.Mark) {
	f, r := cur.f, cur.r
	switch {
	case m.Finished && f.state != awaiting && !cur.allRead():
		g.grew(cur)
	case g.beginsAtEnd(f, r) && f.state != awaiting && m.Part.ID == "":
		at, err := g.lastLine(f)
		if err == nil {
			cur.skipTo = at
		}
	}
}

// lastLine returns the offset at which the unterminated last line of a file begins, so that a route
// that starts there does not split a record. It returns the size of the file if the last line is
// complete, or longer than a record may be.
func (g *growing) lastLine(f *file) (int64, error) {
	if f.handle == nil && !g.c.handles.refresh(f) {
		return 0, fs.ErrNotExist
	}
	framing, err := g.c.unpacker.framingOf(f)
	if err != nil {
		return 0, err
	}
	const step = 4096
	var buf [step]byte
	size := f.size()
	start := func(data []byte) int { return bytes.LastIndexByte(data, '\n') + 1 }
	end := size
	if u, ok := framing.(lines.UnitFraming); ok {
		start, end = u.LineStart, size-size%int64(u.Unit())
	}
	for end > 0 {
		n := min(end, step)
		if err := f.readFull(buf[:n], end-n); err != nil {
			return 0, err
		}
		if i := start(buf[:n]); i > 0 {
			return end - n + int64(i), nil
		}
		if end -= n; size-end > int64(g.c.o.Rules.MaxRecord) {
			return size, nil // it is longer than a record may be
		}
	}
	return 0, nil
}

// beginsAtEnd reports whether r, if it has no progress in f, begins at the end of f.
func (g *growing) beginsAtEnd(f *file, r *Reader) bool {
	return g.o.FromEnd && !f.foundEmpty && !r.marked && f.firstScan <= r.first
}

// canBegin reports whether the routes' start positions in a new file can be determined now.
func (g *growing) canBegin(f *file) bool {
	if !slices.ContainsFunc(g.c.readers, func(r *Reader) bool { return g.beginsAtEnd(f, r) }) {
		return true
	}
	_, err := g.lastLine(f)
	if err != nil {
		g.c.handles.readFailed(f, err)
	}
	return err == nil
}

func (g *growing) nameGone(f *file) {
	if f.entry == nil {
		if g.c.identify.lostKnown(f); g.keepUnread(f) {
			return
		}
	}
	switch {
	case f.all((*cursor).isSealed):
		g.c.end(f)
	case f.handle != nil:
		g.readByHandle(f)
	default:
		g.await(f, "its name is gone and it was not held open")
	}
}

// readByHandle continues to read a file after its listed name is gone.
func (g *growing) readByHandle(f *file) {
	if f.state != nameless {
		f.nameless = g.c.now()
		if f.extras != nil {
			f.extras.until = 0
		}
	}
	f.state = f.state.on(losesName)
	if g.c.table.byKey[keyOf(f.info)] == nil {
		g.c.table.add(f)
	}
	g.c.log.Debug("a file has lost its name; it is read to its end", "file", f.label, "read", f.read())
	g.c.count("files_orphaned", 1)
}

// keepUnread handles a file that has lost its name before it was identified. If the file is already
// read by its handle, keepUnread does nothing and returns false. Any other open file is read by its
// handle from now on, unless it was held back as a possible copy or another file has its data. All
// others wait for a file with the same data, because the inode may be found under an unlisted name.
// Examples: a file that was last seen empty may have been written to since, and the new name of a
// held-back file may show whether it is a copy.
func (g *growing) keepUnread(f *file) bool {
	if f.isUnlisted() && f.handle != nil {
		return false
	}
	if f.handle != nil && f.heldUntil == 0 && !f.dataElsewhere {
		g.readByHandle(f)
		return true
	}
	g.await(f, "")
	return true
}

func (g *growing) rewritten(old *file, why string) { g.c.rotation.await(old, why) }

func (g *growing) grew(cur *cursor) {
	cur.sealed = false
	cur.r.count("files_grown", 1)
	g.c.completions.withdraw(cur)
	g.c.ids.noteGrown(cur)
}

func (g *growing) sealed(cur *cursor) {
	f, c := cur.f, g.c
	cur.r.awaitDone(cur)
	if !f.all((*cursor).isSealed) {
		return
	}
	c.rotation.sawAll(f)
	if f.all(func(cur *cursor) bool { return cur.last == f.info.Size }) {
		c.completions.add(c, f)
		c.completions.drop()
	}
	// The file is released when all routes have saved that they have read its end. Until then it
	// stays open, with two exceptions: such files already take a quarter of the limit of open
	// files, or Catalogue.Run is not running.
	if !c.running || g.kept >= max(1, c.limit.get()/4) || g.isSaved(f) {
		c.end(f)
	}
}

// isSaved reports whether every route has handed out all of f and has saved that. Until then f
// stays open, because a route that restarts reads the end again.
func (g *growing) isSaved(f *file) bool {
	return f.all(func(cur *cursor) bool { return cur.sealed && cur.r.isDone(cur.part.ID) })
}

func (g *growing) listed(now time.Duration) {
	c := g.c
	c.dormant.missed()
	if c.lister.searchStored || c.rotation.folderMissing {
		c.renumber()
	}
	g.kept = 0
	for _, f := range c.table.byKey {
		switch {
		case !f.isUnlisted() || f.entry == nil || !f.all((*cursor).isSealed):
		case f.handle == nil || g.isSaved(f):
			c.end(f)
		default:
			g.kept++
		}
	}
	c.rotation.follow(now)
	c.completions.drop()
	g.keepBudget()
}
