package follow

import (
	"fmt"
	"slices"
	"time"

	"github.com/penstock-io/penstock/fileid"
	"github.com/penstock-io/penstock/stream"
)

// deletedFile is a file without a name that a reader holds open until it is read.
type deletedFile struct {
	label string
	size  int64
	since time.Duration // when it was missed
}

// deletedFiles are the deleted files of a source. The system frees their space when the last route
// has read them.
type deletedFiles struct {
	files  int
	bytes  int64
	oldest deletedFile
	route  string // that holds the oldest
}

// A GoneError stops a route whose source holds more bytes of deleted files than deleted_max.
type GoneError struct {
	Files         int
	Bytes, Max    int64
	Oldest, Route string // the file that has been held for longest, and a route that has not read it
}

// Error names the budget and the remedies.
func (e *GoneError) Error() string {
	return fmt.Sprintf("%d deleted files that were not read to their ends hold %d bytes on the disk, more than deleted_max "+
		"(%d), the oldest is %q of route %q; make the receiver faster, raise deleted_max, or choose deleted_beyond: keep or drop",
		e.Files, e.Bytes, e.Max, e.Oldest, e.Route)
}

// budgetUse is how much of deleted_max is in use, as far as it was logged.
type budgetUse uint8

const (
	budgetFree budgetUse = iota
	budgetHalf
	budgetOver
)

// keepBudget holds the bytes of the source's deleted files to their budget, a file of several
// routes counted once.
func (c *catalogue) keepBudget(r *Reader) {
	mine := make(map[fileid.Key]deletedFile)
	var files []*file
	for key, f := range r.byKey {
		if !f.orphan || f.handle == nil || f.info.Links > 0 || f.info.Ino == 0 {
			continue
		}
		files = append(files, f)
		mine[key] = deletedFile{label: f.label, size: f.info.Size, since: f.nameless}
		if _, known := r.attended.deleted[key]; !known && f.left() > 0 {
			r.count("files_deleted_unread", 1)
			r.count("bytes_deleted_unread", f.left())
		}
	}
	all, use, before := c.publish(r, mine)
	r.over = nil
	if use == budgetFree || use == before && use == budgetHalf {
		return
	}
	g := r.grow
	if use == budgetHalf || g.DeletedBeyond == KeepDeleted {
		c.warnBudget(r, all, use, before)
		return
	}
	if g.DeletedBeyond == StopDeleted {
		r.over = &GoneError{
			Files: all.files, Bytes: all.bytes, Max: g.DeletedMax, Oldest: all.oldest.label, Route: all.route,
		}
		return
	}
	slices.SortFunc(files, func(a, b *file) int { return byLabel(a, b) })
	slices.SortStableFunc(files, func(a, b *file) int { return int(b.info.Size - a.info.Size) })
	for _, f := range files {
		if all.bytes <= g.DeletedMax {
			return
		}
		all.bytes -= f.info.Size
		if f.entry != nil {
			r.lose(f, "deleted files hold more than deleted_max, and deleted_beyond is drop")
			continue
		}
		r.vanished(f)
		r.closeFile(f)
		delete(r.byKey, keyOf(f.info))
	}
}

// publish notes the deleted files of r, and returns those of all readers and how much of the budget
// they use, now and when publish was called last.
func (c *catalogue) publish(r *Reader, mine map[fileid.Key]deletedFile) (all deletedFiles, use, before budgetUse) {
	c.s.mu.Lock()
	defer c.s.mu.Unlock()
	r.attended.deleted = mine
	all = c.deletedLocked()
	switch most := r.grow.DeletedMax; {
	case all.bytes > most:
		use = budgetOver
	case all.bytes > most/2:
		use = budgetHalf
	}
	before, c.use = c.use, use
	return all, use, before
}

// deletedLocked returns the deleted files of all readers.
func (c *catalogue) deletedLocked() (all deletedFiles) {
	counted := make(map[fileid.Key]bool)
	for _, o := range c.s.readers {
		for key, f := range o.attended.deleted {
			if all.files == 0 || f.since < all.oldest.since {
				all.oldest, all.route = f, o.o.Route
			}
			if !counted[key] {
				counted[key] = true
				all.files++
				all.bytes += f.size
			}
		}
	}
	return all
}

// Held returns the deleted files that are kept until all routes have read them, as the last
// listings have found them.
func (s *Set) Held() stream.Held {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := s.catalogue.deletedLocked()
	if all.files == 0 {
		return stream.Held{}
	}
	return stream.Held{
		Files: all.files, Bytes: all.bytes, Oldest: all.oldest.label, Age: s.now() - all.oldest.since, Route: all.route,
	}
}

// warnBudget reports the deleted files that are held, once each time that they reach half of the
// budget or exceed it.
func (c *catalogue) warnBudget(r *Reader, all deletedFiles, use, before budgetUse) {
	if use <= before {
		return
	}
	if use == budgetOver {
		r.count("deleted_over_budget", 1)
	}
	c.s.log.Warn("deleted files are held until they are read", "files", all.files, "bytes", all.bytes,
		"deleted_max", r.grow.DeletedMax, "oldest", all.oldest.label, "held", c.s.now()-all.oldest.since, "route", all.route)
}
