package follow

import (
	"errors"
	"sync/atomic"
	"syscall"

	"github.com/penstock-io/penstock/stream"
)

// minOpen is the least number of files that a reader may hold open because of the process's limit.
const minOpen = 4

// openLimit is how many files each reader of a Set holds open: open_files, or fewer where the
// process may not open as many. It never grows. It is safe for concurrent use.
type openLimit struct{ n atomic.Int64 }

func (l *openLimit) get() int { return int(l.n.Load()) }

// lower lowers the limit to n and reports whether it was higher.
func (l *openLimit) lower(n int) bool {
	for {
		was := l.n.Load()
		if was <= int64(n) {
			return false
		}
		if l.n.CompareAndSwap(was, int64(n)) {
			return true
		}
	}
}

// outOfDescriptors reports whether the process, or the system, has too many files open.
func outOfDescriptors(err error) bool {
	return errors.Is(err, syscall.EMFILE) || errors.Is(err, syscall.ENFILE)
}

// CheckLimit lowers the limit of open files so that all routes of the source together use at most
// half of the descriptors of the process: sinks and directories need some, too. Run calls it where
// files may grow; other sources call it when they start.
func (s *Set) CheckLimit() {
	c, routes := &s.catalogue, 1
	if h, ok := c.s.h.(stream.SourceHost); ok {
		routes = max(1, len(h.Routes()))
	}
	process := descriptorLimit()
	if process == 0 {
		return
	}
	if each := max(minOpen, process/2/routes); c.s.open.lower(each) {
		c.s.log.Warn("fewer files are held open than open_files: raise the limit of open files of the process (ulimit -n)",
			"open_files", c.s.o.OpenFiles, "routes", routes, "process_limit", process, "used", each)
	}
}

// openFewer closes the files of r that were used longest ago until half of them are left, and has
// all readers hold open no more than that. It reports whether it has closed any.
func (c *catalogue) openFewer(r *Reader) bool {
	before := len(r.open)
	most := max(minOpen, before/2)
	for len(r.open) > most && closeOldest(r, false) {
		continue
	}
	if len(r.open) == before {
		return false
	}
	if c.s.open.lower(most) {
		c.s.log.Warn("the process has too many files open; fewer are held open: raise its limit (ulimit -n), or lower open_files",
			"open_files", c.s.o.OpenFiles, "used", most)
	}
	return true
}
