package follow

// HasEnded reports whether the catalogue has given up what a partition was, although the progress that says so may not be
// stored yet.
func (r *Reader) HasEnded(id string) bool { return r.c.ids.isOver(id) }

// BeginRun and EndRun are the beginning and the end of Run, without its listings.
func (c *Catalogue) BeginRun() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.running = true
}

func (c *Catalogue) EndRun() { c.stop() }
