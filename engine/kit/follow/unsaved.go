package follow

import "github.com/penstock-io/penstock/stream"

// unsavedFile is a file without a name that was read to its end, whose last bytes are not in the
// checkpoint yet: if the route restarts before they are, its next reader reads them again.
type unsavedFile struct {
	*file
	end int64 // of what was handed out
}

// retain keeps f open, of which a reader has handed out everything and to which no name leads,
// until the checkpoint says that it was delivered. f has no handle after that. It does nothing if
// no next reader would get the file, or too many are retained.
func (c *catalogue) retain(r *Reader, f *file) {
	if f.handle == nil {
		return
	}
	m, ok := r.resume(f.part.ID)
	if ok && saved(m, f.cursor.Next) {
		return
	}
	c.s.mu.Lock()
	kept := c.running && len(r.attended.unsaved) < max(1, c.s.open.get()/4)
	c.s.mu.Unlock()
	if !kept {
		return
	}
	g := bare(f)
	f.dropView()
	f.handle = nil
	for i, o := range r.open {
		if o == f {
			r.open = append(r.open[:i], r.open[i+1:]...)
			break
		}
	}
	c.s.mu.Lock()
	defer c.s.mu.Unlock()
	if r.attended.unsaved == nil {
		r.attended.unsaved = make(map[string]unsavedFile)
	}
	r.attended.unsaved[f.part.ID] = unsavedFile{g, f.cursor.Next}
}

// saved reports whether m says that everything before end was delivered.
func saved(m stream.Mark, end int64) bool { return m.Watermark.Num >= end && len(m.Above) == 0 }

// release closes the retained files of which marks say that they were delivered.
func (c *catalogue) release(r *Reader, marks []stream.Mark) {
	c.s.mu.Lock()
	var done []unsavedFile
	for _, m := range marks {
		if u, ok := r.attended.unsaved[m.Part.ID]; ok && saved(m, u.end) {
			done = append(done, u)
			delete(r.attended.unsaved, m.Part.ID)
		}
	}
	c.s.mu.Unlock()
	for _, u := range done {
		r.warnClose(u.label, u.close())
	}
}

// unsaved takes the retained files from r.
func (c *catalogue) unsaved(r *Reader) (files []*file) {
	c.s.mu.Lock()
	defer c.s.mu.Unlock()
	for _, u := range r.attended.unsaved {
		files = append(files, u.file)
	}
	r.attended.unsaved = nil
	return files
}
