package follow

// counted are the counters of a route's reader; docs/operating.md says what each means. They are
// shown from the start, so that the first event of a kind is seen as a change.
var counted = []string{
	"files_vanished", "bytes_vanished", "files_replaced", "files_doubtful", "files_rotated", "files_orphaned", "files_grown",
	"files_refused", "files_unreadable", "deleted_over_budget", "files_deleted_unread", "bytes_deleted_unread",
}

// count adds to one of the counted.
func (r *Reader) count(name string, n int64) {
	if r.o.Count != nil {
		r.o.Count(name, n)
		return
	}
	r.s.h.Count(name, n)
}
