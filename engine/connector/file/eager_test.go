package file_test

import (
	"strings"
	"testing"
	"testing/synctest"

	"github.com/penstock-io/penstock/engine/connector/file"
	"github.com/penstock-io/penstock/stream"
	"github.com/penstock-io/penstock/stream/streamtest"
	"github.com/penstock-io/penstock/vfs/vfstest"
)

// TestEager checks that, with fsync: interval, writeback starts after every 32 MiB. The test counts
// syncs, because a file system without writeback, such as the one in memory, syncs instead. Before
// the first 32 MiB, nothing is synced until the interval ends.
func TestEager(t *testing.T) {
	t.Parallel()
	const mega = 1 << 20
	for _, c := range []struct {
		megabytes int
		syncs     int64
	}{{31, 0}, {33, 1}, {65, 2}} {
		synctest.Test(t, func(t *testing.T) {
			h := streamtest.NewQuiet(vfstest.New(), nil,
				func(name string) bool { return strings.HasPrefix(name, "file ") })
			o := rawAt(memPath)
			o.Fsync = file.SyncInterval
			s, err := file.New(o, h)
			if err != nil {
				t.Fatal(err)
			}
			var w writer
			if err := s.Open(t.Context(), stream.SinkOptions{
				Pipeline: "test", Route: "main", Lanes: func(all []stream.Lane) { w.lane = all[0] },
			}); err != nil {
				t.Fatal(err)
			}
			batch := lines(16, mega/16)
			for range c.megabytes {
				if _, err := w.deliver(batch); err != nil {
					t.Fatal(err)
				}
				synctest.Wait() // the syncer has finished its work
			}
			if got := h.Counted("syncs"); got != c.syncs {
				t.Errorf("%d MiB within no time cost %d syncs, want %d", c.megabytes, got, c.syncs)
			}
			if err := s.Close(); err != nil {
				t.Fatal(err)
			}
		})
	}
}
