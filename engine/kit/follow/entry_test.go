package follow

import (
	"testing"

	"github.com/penstock-io/penstock/fileid"
)

// TestEndedIDs checks that an id that has ended stays known until its progress is dropped, even if
// no route has a cursor of it: no file may get it again.
func TestEndedIDs(t *testing.T) {
	for _, endFirst := range []bool{true, false} {
		ids, r := newIdentities(), new(Reader)
		e := ids.give(fileid.File{Dev: 1, Ino: 2}, "a.log")
		e.refs++
		if endFirst {
			ids.end(e)
		}
		if !ids.unref(e, r, false) {
			t.Error("a cursor is left")
		}
		if !endFirst {
			ids.end(e)
		}
		if !ids.isOver(e.text) {
			t.Errorf("ended before the last cursor %v: the id is not over", endFirst)
		}
		ids.forget(e.text)
		if ids.isOver(e.text) {
			t.Errorf("ended before the last cursor %v: the id is over without progress", endFirst)
		}
	}
}
