package follow

// HasEnded reports whether the file of a partition was read to its end or given up. The route may
// not have saved this yet.
func (r *Reader) HasEnded(id string) bool { return r.c.ids.isOver(id) }

// BeginRun starts the state in which Run is running, without its listings. EndRun ends it.
func (c *Catalogue) BeginRun() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.running = true
}

func (c *Catalogue) EndRun() { c.stop() }

// ClosedForRoom returns the number of files that were closed to make room for others and may become
// dormant.
func (c *Catalogue) ClosedForRoom() int { return len(c.handles.closedForRoom) }

// Dormant returns the number of dormant files.
func (c *Catalogue) Dormant() int { return len(c.dormant.table.byKey) }
