package follow

// HasEnded says whether the reader has given up what a partition was, although the mark that says
// so may not be stored yet.
func (r *Reader) HasEnded(id string) bool { return r.past[id] }
