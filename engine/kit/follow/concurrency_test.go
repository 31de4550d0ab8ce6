package follow

import (
	"sync"
	"testing"

	"github.com/penstock-io/penstock/fileid"
	"github.com/penstock-io/penstock/stream"
	"github.com/penstock-io/penstock/vfs"
)

// TestSharedWithTheCheckpoint lets the race detector check the state that a reader shares with the
// goroutine that writes checkpoints: ids, and the fingerprints (hashes of the read data) of unsaved
// positions.
func TestSharedWithTheCheckpoint(t *testing.T) {
	c := &Catalogue{ids: newIdentities()}
	e := c.ids.give(fileid.File{Dev: 1, Ino: 2, Birth: 3, Head: []byte("head")}, "a.log")
	r := &Reader{c: c, notes: notes{byID: make(map[string]*note)}}
	f := &file{entry: e}
	f.cursors = []*cursor{{r: r, f: f, entry: e, note: r.notes.begin(e.text, stream.Mark{})}}
	const rounds = 100
	var both sync.WaitGroup
	defer both.Wait()
	both.Go(func() {
		for i := range int64(rounds) {
			Finisher{c}.Is(e, vfs.Info{Dev: 1, Ino: 2})
			r.notes.at(e.text, 100+i)
		}
	})
	before := make([]byte, fileid.MaxBefore)
	for i := range int64(rounds) {
		c.ids.moveDevice(e, uint64(i))
		r.notes.set(f.cursors[0].note, fileid.Fingerprint{}.WithPlace(100+i, before))
		if all := f.fingerprints(); len(all) == 0 || all[0].At != 100+i {
			t.Fatalf("the fingerprints are %v", all)
		}
	}
}
