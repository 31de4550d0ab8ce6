package follow_test

import (
	"errors"
	"fmt"
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

// TestUnreadAtTheStart checks files of an earlier run that cannot be opened or read, while another
// file may be a copy of one of them. A copy waits for copy_wait (5 s), and is read on from the position
// of the earlier run. A file that is not a copy does not wait.
func TestUnreadAtTheStart(t *testing.T) {
	for _, tt := range []struct {
		name string
		err  error
		read bool          // reading fails, not opening
		bare bool          // the mark comes from a sink's ledger, without a note
		off  time.Duration // how long the file cannot be read
	}{
		{name: "too many open files, for a moment", err: syscall.EMFILE, off: time.Second},
		{name: "no permission", err: syscall.EACCES, off: 3 * time.Second},
		{name: "an error of the disk", err: syscall.EIO, read: true, off: 3 * time.Second},
		{name: "no permission, with a sink's ledger", err: syscall.EACCES, bare: true, off: 3 * time.Second},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				d, a, _ := earlierRun(t)
				d.put(t, "a.log", "4 four\n")
				d.copyTruncate(t, "a.log", "a.log.1", func() {})
				d.put(t, "a.log", "5 five\n")
				d.put(t, "a.log.2", "6 six, which is no copy\n")
				if tt.bare {
					for id, m := range a.marks {
						a.marks[id] = stream.Mark{Part: m.Part, Watermark: m.Watermark}
					}
				}
				fault := func(name string) error {
					if name == "a.log" {
						return &os.PathError{Op: "open", Path: name, Err: tt.err}
					}
					return nil
				}
				if d.shut = fault; tt.read {
					d.shut, d.fault = nil, fault
				}
				r := newRoute(t, d.set(follow.Growing{}), a.marks)
				r.run(t, tt.off)
				r.want(t, d, "6 six, which is no copy")
				d.shut, d.fault = nil, nil
				r.run(t, time.Minute)
				r.want(t, d, "4 four", "5 five", "6 six, which is no copy")
			})
		})
	}
}

// TestChangedAtEachLook checks a file that was copied while nothing ran, and that is emptied and
// written to during each look of the next process. Until it stops changing, it cannot be
// identified. The same applies to its copy, which the route reads first.
func TestChangedAtEachLook(t *testing.T) {
	for _, times := range []int{1, 3, 10} {
		t.Run(fmt.Sprint(times, " times"), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				d, a, _ := earlierRun(t)
				d.put(t, "a.log", "4 four\n")
				d.put(t, "a.log.1", three+"4 four\n")
				d.age(t, "a.log.1")
				emptied, written := 0, true
				d.hook = func(name string) {
					if name == "a.log" && emptied < times {
						d.empty(t, name)
						emptied, written = emptied+1, false
					}
				}
				d.step = func() {
					if !written {
						d.put(t, "a.log", "5 five\n6 six\n")
						written = true
					}
				}
				r := newRoute(t, d.set(follow.Growing{}), a.marks)
				// the end of the file is more than two batches away
				b := stream.NewBatch(stream.BatchLimits{Bytes: 8})
				if err := r.Read(t.Context(), b); err != nil {
					t.Fatal(err)
				}
				r.deliver(b)
				turns(t, 10, time.Second, r)
				if emptied < times {
					t.Errorf("a.log was emptied at %d looks, want %d", emptied, times)
				}
				r.want(t, d, "4 four", "5 five", "6 six")
				d.wantNoLoss(t)
			})
		})
	}
}

// TestUnreadForLong checks that a possible copy of a permanently unreadable file waits only for
// copy_wait, and that this is logged. When the file becomes readable, it is read on.
func TestUnreadForLong(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, a, _ := earlierRun(t)
		d.put(t, "a.log", "4 four\n")
		d.put(t, "a.log.1", three)
		d.shut = func(name string) error {
			if name == "a.log" {
				return &os.PathError{Op: "open", Path: name, Err: syscall.EACCES}
			}
			return nil
		}
		r := newRoute(t, d.set(follow.Growing{}), a.marks)
		r.run(t, 4*time.Second)
		r.want(t, d)
		r.run(t, 10*time.Second)
		lines := strings.Split(strings.TrimSpace(three), "\n")
		r.want(t, d, lines...)
		if !strings.Contains(d.log.String(), "begins like one that cannot be read") {
			t.Errorf("the log does not say it:\n%s", &d.log)
		}
		d.shut = nil
		r.run(t, time.Minute)
		r.want(t, d, append(lines, "4 four")...)
	})
}

// TestGrowingFileBesideAnUnreadableOne checks that a possible copy of an unreadable file waits no
// longer if it grows meanwhile.
func TestGrowingFileBesideAnUnreadableOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, a, _ := earlierRun(t)
		d.put(t, "a.log.1", three)
		d.shut = func(name string) error {
			if name == "a.log" {
				return &os.PathError{Op: "open", Path: name, Err: syscall.EACCES}
			}
			return nil
		}
		r := newRoute(t, d.set(follow.Growing{}), a.marks)
		r.run(t, 4*time.Second)
		r.want(t, d)
		for range 8 {
			d.put(t, "a.log.1", "4 four\n")
			r.run(t, time.Second)
		}
		if len(r.lines) < 3 {
			t.Errorf("a growing file is not read after 12s; the log:\n%s", &d.log)
		}
	})
}

// TestHeldBackAndGone checks a held-back copy that loses its name. Its data is read in its original
// or under its new name, and no loss is reported. The loss of an unread separate file is reported.
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

// TestHeldBackIsLookedAtSeldom checks that a held-back copy is compared again only when something
// may have changed, or else once in poll_max, and not at each listing.
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
// limit of one open file. Before the restart, change renames a.log to the unlisted name a.old, or
// prepares that. b.log is read first, and a.old cannot be opened a second time.
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
// listing and cannot be opened. A run with Once fails if the file has unread data.
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
