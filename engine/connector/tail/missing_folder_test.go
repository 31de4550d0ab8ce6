package tail_test

import (
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/penstock-io/penstock/engine/connector/connectortest"
	"github.com/penstock-io/penstock/engine/connector/tail"
	"github.com/penstock-io/penstock/stream/streamtest"
	"github.com/penstock-io/penstock/vfs"
)

// elsewhere is a file system that can simulate the empty mount point of an unmounted volume. While
// on is set, it reports another device for folders than before.
type elsewhere struct {
	vfs.FS
	on bool
}

func (e *elsewhere) OpenDir(name string) (vfs.Dir, error) {
	d, err := e.FS.OpenDir(name)
	return elsewhereDir{d, e}, err
}

type elsewhereDir struct {
	vfs.Dir
	of *elsewhere
}

func (d elsewhereDir) Stat(name string) (vfs.Info, error) {
	info, err := d.Dir.Stat(name)
	if d.of.on && info.Mode.IsDir() {
		info.Dev++
	}
	return info, err
}

// vanishingFolder is a fixture with logs in a folder that disappears and reappears.
type vanishingFolder struct {
	*fixture
	disk *elsewhere
	logs string
	want []string
}

func newVanishingFolder(t *testing.T) *vanishingFolder {
	dir := t.TempDir()
	a := &vanishingFolder{disk: &elsewhere{FS: connectortest.FS()},
		logs: filepath.Join(dir, "logs")}
	a.fixture = newFixture(t, dir, func(o *tail.Options) {
		o.Include, o.Forget = []string{filepath.Join(a.logs, "*.log")}, time.Minute
	})
	a.host = streamtest.NewQuiet(a.disk, nil,
		func(name string) bool { return name != "tail/notify" })
	if err := os.Mkdir(a.logs, 0o755); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"a.log", "b.log", "c.log"} {
		a.line(name, "first")
	}
	return a
}

// ranBefore performs an earlier run, which reads and saves all lines and is killed.
func (a *vanishingFolder) ranBefore() {
	a.start(false)
	a.pump(10 * time.Second)
	a.save()
	a.kill()
}

// line appends a line to a file and expects its delivery.
func (a *vanishingFolder) line(name, what string) {
	a.t.Helper()
	text := fmt.Sprintf("%s of %s\n", what, name)
	f, err := os.OpenFile(filepath.Join(a.logs, name), os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o644)
	if err == nil {
		_, err = f.WriteString(text)
	}
	if err == nil {
		err = f.Close()
	}
	if err != nil {
		a.t.Fatal(err)
	}
	a.want = append(a.want, text[:len(text)-1])
}

func (a *vanishingFolder) must(err error) {
	a.t.Helper()
	if err != nil {
		a.t.Fatal(err)
	}
}

func (a *vanishingFolder) vanish()            { a.must(os.Rename(a.logs, a.logs+" are away")) }
func (a *vanishingFolder) comeBack()          { a.must(os.Rename(a.logs+" are away", a.logs)) }
func (a *vanishingFolder) at(n string) string { return filepath.Join(a.logs, n) }

// check compares the delivered lines with the expected ones.
func (a *vanishingFolder) check() {
	a.t.Helper()
	a.save()
	a.fixture.want(a.want...)
	if a.second != nil {
		a.second.save()
		a.second.want(a.want...)
	}
}

const long = 3 * time.Minute // longer than copy_wait and forget

