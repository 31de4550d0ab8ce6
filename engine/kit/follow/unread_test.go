package follow_test

import (
	"errors"
	"io"
	"os"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/penstock-io/penstock/engine/kit/follow"
	"github.com/penstock-io/penstock/stream"
)

// TestHeldBackAndGone checks a held-back copy (one that is not read yet) that loses its name. Its
// data is read in its original or under its new name, and no loss is reported. The loss of an
// unread separate file is reported.
func TestHeldBackAndGone(t *testing.T) {
	for _, tt := range []struct {
		name, text string
		gone       func(t *testing.T, d *folder)
		loss       bool
		want       []string
	}{
		{name: "deleted", text: three, gone: func(t *testing.T, d *folder) { d.delete(t, "a.log.1") }},
		{name: "renamed while it is listed", text: three + "4 four\n", gone: func(t *testing.T, d *folder) {
			d.rename(t, "a.log.1", "a.log.2")
			d.hidden = "a.log.2"
			d.then = func() { d.hidden = "" }
		}, want: []string{"1 one", "1 one", "2 two", "2 two", "3 three", "3 three", "4 four"}},
		{name: "deleted, with more in it", text: three + "4 four\n", loss: true, gone: func(t *testing.T, d *folder) {
			d.delete(t, "a.log.1")
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				d, a, _ := twoRoutes(t, follow.Growing{})
				d.put(t, "a.log", three)
				a.run(t, 2*time.Second)
				d.put(t, "a.log.1", tt.text)
				a.run(t, 2*time.Second)
				tt.gone(t, d)
				a.run(t, 30*time.Second)
				if tt.want == nil {
					tt.want = []string{"1 one", "2 two", "3 three"}
				}
				a.want(t, d, tt.want...)
				if said := strings.Contains(d.log.String(), "before anything of it was read"); said != tt.loss {
					t.Errorf("that something is lost is said: %v, want %v; the log:\n%s", said, tt.loss, &d.log)
				}
			})
		})
	}
}

// TestHeldBackIsLookedAtSeldom checks a held-back copy (one that is not read yet). It is not
// compared again at each listing, but only when something may have changed, or else once in
// poll_max.
func TestHeldBackIsLookedAtSeldom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, a, _ := twoRoutes(t, follow.Growing{})
		d.put(t, "a.log", three)
		a.run(t, 2*time.Second)
		d.put(t, "a.log.1", three)
		calls, reads := 0, 0
		d.step = func() { calls++ }
		d.hook = func(string) { reads++ }
		a.run(t, 4*time.Second)
		// 4 s are 4 times poll_max, and a comparison takes up to 8 reads
		if calls > 150 || reads > 50 || reads == 0 {
			t.Errorf("%d calls and %d reads in 4 s", calls, reads)
		}
		d.empty(t, "a.log")
		d.put(t, "a.log.1", "4 four\n")
		a.run(t, time.Second)
		a.want(t, d, "1 one", "2 two", "3 three", "4 four")
	})
}

// unlistedAfterRestart returns a route that has read a.log in an earlier run and restarts with a
// limit of one open file. Before the restart, the function change renames a.log to the unlisted
// name a.old, or prepares this renaming. b.log is read first. After a.old was opened once, each
// further attempt to open it fails.
func unlistedAfterRestart(t *testing.T, change func(d *folder)) (d *folder, r *route) {
	t.Helper()
	d, _, _ = twoRoutes(t, follow.Growing{})
	d.hidden = "old"
	first := newRoute(t, d.setOf(follow.Growing{}, 1), nil)
	d.put(t, "a.log", three)
	first.run(t, 2*time.Second)
	stop(t, first)
	change(d)
	d.put(t, "b.log", "5 five\n")
	d.age(t, "b.log")
	opened := false
	d.shut = func(name string) error {
		if name == "a.old" && opened {
			return &os.PathError{Op: "open", Path: name, Err: syscall.EACCES}
		}
		opened = opened || name == "a.old"
		return nil
	}
	return d, newRoute(t, d.setOf(follow.Growing{}, 1), first.marks)
}

