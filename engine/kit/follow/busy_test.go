package follow_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/penstock-io/penstock/engine/connector/connectortest"
	"github.com/penstock-io/penstock/engine/kit/follow"
	"github.com/penstock-io/penstock/engine/kit/lines"
)

// TestReadsOfGrownFile checks the number of reads of a grown file: one for the new bytes, one for the
// bytes before them, and one for the head (the first bytes of the file).
func TestReadsOfGrownFile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, r, _ := twoRoutes(t, follow.Growing{})
		names := []string{"a.log", "b.log", "c.log"}
		for n := range 4 {
			reads := 0
			d.hook = func(string) { reads++ }
			// the first content fills the head, so it is not read again
			for _, name := range names {
				d.put(t, name, strings.Repeat(fmt.Sprintf("%d %s %099d\n", n, name, 0), 1+10*max(0, 1-n)))
			}
			r.run(t, 2*time.Second)
			if want := 3 * len(names); n > 0 && reads != want {
				t.Errorf("round %d: %d files were read by %d calls, want %d", n, len(names), reads, want)
			}
		}
		if want := 14 * len(names); len(r.lines) != want {
			t.Errorf("%d lines came, want %d", len(r.lines), want)
		}
	})
}

// TestNothingIsWatchedWhileBusy checks that no directory is watched while each listing finds
// something to read, and that afterwards a change is noticed at once. In this test, only a
// notification makes an idle reader list again.
func TestNothingIsWatchedWhileBusy(t *testing.T) {
	path := t.TempDir()
	dir, err := connectortest.FS().OpenDir(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = dir.Close() })
	d := &folder{Dir: dir, path: path}
	set := follow.New(d, follow.Options{
		Rules: lines.Rules{MaxRecord: 1 << 10}, PollMin: time.Hour, PollMax: time.Hour, OpenFiles: 10,
		Growing: &follow.Growing{
			Siblings: d.siblings, GoneWait: time.Second, CopyWait: time.Second, DeletedMax: 1 << 20,
		},
	}, d, d.Log())
	r := newRoute(t, set, nil)

	watched := make(chan time.Time, 100)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() {
		ended <- set.Watch(ctx, nil, func() []string {
			watched <- time.Now()
			return []string{path}
		}, func(string, bool) bool { return true })
	}()
	defer func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}()
	begun, n := <-watched, 0
	write := func() { d.put(t, "a.log", fmt.Sprintf("%d\n", n)); n++ }
	d.step = func() { // comes before each call
		if time.Since(begun) < 1300*time.Millisecond {
			write()
		}
	}
	r.run(t, 2500*time.Millisecond)
	select {
	case at := <-watched:
		if idle := at.Sub(begun); idle < 1300*time.Millisecond {
			t.Errorf("the folder was watched again after %v, while it was written to", idle)
		}
	default:
		t.Errorf("the folder was not watched again; the log:\n%s", &d.log)
	}
	write()
	r.run(t, 500*time.Millisecond)
	if len(r.lines) != n {
		t.Errorf("%d lines came, want %d; the log:\n%s", len(r.lines), n, &d.log)
	}
}
