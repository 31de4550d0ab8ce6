package follow

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/penstock-io/penstock/stream"
)

// deletedFiles are the deleted files that a source holds open because a route has not read them.
// After all routes have read such a file, the source closes it, and the operating system then frees
// its space.
type deletedFiles struct {
	files []*file
	held  stream.Held
	since time.Duration // when the oldest lost its name
}

// Held describes the deleted files that are kept until all routes have read them, as of the last
// listing.
func (c *Catalogue) Held() stream.Held {
	all := c.held.Load()
	if all == nil || all.held.Files == 0 {
		return stream.Held{}
	}
	out := all.held
	out.Age = c.now() - all.since
	return out
}

// budgetUse is the used part of deleted_max, the limit on the bytes of deleted files that are held
// open: at most half, more than half, or more than all.
type budgetUse uint8

const (
	budgetFree budgetUse = iota
	budgetHalf
	budgetOver
)

// deleted returns the deleted files that are held open because a route has not read them. It adds
// each of them once to the counters files_deleted_unread and bytes_deleted_unread of the routes
// that have not read it, unless another file has the same data.
func (g *growing) deleted() (all deletedFiles) {
	var oldest *file
	for _, f := range g.c.table.byKey {
		if !f.isUnlisted() || f.handle == nil || f.info.Links > 0 || f.info.Ino == 0 ||
			len(f.cursors) > 0 && f.all((*cursor).isSealed) {
			continue
		}
		all.files = append(all.files, f)
		all.held.Bytes += f.info.Size
		if oldest == nil || f.nameless < oldest.nameless {
			oldest = f
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
	if oldest == nil {
		return all
	}
	all.held.Files, all.held.Oldest, all.since = len(all.files), oldest.label, oldest.nameless
	for _, r := range slices.Backward(g.c.readers) {
		if all.held.Route == "" || r.leftOf(oldest) > 0 {
			all.held.Route = r.o.Route
		}
	}
	return all
}

// keepBudget enforces deleted_max, the limit on the bytes of the deleted files that the source
// holds open. Beyond it, keepBudget does one of three things, as deleted_beyond demands. It logs a
// warning, stops the routes, or gives up the largest files although they have unread data. A file
// counts once, however many routes read it.
func (g *growing) keepBudget() {
	c, all := g.c, g.deleted()
	bytes := all.held.Bytes
	c.held.Store(&deletedFiles{held: all.held, since: all.since})
	use, before := budgetFree, g.use
	switch most := g.o.DeletedMax; {
	case bytes > most:
		use = budgetOver
	case bytes > most/2:
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
		c.over = fmt.Errorf("%d deleted files that were not read to their ends hold %d bytes on the disk, "+
			"more than deleted_max (%d), the oldest is %q of route %q; make the receiver faster, raise "+
			"deleted_max, or choose deleted_beyond: keep or drop",
			all.held.Files, bytes, g.o.DeletedMax, all.held.Oldest, all.held.Route)
	default:
		slices.SortFunc(all.files, byLabel)
		slices.SortStableFunc(all.files, func(a, b *file) int {
			return cmp.Compare(b.info.Size, a.info.Size)
		})
		for _, f := range all.files {
			if bytes <= g.o.DeletedMax {
				return
			}
			bytes -= f.info.Size
			c.lose(f, "deleted files hold more than deleted_max, and deleted_beyond is drop")
		}
	}
}

// warnBudget logs the held deleted files. It is called each time their size rises above half of
// deleted_max, but not above all of it. With deleted_beyond: keep, it is also called for a rise
// above all of it, which is counted for the routes that still hold a file.
func (g *growing) warnBudget(all deletedFiles, use budgetUse) {
	for _, r := range g.c.readers {
		holds := func(f *file) bool {
			cur := f.by(r)
			return cur != nil && !cur.sealed || f.entry == nil
		}
		if use == budgetOver && slices.ContainsFunc(all.files, holds) {
			r.count("deleted_over_budget", 1)
		}
	}
	g.c.log.Warn("deleted files are held until they are read", "files", all.held.Files,
		"bytes", all.held.Bytes, "deleted_max", g.o.DeletedMax, "oldest", all.held.Oldest, "held",
		(g.c.now() - all.since).Round(time.Millisecond), "route", all.held.Route)
}
