package follow

import (
	"errors"
	"syscall"
)

// minOpen is the lowest number of open files to which the process's limit reduces a source.
const minOpen = 4

// openLimit returns the maximum number of open files of the source: open_files, or less if too few
// descriptors are available.
func (c *Catalogue) openLimit() int { return int(c.limit.Load()) }

// lowerOpenLimit lowers the limit of open files to n and reports whether it was higher.
func (c *Catalogue) lowerOpenLimit(n int) bool {
	if c.openLimit() <= n {
		return false
	}
	c.limit.Store(int64(n))
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
	if most := max(minOpen, process/2); c.lowerOpenLimit(most) {
		c.log.Warn("fewer files are held open than open_files: raise the limit of open files of "+
			"the process (ulimit -n)",
			"open_files", c.o.OpenFiles, "process_limit", process, "used", most)
	}
}