// TestUnreadableUnlistedFileIsDeleted checks a file with an unlisted name that cannot be opened
// again and is then deleted. Its unread data is reported as lost, and it is not looked for any
// more.
func TestUnreadableUnlistedFileIsDeleted(t *testing.T) {
	for name, tt := range map[string]struct {
		change func(t *testing.T, d *folder)
		lost   string
	}{
		"grown": {func(t *testing.T, d *folder) {
			d.put(t, "a.log", "4 four\n")
			d.rename(t, "a.log", "a.old")
		}, "is gone before it was read to its end, 7 of 27 bytes"},
		"rewritten, and renamed after it was listed": {func(t *testing.T, d *folder) {
			d.empty(t, "a.log")
			d.put(t, "a.log", "4 four is longer than what was read\n")
			d.then = func() { d.rename(t, "a.log", "a.old") }
		}, "is gone before anything of it was read, 36 bytes are lost"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				d, r := unlistedAfterRestart(t, func(d *folder) { tt.change(t, d) })
				r.run(t, 2*time.Second)
				r.want(t, d, "5 five")
				d.delete(t, "a.old")
				d.shut = nil
				r.run(t, time.Minute)
				log := d.log.String()
				if strings.Count(log, "level=ERROR") != 1 || !strings.Contains(log, tt.lost) {
					t.Errorf("the loss is not reported once; the log:\n%s", log)
				}
				calls := 0
				d.step = func() { calls++ }
				if r.run(t, 10*time.Second); calls > 100 {
					t.Errorf("%d system calls in 10 s without any change", calls)
				}
			})
		})
	}
}

// TestUnlistedFileCannotBeOpenedAtFirst checks a file with an unlisted name that cannot be opened
// at first. Reading continues when it can be opened, and that is logged once.
func TestUnlistedFileCannotBeOpenedAtFirst(t *testing.T) {
	for _, off := range []time.Duration{time.Second, 10 * time.Second, 10 * time.Minute} {
		t.Run(off.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				d, a, b := earlierRun(t)
				d.hidden = "old"
				d.put(t, "a.log", "4 four\n")
				d.rename(t, "a.log", "a.old")
				d.shut = func(name string) error {
					return &os.PathError{Op: "open", Path: name, Err: syscall.EACCES}
				}
				a2, b2 := d.restarted(t, a, b)
				turns(t, 1, off/2, a2, b2)
				d.shut = nil
				turns(t, 20, time.Second, a2, b2)
				wantLines(t, d, a2, b2, "4 four")
				d.wantNoLoss(t)
				if log := d.log.String(); strings.Count(log, "a file cannot be read") != 1 {
					t.Errorf("the log does not have it once:\n%s", log)
				}
			})
		})
	}
}

// TestOnceWithUnreadableUnlisted checks a file of an earlier run that was renamed out of the
// listing and cannot be opened. A finite run (Once) fails if the file has unread data.
func TestOnceWithUnreadableUnlisted(t *testing.T) {
	for _, added := range []string{"4 four\n", ""} {
		t.Run(added, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				d, a, _ := earlierRun(t)
				d.hidden = "old"
				d.put(t, "a.log", added)
				d.rename(t, "a.log", "a.old")
				d.shut = func(name string) error {
					return &os.PathError{Op: "open", Path: name, Err: syscall.EACCES}
				}
				o := knows(a.marks)
				o.Once = true
				r := d.set(follow.Growing{}).Open(o)
				defer r.Close()
				err := r.Read(t.Context(), stream.NewBatch(stream.BatchLimits{}))
				if (added == "") != (err == io.EOF) || added != "" && !errors.Is(err, syscall.EACCES) {
					t.Errorf("Read with %d unread bytes: %v", len(added), err)
				}
			})
		})
	}
}

// TestRewrittenAndRenamedAfterItWasListed checks a file of an earlier run that was rewritten while
// nothing ran. It is renamed out of the listing before it is looked at. Its new content is read
// once, and nothing is reported as lost.
func TestRewrittenAndRenamedAfterItWasListed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, a, b := earlierRun(t)
		d.hidden = "old"
		d.empty(t, "a.log")
		d.put(t, "a.log", "4 four is longer than what was read\n")
		d.then = func() { d.rename(t, "a.log", "a.old") }
		a2, b2 := d.restarted(t, a, b)
		turns(t, 20, time.Second, a2, b2)
		wantLines(t, d, a2, b2, "4 four is longer than what was read")
		d.wantNoLoss(t)
	})
}
