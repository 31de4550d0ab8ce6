package follow

import "slices"

// HasEnded says whether the reader has given up what a partition was, although the mark that says so may not be stored yet.
func (r *Reader) HasEnded(id string) bool {
	r.s.mu.Lock()
	defer r.s.mu.Unlock()
	e := r.s.byID[id]
	return e != nil && slices.Contains(e.ended, r)
}
