package file_test

import (
	"path/filepath"
	"syscall"
	"testing"

	"github.com/penstock-io/penstock/engine/connector/connectortest"
	"github.com/penstock-io/penstock/engine/connector/file"
	"github.com/penstock-io/penstock/stream"
)

// TestReservedRoom checks that space behind the end is reserved for a fast file, and released by
// Close and by a rotation.
func TestReservedRoom(t *testing.T) {
	t.Parallel()
	const mega = 1 << 20
	held := func(t *testing.T, path string) (length, bytes int64) {
		t.Helper()
		var st syscall.Stat_t
		if err := syscall.Stat(path, &st); err != nil {
			t.Fatal(err)
		}
		return st.Size, st.Blocks * 512
	}
	for name, rotate := range map[string]stream.Size{"closed": 0, "rotated": 40 * mega} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "out")
			s, lane := open(t, connectortest.NewHost(t), file.Options{
				Path: path, Format: file.Raw, Fsync: file.SyncInterval,
				Rotate: file.Rotate{Bytes: rotate},
			}, "")
			w := writer{lane: lane}
			for range 40 {
				if _, err := w.deliver(lines(16, mega/16)); err != nil {
					t.Fatal(err)
				}
			}
			if length, bytes := held(t, path); length != 40*mega || bytes < length+4*mega {
				t.Skipf("%d bytes hold %d bytes of disk: the file system reserves no room, "+
					"or it took seconds to write them", length, bytes)
			}
			if rotate > 0 {
				if _, err := w.deliver(lines(16, mega/16)); err != nil {
					t.Fatal(err)
				}
				path += ".1"
			} else if err := s.Close(); err != nil {
				t.Fatal(err)
			}
			if length, bytes := held(t, path); length != 40*mega || bytes > length+mega {
				t.Errorf("%d bytes, want %d, hold %d bytes of disk", length, 40*mega, bytes)
			}
		})
	}
}
