//go:build unix

package spooldir_test

import (
	"fmt"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/penstock-io/penstock/engine/connector/connectortest"
	"github.com/penstock-io/penstock/engine/connector/spooldir"
)

// TestOpenFilesBeyondTheProcessLimit checks that a source opens at most half of the files that the
// process may open, however many routes it has. The source logs this limit once, at the start.
func TestOpenFilesBeyondTheProcessLimit(t *testing.T) {
	var was syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &was); err != nil {
		t.Skipf("skipped: the limit of open files is not known: %v", err)
	}
	now := was
	now.Cur = 100
	if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &now); err != nil {
		t.Skipf("skipped: the limit of open files cannot be changed: %v", err)
	}
	defer func() {
		if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &was); err != nil {
			t.Error(err)
		}
	}()
	const text = "open_files=64 process_limit=100 used=50"
	w := newFixture(t, t.TempDir(), connectortest.FS(), func(o *spooldir.Options) {
		o.QuietPeriod, o.Finished = time.Millisecond, "keep"
	})
	w.host.SetRoutes("main", "second", "third")
	var want []string
	for i := range 100 {
		name := fmt.Sprintf("%02d.log", i)
		put(t, w.dir, name, "some text\n")
		want = append(want, name+": some text\n")
		if err := os.Chtimes(w.dir+"/"+name, time.Time{}, time.Now().Add(-time.Hour)); err != nil {
			t.Fatal(err)
		}
	}
	w.open(true)
	defer w.close()
	if err := w.once(); err != nil {
		t.Fatal(err)
	}
	w.want(want...)
	if n := strings.Count(w.host.Logged(), text); n != 1 {
		t.Errorf("%q was logged %d times, want once:\n%s", text, n, w.host.Logged())
	}
}
