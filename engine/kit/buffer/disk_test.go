package buffer

import (
	"testing"

	"github.com/penstock-io/penstock/engine/kit/intake"
)

// TestFullDisk checks that the source is not ready while the disk of the option dir is full.
func TestFullDisk(t *testing.T) {
	for _, c := range []struct {
		dir  string
		free int64
		want string
	}{
		{"/spare", leastFree, ""},
		{"/spare", leastFree - 1, "buffer /spare: 16777215 bytes are free on its file system"},
		{"/spare", 0, "buffer /spare: 0 bytes are free on its file system"},
		{"/spare", -1, ""}, // unknown
		{"", 0, ""},        // the engine checks the disk of the state directory
	} {
		o := DefaultOptions()
		o.Dir = c.dir
		p := start(t, new(kept), o, intake.Options{})
		p.b.free = func(string) int64 { return c.free }
		if err := p.b.Failure(); err == nil && c.want != "" || err != nil && err.Error() != c.want {
			t.Errorf("dir %q with %d free bytes: %v, want %q", c.dir, c.free, err, c.want)
		}
		p.stop(t)
	}
}
