package follow

import (
	"errors"
	"sync/atomic"
	"syscall"
)

// minOpen is the lowest number of open files to which the process's limit reduces a source.
const minOpen = 4

// openLimit is the maximum number of open files of a source: open_files, or less if too few
// descriptors are available. It never grows, and is lowered only with Catalogue.mu held.
type openLimit struct{ n atomic.Int64 }

func (l *openLimit) get() int { return int(l.n.Load()) }

// lower lowers the limit to n and reports whether it was higher.
func (l *openLimit) lower(n int) bool {
	if l.get() <= n {
		return false
	}
	l.n.Store(int64(n))
	return true
}

// outOfDescriptors reports whether the process, or the system, has too many files open.
func outOfDescriptors(err error) bool {
	return errors.Is(err, syscall.EMFILE) || errors.Is(err, syscall.ENFILE)
}

// CheckLimit lowers the limit of open files to half of the descriptors of the process (at least
// minOpen): sinks and directories need descriptors as well. Run calls it if files may grow.
// Otherwise, the source calls it when it starts.
func (c *Catalogue) CheckLimit() {
	process := descriptorLimit()
	if process == 0 {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if most := max(minOpen, process/2); c.limit.lower(most) {
		c.log.Warn("fewer files are held open than open_files: raise the limit of open files of "+
			"the process (ulimit -n)",
			"open_files", c.o.OpenFiles, "process_limit", process, "used", most)
	}
}
