package follow

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/penstock-io/penstock/stream"
)

// deletedFiles are the deleted files of a source. The operating system frees their space once all
// routes have read them and they are closed.
type deletedFiles struct {
	files  []*file
	bytes  int64
	oldest *file
	route  string // a route that has not read the oldest
}

// heldFiles are the deleted files as the last listing has found them.
type heldFiles struct {
	held  stream.Held
	since time.Duration // when the oldest lost its name
}

// Held returns the deleted files that are kept until all routes have read them, as of the last
// listing.
func (c *Catalogue) Held() stream.Held {
	h := c.held.Load()
	if h == nil {
		return stream.Held{}
	}
	out := h.held
	out.Age = c.now() - h.since
	return out
}

// publish makes Held report all.
func (all deletedFiles) publish(c *Catalogue) {
	if len(all.files) == 0 {
		c.held.Store(nil)
		return
	}
	c.held.Store(&heldFiles{
		held:  stream.Held{Files: len(all.files), Bytes: all.bytes, Oldest: all.oldest.label, Route: all.route},
		since: all.oldest.nameless,
	})
}

// A GoneError stops the routes of a source that holds more bytes of deleted files than deleted_max.
type GoneError struct {
	Files         int
	Bytes, Max    int64
	Oldest, Route string // the file held longest, and a route that has not read it
}

// Error names the budget and the remedies.
func (e *GoneError) Error() string {
	return fmt.Sprintf("%d deleted files that were not read to their ends hold %d bytes on the "+
		"disk, more than deleted_max "+
		"(%d), the oldest is %q of route %q; make the receiver faster, raise deleted_max, or "+
		"choose deleted_beyond: keep or drop",
		e.Files, e.Bytes, e.Max, e.Oldest, e.Route)
}

// budgetUse is the part of deleted_max in use, in the steps that are logged.
type budgetUse uint8

const (
	budgetFree budgetUse = iota
	budgetHalf
	budgetOver
)

// deleted returns the deleted files that are held open because a route has not read them, and adds
// new ones to the counters.
func (g *growing) deleted() (all deletedFiles) {
	for _, f := range g.c.table.byKey {
		if !f.isUnlisted() || f.handle == nil || f.info.Links > 0 || f.info.Ino == 0 ||
			len(f.cursors) > 0 && f.all((*cursor).isSealed) {
			continue
		}
		all.files = append(all.files, f)
		all.bytes += f.info.Size
		if all.oldest == nil || f.nameless < all.oldest.nameless {
			all.oldest = f
		}
		if f.counted || f.isHeldElsewhere() {
			continue
		}
		f.counted = true
		for _, r := range g.c.readers {
			if left := r.leftOf(f); left > 0 {
				r.count("files_deleted_unread", 1)
				r.count("bytes_deleted_unread", left)
			}
		}
	}
	if all.oldest != nil {
		for _, r := range slices.Backward(g.c.readers) {
			if all.route == "" || r.leftOf(all.oldest) > 0 {
				all.route = r.o.Route
			}
		}
	}
	return all
}

// keepBudget enforces deleted_max on the bytes of the source's deleted files. A file counts once,
// however many routes read it.
func (g *growing) keepBudget() {
	c, all := g.c, g.deleted()
	all.publish(c)
	use, before := budgetFree, g.use
	switch most := g.o.DeletedMax; {
	case all.bytes > most:
		use = budgetOver
	case all.bytes > most/2:
		use = budgetHalf
	}
	g.use = use
	switch {
	case use == budgetFree:
	case use == budgetHalf, g.o.DeletedBeyond == KeepDeleted:
		if use > before {
			g.warnBudget(all, use)
		}
	case g.o.DeletedBeyond == StopDeleted:
		c.over = &GoneError{
			Files: len(all.files), Bytes: all.bytes, Max: g.o.DeletedMax, Oldest: all.oldest.label, Route: all.route,
		}
	default:
		slices.SortFunc(all.files, byLabel)
		slices.SortStableFunc(all.files, func(a, b *file) int {
			return cmp.Compare(b.info.Size, a.info.Size)
		})
		for _, f := range all.files {
			if all.bytes <= g.o.DeletedMax {
				return
			}
			all.bytes -= f.info.Size
			c.lose(f, "deleted files hold more than deleted_max, and deleted_beyond is drop")
		}
	}
}

// warnBudget logs the held deleted files. It is called once each time they exceed half of the
// budget or all of it.
func (g *growing) warnBudget(all deletedFiles, use budgetUse) {
	if use == budgetOver {
		g.c.h.Count("deleted_over_budget", 1)
	}
	g.c.log.Warn("deleted files are held until they are read", "files", len(all.files), "bytes", all.bytes,
		"deleted_max", g.o.DeletedMax, "oldest", all.oldest.label, "held",
		(g.c.now() - all.oldest.nameless).Round(time.Millisecond),
		"route", all.route)
}
