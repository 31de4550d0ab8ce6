package follow_test

import (
	"fmt"
	"io/fs"
	"os"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/penstock-io/penstock/engine/kit/follow"
)

// Two routes that meet a file at the same time know it by one id: with two, the one that is later
// at a copy of the file would take it for what the other one follows, and read it from its
// beginning.
func TestTwoRoutesMeetAFileAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, a, b := twoRoutes(t, follow.Growing{})
		d.put(t, "a.old", "0 another file, longer than the next\n")
		turns(t, 1, 2*time.Second, a, b)

		d.put(t, "a.log", three)
		met := false
		d.hook = func(name string) {
			if name == "a.old" { // the first route compares it with a.log, which nobody knew when it asked
				d.hook, met = nil, true
				b.run(t, 2*time.Second)
			}
		}
		a.run(t, 2*time.Second)
		if !met || len(b.lines) != 4 {
			t.Fatalf("the second route has delivered %q before the first gave the file an id, want all four lines", b.lines)
		}
		if a.ids["1 one"] != b.ids["1 one"] {
			t.Errorf("the routes know a.log as %s and %s", a.ids["1 one"], b.ids["1 one"])
		}

		d.copyTruncate(t, "a.log", "a.log.1", func() {})
		d.put(t, "a.log", "4 four\n")
		turns(t, 10, time.Second, a, b)
		wantLines(t, d, a, b, "0 another file, longer than the next", "1 one", "2 two", "3 three", "4 four")
	})
}

// What a route has not read yet begins for it where it would if it were alone, although the other
// route knows the file already.
func TestSecondRouteBeginsForItself(t *testing.T) {
	t.Run("at the end", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			d, a, b := twoRoutes(t, follow.Growing{FromEnd: true})
			d.put(t, "a.log", "1 old\n")
			for range 2 {
				turns(t, 1, 2*time.Second, a, b)
				d.put(t, "a.log", fmt.Sprintf("%d new\n", 2+len(a.lines)))
			}
			turns(t, 1, 2*time.Second, a, b)
			wantLines(t, d, a, b, "2 new", "3 new")
		})
	})
	t.Run("after what it has read of the original", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			d, a, b := twoRoutes(t, follow.Growing{})
			d.put(t, "a.log", three)
			turns(t, 1, time.Second, a, b)
			d.copyTruncate(t, "a.log", "a.log.1", func() {
				turns(t, 1, time.Second, a, b)
				d.put(t, "a.log", "4 only in the original\n")
				turns(t, 1, time.Second, a, b)
			})
			d.put(t, "a.log", "5 five\n")
			turns(t, 10, time.Second, a, b)
			wantLines(t, d, a, b, "1 one", "2 two", "3 three", "4 only in the original", "5 five")
		})
	})
}

// A file was rotated while nothing ran. The first route finds out that it was rewritten just before
// the second one looks, and is then slower to find the copy: the second one knows from its own
// mark, which the first has put aside, what the copy is.
func TestRouteRewrittenBeforeItLooks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, a, b := earlierRun(t)
		d.copyTruncate(t, "a.log", "a.log.1", func() {})
		d.put(t, "a.log", "4 four\n")

		a2, b2 := d.restarted(t, a, b)
		goOn := func() {}
		d.hook = func(string) { goOn = d.meetsCopy(t, a2) } // the second route meets a.log
		b2.run(t, 10*time.Second)
		goOn()
		a2.run(t, 10*time.Second)
		wantLines(t, d, a2, b2, "4 four")
	})
}

// As TestRouteRewrittenBeforeItLooks, and the second route cannot look: the file cannot be opened
// now, or has another name since it was listed. It knows all the same, from the mark that the first
// one has put aside, that the copy may be one.
func TestRouteRewrittenWhenItCannotLook(t *testing.T) {
	for _, tt := range []struct {
		name string
		err  error
	}{{"unreadable", syscall.EMFILE}, {"renamed", fs.ErrNotExist}} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				d, a, b := earlierRun(t)
				d.copyTruncate(t, "a.log", "a.log.1", func() {})
				d.age(t, "a.log.1")
				d.put(t, "a.log", "4 four\n")
				a2, b2 := d.restarted(t, a, b)
				goOn := func() {}
				d.shut = func(name string) error {
					d.shut = nil
					if goOn = d.meetsCopy(t, a2); tt.err == fs.ErrNotExist {
						d.rename(t, name, "a.log.9")
					}
					return &os.PathError{Op: "open", Path: name, Err: tt.err}
				}
				b2.run(t, 10*time.Second)
				goOn()
				a2.run(t, 10*time.Second)
				wantLines(t, d, a2, b2, "4 four")
			})
		})
	}
}
