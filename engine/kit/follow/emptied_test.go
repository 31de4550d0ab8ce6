package follow_test

import (
	"io/fs"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/penstock-io/penstock/engine/kit/follow"
)

// TestEmptyFileIsWrittenToAndRotated checks a file that was empty when last seen, and is then
// written to and loses its name before the next listing. Its lines are delivered if a handle or an
// unlisted name leads to them.
func TestEmptyFileIsWrittenToAndRotated(t *testing.T) {
	for _, tt := range []struct {
		name   string
		opened bool // it was read before it was emptied
		rotate func(t *testing.T, d *folder)
	}{
		{"emptied, renamed to what is not listed", true, func(t *testing.T, d *folder) {
			d.rename(t, "a.log", "a.old")
		}},
		{"emptied, deleted", true, func(t *testing.T, d *folder) { d.delete(t, "a.log") }},
		{"emptied, renamed", true, func(t *testing.T, d *folder) { d.rename(t, "a.log", "a.log.1") }},
		{"emptied, copied, deleted", true, func(t *testing.T, d *folder) {
			d.put(t, "a.log.1", "4 four\n")
			d.delete(t, "a.log")
		}},
		{"new, renamed to what is not listed", false, func(t *testing.T, d *folder) { d.rename(t, "a.log", "a.old") }},
		{"new, renamed", false, func(t *testing.T, d *folder) { d.rename(t, "a.log", "a.log.1") }},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				d, a, b := twoRoutes(t, follow.Growing{})
				d.hidden = "old"
				var want []string
				if d.put(t, "a.log", ""); tt.opened {
					d.put(t, "a.log", three)
					want = []string{"1 one", "2 two", "3 three"}
				}
				turns(t, 1, 2*time.Second, a, b)
				d.empty(t, "a.log")
				turns(t, 10, time.Second, a, b)
				d.put(t, "a.log", "4 four\n")
				tt.rotate(t, d)
				turns(t, 40, time.Second, a, b)
				wantLines(t, d, a, b, append(want, "4 four")...)
			})
		})
	}
}

// TestFileWithoutNameIsEmptied checks that an open file that loses its name and is emptied is given
// up after gone_wait. Until then it is not looked at more often than other files.
func TestFileWithoutNameIsEmptied(t *testing.T) {
	for name, hidden := range map[string]string{"renamed to what is not listed": "a.old", "deleted": ""} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				d, a, _ := twoRoutes(t, follow.Growing{})
				d.hidden = "old"
				d.put(t, "a.log", three)
				a.run(t, 2*time.Second)
				d.rename(t, "a.log", "a.old")
				a.run(t, 2*time.Second)
				d.empty(t, "a.old")
				if hidden == "" {
					d.delete(t, "a.old")
				}
				calls := 0
				d.step = func() { calls++ }
				a.run(t, 10*time.Second)
				if calls > 200 {
					t.Errorf("%d calls in 10 s", calls)
				}
				a.run(t, 30*time.Second)
				calls = 0
				a.run(t, 10*time.Second)
				if calls > 40 {
					t.Errorf("%d calls in 10 s after gone_wait", calls)
				}
				a.want(t, d, "1 one", "2 two", "3 three")
			})
		})
	}
}

// TestRewrittenAndRenamedAway checks that the lines of a file are delivered if it is rewritten in
// place and renamed to an unlisted name. This happens while nothing runs, or before its route looks
// again. Inode and birth time identify it as the followed file.
func TestRewrittenAndRenamedAway(t *testing.T) {
	for _, tt := range []struct {
		name, text string
		seen       bool // the route has seen that the file was emptied before it ended
	}{
		{"shorter", "4 four\n", false}, {"longer", "4 four is longer than all that was read of it\n", false},
		{"shorter, seen empty", "4 four\n", true},
		{"longer, seen empty", "4 four is longer than all that was read of it\n", true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				d, a, b := twoRoutes(t, follow.Growing{})
				d.hidden = "old"
				d.put(t, "a.log", three)
				turns(t, 1, 2*time.Second, a, b)
				if !tt.seen {
					stop(t, a, b)
				}
				if d.empty(t, "a.log"); tt.seen {
					turns(t, 1, 2*time.Second, a, b)
					stop(t, a, b)
				}
				d.put(t, "a.log", tt.text)
				d.rename(t, "a.log", "a.old")
				d.put(t, "a.log", "5 five\n")
				a2, b2 := d.restarted(t, a, b)
				turns(t, 40, time.Second, a2, b2)
				wantLines(t, d, a2, b2, strings.TrimSpace(tt.text), "5 five")
				stop(t, a2, b2)
			})
		})
	}
}

// TestRenamedAsItIsGivenUp checks an emptied file that is renamed to an unlisted name just when the
// route stops waiting for a copy of the old data. Lines are added after the rename. The next
// process can recognise the file only by the old mark, and must deliver these lines.
func TestRenamedAsItIsGivenUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, a, _ := twoRoutes(t, follow.Growing{})
		d.hidden = "old"
		d.put(t, "a.log", three)
		a.run(t, 2*time.Second)
		d.empty(t, "a.log")
		a.run(t, time.Second)
		time.Sleep(time.Minute) // no Read
		d.then = func() { d.rename(t, "a.log", "a.old") }
		a.run(t, 50*time.Millisecond)
		d.put(t, "a.old", "4 four\n")
		stop(t, a)
		r := newRoute(t, d.set(follow.Growing{}), a.marks)
		r.run(t, 20*time.Second)
		r.want(t, d, "4 four")
	})
}

// TestRewrittenFileIsFoundOnce checks a file that was emptied, written to and renamed to an
// unlisted name while nothing ran. It must not be delivered twice. The waits for the file and for
// its old data should end together. But a new file, which may be a copy of the old data and cannot
// be read, prolongs the wait for the old data.
func TestRewrittenFileIsFoundOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, a, _ := earlierRun(t)
		d.hidden = "old"
		d.empty(t, "a.log")
		d.put(t, "a.log", "4 four\n")
		d.rename(t, "a.log", "z.old")
		r := newRoute(t, d.set(follow.Growing{}), a.marks)
		r.run(t, time.Second)
		time.Sleep(time.Minute) // no Read
		d.put(t, "a.log.2", "5 five\n")
		d.shut = func(name string) error {
			if name == "a.log.2" {
				return &fs.PathError{Op: "open", Path: name, Err: fs.ErrNotExist}
			}
			return nil
		}
		r.run(t, 3*time.Second)
		d.shut = nil
		r.run(t, time.Minute)
		r.want(t, d, "4 four", "5 five")
	})
}
