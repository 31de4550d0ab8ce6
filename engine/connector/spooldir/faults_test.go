package spooldir_test

import (
	"context"
	"errors"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/penstock-io/penstock/engine/connector/spooldir"
	"github.com/penstock-io/penstock/stream"
	"github.com/penstock-io/penstock/vfs/vfstest"
)

// faulty runs a test in fake time over a file system with injectable faults.
func faulty(t *testing.T, change func(*spooldir.Options),
	run func(t *testing.T, m *vfstest.Mem, w *fixture)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		m := vfstest.New()
		m.SetClock(time.Now)
		if _, err := m.MakeDir("/spool", 0o755); err != nil {
			t.Fatal(err)
		}
		run(t, m, newFixture(t, "/spool", m, change))
	})
}

func plant(t *testing.T, m *vfstest.Mem, name, text string) {
	t.Helper()
	if err := m.WriteFile(name, []byte(text)); err != nil {
		t.Fatal(err)
	}
}

// TestUnreadable checks that a file that cannot be opened or read is reported once and tried again,
// while the other files are read.
func TestUnreadable(t *testing.T) {
	for _, op := range []vfstest.Op{vfstest.OpOpen, vfstest.OpRead} {
		faulty(t, nil, func(t *testing.T, m *vfstest.Mem, w *fixture) {
			plant(t, m, "/spool/a.log", "a\n")
			plant(t, m, "/spool/b.log", "b\n")
			m.Fail(vfstest.Fault{Op: op, Path: "a.log", Lasting: true, Err: syscall.EIO})
			w.open(false)
			defer w.close()
			w.pump(20 * time.Second)
			w.want("b.log: b\n")
			if n := strings.Count(w.host.Logged(), "a file cannot be read"); n != 1 ||
				w.host.Counted("files_unreadable") != 1 {
				t.Errorf("%s fails: it was logged %d times, want once", op, n)
			}
			if struck := m.Heal(); struck < 3 || struck > 10 {
				t.Errorf("%s fails: tried %d times in 20 s, want 3 to 10", op, struck)
			}
			w.pump(35 * time.Second)
			w.want("b.log: b\n", "a.log: a\n")
			if !strings.Contains(w.host.Logged(), "a file can be read again") {
				t.Error("the log does not say that the file can be read again")
			}
		})
	}
}

// TestOnceWithUnreadableFinished checks that a run with Once fails if a finished file has grown
// since the last run, and cannot be read.
func TestOnceWithUnreadableFinished(t *testing.T) {
	faulty(t, nil, func(t *testing.T, m *vfstest.Mem, w *fixture) {
		plant(t, m, "/spool/a.log", "a\n")
		if err := w.once(); err != nil {
			t.Fatal(err)
		}
		plant(t, m, "/spool/a.log.done", "a\nmore\n")
		m.Fail(vfstest.Fault{
			Op: vfstest.OpOpen, Path: "a.log.done", Lasting: true, Err: syscall.EIO,
		})
		w.src = w.host.source(options(w.dir, nil))
		const want = `1 files could not be read, the first is "a.log.done"`
		if err := w.once(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("the run ended with %v", err)
		}
	})
}

// TestListingFailsForLong checks a directory that cannot be listed for so long that the route
// fails. After the directory is readable again, a new reader must continue, even if another route
// of the source is stalled meanwhile.
func TestListingFailsForLong(t *testing.T) {
	faulty(t, nil, func(t *testing.T, m *vfstest.Mem, w *fixture) {
		stalled := must(w.src.Open(t.Context(), stream.OpenOptions{Route: "stalled"}))
		defer stalled.Close()
		plant(t, m, "/spool/a.log", "a\n")
		w.open(false)
		w.pump(5 * time.Second)
		m.Fail(vfstest.Fault{Op: vfstest.OpList, Path: "spool", Lasting: true, Err: syscall.EIO})
		for err := error(nil); err == nil; {
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			err = w.step(ctx)
			if err != nil && !strings.Contains(err.Error(), "list the directory") {
				t.Fatalf("Read: %v, want an error of the directory", err)
			}
			cancel()
		}
		w.close()
		m.Heal()
		w.open(false)
		defer w.close()
		w.pump(5 * time.Second)
		w.want("a.log: a\n")
	})
}

// TestOnceWithUnreadable checks that a run with Once fails if a file could not be read.
func TestOnceWithUnreadable(t *testing.T) {
	faulty(t, nil, func(t *testing.T, m *vfstest.Mem, w *fixture) {
		plant(t, m, "/spool/a.log", "a\n")
		plant(t, m, "/spool/b.log", "b\n")
		m.Fail(vfstest.Fault{Op: vfstest.OpOpen, Path: "a.log", Lasting: true, Err: syscall.EACCES})
		err := w.once()
		if !errors.Is(err, syscall.EACCES) ||
			!strings.Contains(err.Error(), `1 files could not be read, the first is "a.log"`) {
			t.Errorf("once: %v", err)
		}
		w.want("b.log: b\n")
	})
}

