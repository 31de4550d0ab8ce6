package follow

import (
	"cmp"
	"fmt"
	"io"
	"slices"
)

// hasReadAll reports whether every file that is known has been read to its end.
func (r *Reader) hasReadAll() bool {
	for _, f := range r.c.table.byKey {
		if !r.isAtEnd(f) {
			return false
		}
	}
	return true
}

// isAtEnd reports whether a file, as last seen, has nothing more to read for the route.
func (r *Reader) isAtEnd(f *file) bool {
	cur := f.by(r)
	if cur != nil && cur.sealed {
		return true
	}
	if f.entry != nil && cur == nil {
		return true
	}
	return r.c.strategy.isAtEnd(f, cur)
}

// ended reports whether a reader with Once has reached its end, and returns the result: io.EOF, or
// an error that names the remaining data.
func (r *Reader) ended() (bool, error) {
	c := r.c
	if c.over != nil {
		return true, c.over
	}
	var failed []*file
	young := 0
	for _, f := range c.table.byKey {
		switch {
		case r.isAtEnd(f):
		case f.trouble == nil:
			young++
		case f.trouble.failures.N < onceTries:
			return false, nil
		default:
			failed = append(failed, f)
		}
	}
	young += c.rotation.waited()
	now := c.now()
	if young == 0 {
		r.endgame = 0
	} else if r.endgame == 0 {
		r.endgame = now
	}
	if young > 0 && now-r.endgame < max(endgameMin, endgameSettle*c.o.Settle) {
		return false, nil
	}
	if young > 0 {
		c.log.Warn("files are still being written; what was there of them is read, the rest is "+
			"left to the next run", "files", young)
	}
	if len(failed) == 0 {
		return true, io.EOF
	}
	slices.SortFunc(failed, func(a, b *file) int { return cmp.Compare(a.label, b.label) })
	return true, fmt.Errorf("%d files could not be read, the first is %q: %w; repair them and run again",
		len(failed), failed[0].label, failed[0].failed())
}
