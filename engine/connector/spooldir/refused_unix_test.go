//go:build unix

package spooldir_test

import (
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// TestRefused checks that symlinks, FIFOs, sockets and hard links are refused, once each, with a
// reason. The other files are read.
func TestRefused(t *testing.T) {
	bubble(t, nil, func(t *testing.T, w *fixture) {
		path := put(t, w.dir, "a.log", "a\n")
		in := func(name string) string { return filepath.Join(w.dir, name) }
		if err := os.Symlink(path, in("link.log")); err != nil {
			t.Fatal(err)
		}
		if err := os.Link(path, in("b.log")); err != nil {
			t.Fatal(err)
		}
		if err := syscall.Mkfifo(in("fifo.log"), 0o644); err != nil {
			t.Fatal(err)
		}
		l, err := net.Listen("unix", in("socket.log"))
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		w.finish = false
		w.open(false)
		w.pump(5 * time.Second)
		w.close()
		if got := w.texts(); len(got) != 1 || !strings.HasSuffix(got[0], ".log: a\n") {
			t.Errorf("delivered %q, want a.log or b.log", got)
		}
		for _, why := range []string{"it is a symlink", "it is a FIFO, which has no end",
			"it is a socket", "it is a hard link to"} {
			if n := strings.Count(w.host.Logged(), why); n != 1 {
				t.Errorf("%q was logged %d times, want once", why, n)
			}
		}
		if n := w.host.Counted("files_refused"); n != 4 {
			t.Errorf("files_refused is %d, want 4", n)
		}
	})
}