// TestFolderMissing checks that the files of a missing folder do not count as deleted, however long
// it is missing, before startup or after it. When it reappears, data already read is not read
// again, even if the files were changed meanwhile.
func TestFolderMissing(t *testing.T) {

	for _, c := range []struct {
		name string
		away func(a *vanishingFolder) // while the process is down
	}{
		{"nothing done", func(*vanishingFolder) {}},
		{"lines added", func(a *vanishingFolder) { a.line("a.log", "second"); a.line("b.log", "second") }},
		{"renamed and created again", func(a *vanishingFolder) {
			a.line("a.log", "last")
			a.must(os.Rename(a.at("a.log"), a.at("a.log.1")))
			a.line("a.log", "new")
		}},
		{"copied and truncated", func(a *vanishingFolder) {
			a.line("a.log", "last")
			text, err := os.ReadFile(a.at("a.log"))
			a.must(err)
			write(a.t, a.at("a.log.1"), string(text))
			a.must(os.Truncate(a.at("a.log"), 0))
			a.line("a.log", "new")
		}},
		{"a copy that is listed", func(a *vanishingFolder) {
			a.line("b.log", "last")
			text, err := os.ReadFile(a.at("b.log"))
			a.must(err)
			write(a.t, a.at("b2.log"), string(text))
			a.must(os.Truncate(a.at("b.log"), 0))
		}},
		{"one deleted", func(a *vanishingFolder) { a.must(os.Remove(a.at("c.log"))); a.line("d.log", "first") }},
	} {
		for _, how := range []string{"at the start", "mounted late", "at two starts",
			"while it runs", "with two routes"} {
			t.Run(c.name+", "+how, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					a := newVanishingFolder(t)
					if how == "with two routes" {
						a.withSecond()
					}
					a.start(false)
					a.pump(10 * time.Second)
					a.save()
					if how != "while it runs" {
						a.kill()
						c.away(a)
					}
					a.vanish()
					if how == "mounted late" {
						a.disk.on = true
						a.must(os.Mkdir(a.logs, 0o755))
					}
					if how != "while it runs" {
						a.start(false)
					}
					a.pump(long)
					if how == "at two starts" {
						a.kill()
						a.start(false)
						a.pump(long)
					}
					if how == "mounted late" {
						a.disk.on = false
						a.must(os.Remove(a.logs))
					}
					a.comeBack()
					if how == "while it runs" {
						a.pump(time.Minute)
						c.away(a)
					}
					a.pump(time.Minute)
					a.line("a.log", "the last")
					a.pump(time.Minute)
					a.check()
					a.kill()
				})
			})
		}
	}
}

// TestFolderEmptied checks that an emptied folder does not count as missing: the source does not
// wait for its files, and their stored progress is dropped.
func TestFolderEmptied(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newVanishingFolder(t)
		a.ranBefore()
		a.must(os.RemoveAll(a.logs))
		a.must(os.Mkdir(a.logs, 0o755))
		a.start(false)
		a.pump(time.Minute)
		a.check()
		if len(a.saved) != 0 {
			t.Errorf("%d marks are kept of files that were deleted", len(a.saved))
		}
		a.kill()
	})
}

// TestFolderMissingOnce checks that a run with Once does not wait for a missing folder, and keeps
// the progress of its files for the next run.
func TestFolderMissingOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newVanishingFolder(t)
		a.ranBefore()
		a.vanish()
		a.start(true)
		begun := time.Now()
		a.pump(long)
		if took := time.Since(begun); took > 5*time.Second || a.failed == nil {
			t.Errorf("the run took %v, and ended with %v", took, a.failed)
		}
		a.failed = nil
		a.save()
		a.kill()
		a.comeBack()
		a.line("b.log", "second")
		a.start(false)
		a.pump(time.Minute)
		a.check()
		a.kill()
	})
}

// unlistable is a file system. While it is switched on (field on), its folder "sub" cannot be read.
type unlistable struct {
	vfs.FS
	on bool
}

func (u *unlistable) OpenDir(name string) (vfs.Dir, error) {
	d, err := u.FS.OpenDir(name)
	return unlistableDir{d, u}, err
}

type unlistableDir struct {
	vfs.Dir
	of *unlistable
}

func (d unlistableDir) Entries(name string) ([]vfs.Entry, error) {
	if d.of.on && name == "sub" {
		return nil, fmt.Errorf("list %s: %w", name, syscall.EACCES)
	}
	return d.Dir.Entries(name)
}

// TestFolderCannotBeRead checks that the files of a folder that cannot be read for a long time do
// not count as deleted. When it can be read again, data already read is not read again.
func TestFolderCannotBeRead(t *testing.T) {
	for _, open := range []int{1, 100} { // how many of the files are held open
		t.Run(fmt.Sprint(open, " open"), func(t *testing.T) {
			bubble(t, nil, func(t *testing.T, p *fixture) {
				disk := &unlistable{FS: connectortest.FS()}
				p.host = streamtest.NewQuiet(disk, nil,
					func(name string) bool { return name != "tail/notify" })
				p.change = func(o *tail.Options) {
					o.Include, o.OpenFiles = []string{"*/*.log"}, open
				}
				w := newWriter(t, p.dir, time.Now())
				w.mkdir("sub")
				w.append("sub/a.log", 2)
				w.append("sub/b.log", 2)
				p.start(false)
				p.pump(5 * time.Second)
				disk.on = true
				p.pump(time.Second)
				w.append("sub/a.log", 2)
				w.append("sub/b.log", 2)
				p.pump(long)
				disk.on = false
				p.pump(5 * time.Second)
				p.save()
				p.want(w.ledger...)
				if n := p.host.Counted("files_vanished"); n != 0 {
					t.Errorf("files_vanished is %d; the log:\n%s", n, p.host.Logged())
				}
			})
		})
	}
}