// TestRenameRefused checks a failing rename, which stops Apache Flume. The data is not delivered
// again, and the file is finished later.
func TestRenameRefused(t *testing.T) {
	for _, finished := range []string{"rename", "delete"} {
		change := func(o *spooldir.Options) { o.Finished = finished }
		faulty(t, change, func(t *testing.T, m *vfstest.Mem, w *fixture) {
			op := map[string]vfstest.Op{"rename": vfstest.OpRename, "delete": vfstest.OpRemove}[finished]
			plant(t, m, "/spool/a.log", "a\n")
			m.Fail(vfstest.Fault{Op: op, Lasting: true, Err: syscall.EACCES})
			w.open(false)
			defer w.close()
			w.pump(5 * time.Second)
			plant(t, m, "/spool/b.log", "b\n")
			w.pump(5 * time.Second)
			w.want("a.log: a\n", "b.log: b\n")
			if len(w.refused) == 0 || !errors.Is(w.refused[0], syscall.EACCES) || len(w.pending) != 2 {
				t.Fatalf("Finish: %v, %d files wait", w.refused, len(w.pending))
			}
			m.Heal()
			w.pump(time.Second)
			if len(w.pending) != 0 {
				t.Errorf("%d files still wait: %v", len(w.pending), w.refused[len(w.refused)-1])
			}
		})
	}
}

// TestListingFails checks a directory that cannot be listed for a while.
func TestListingFails(t *testing.T) {
	faulty(t, nil, func(t *testing.T, m *vfstest.Mem, w *fixture) {
		w.open(false)
		defer w.close()
		m.Fail(vfstest.Fault{Op: vfstest.OpList, Lasting: true, Err: syscall.EIO})
		w.pump(5 * time.Second)
		plant(t, m, "/spool/a.log", "a\n")
		if n := strings.Count(w.host.Logged(), "cannot be listed"); n != 1 {
			t.Errorf("it was logged %d times, want once", n)
		}
		m.Heal()
		w.pump(5 * time.Second)
		w.want("a.log: a\n")
	})
}

// TestPowerLoss checks that after a power loss at any moment, during any rename or deletion, no
// data is lost and no settled data is delivered twice.
func TestPowerLoss(t *testing.T) {
	for _, finished := range []string{"rename", "delete"} {
		synctest.Test(t, func(t *testing.T) {
			m := vfstest.New()
			m.SetClock(time.Now)
			dir, err := m.MakeDir("/spool", 0o755)
			if err != nil {
				t.Fatal(err)
			}
			for _, name := range []string{"a.log", "b.log", "c.log"} {
				plant(t, m, "/spool/"+name, name+"\n")
			}
			if err := dir.Sync(); err != nil {
				t.Fatal(err)
			}
			change := func(o *spooldir.Options) { o.Finished = finished }
			var first *fixture
			crashes := 0
			for crash := range vfstest.CrashesFrom(t, 1, m, func(m *vfstest.Mem) {
				first = newFixture(t, "/spool", m, change)
				first.limits = stream.BatchLimits{Bytes: 1}
				if err := first.once(); err != nil {
					t.Error(err)
				}
			}) {
				crashes++
				again := newFixture(t, "/spool", crash.FS, change)
				again.store = first.store.clone()
				if err := again.once(); err != nil {
					t.Fatalf("%v: %v", crash, err)
				}
				if got := again.texts(); !slices.Equal(got,
					[]string{"a.log: a.log\n", "b.log: b.log\n", "c.log: c.log\n"}) {
					t.Fatalf("%v: delivered %q", crash, got)
				}
			}
			if crashes < 6 {
				t.Errorf("%s: only %d crashes were tried", finished, crashes)
			}
		})
	}
}

// TestFinishedBelowSurvivesPowerLoss checks that a finished file in a subdirectory keeps its new
// name after a power loss.
func TestFinishedBelowSurvivesPowerLoss(t *testing.T) {
	for finished, want := range map[string]string{
		"move": "/done/sub/a.log", "rename": "/spool/sub/a.log.done", "delete": "",
	} {
		change := func(o *spooldir.Options) {
			o.Recursive, o.Finished = true, finished
			if finished == "move" {
				o.MoveTo = "/done"
			}
		}
		run := func(t *testing.T, m *vfstest.Mem, w *fixture) {
			for _, dir := range []string{"/spool/sub", "/done"} {
				if _, err := m.MakeDir(dir, 0o755); err != nil {
					t.Fatal(err)
				}
			}
			plant(t, m, "/spool/sub/a.log", "a\n")
			w.open(false)
			w.pump(5 * time.Second)
			w.close()
			after := m.Crash(vfstest.DataAll, vfstest.NamesNone, 1)
			for _, name := range []string{
				"/spool/sub/a.log", "/spool/sub/a.log.done", "/done/sub/a.log",
			} {
				dir, err := after.OpenDir(filepath.Dir(name))
				if err == nil {
					_, err = dir.Stat(filepath.Base(name))
				}
				if (err == nil) != (name == want) {
					t.Errorf("after a power loss, %s: %v", name, err)
				}
			}
		}
		t.Run(finished, func(t *testing.T) { faulty(t, change, run) })
	}
}
