package tail_test

import (
	"fmt"
	"io"
	"io/fs"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/penstock-io/penstock/engine/connector/connectortest"
	"github.com/penstock-io/penstock/stream/streamtest"
	"github.com/penstock-io/penstock/vfs"
)

// fewFS is a file system in which only a limited number of files (most) can be open at once.
type fewFS struct {
	vfs.FS
	most int64
	open atomic.Int64
	top  atomic.Int64 // the most that were open at once
}

func (f *fewFS) OpenDir(path string) (vfs.Dir, error) {
	d, err := f.FS.OpenDir(path)
	if err != nil {
		return nil, err
	}
	return fewDir{d, f}, nil
}

type fewDir struct {
	vfs.Dir
	of *fewFS
}

func (d fewDir) Open(name string) (vfs.File, error) {
	if n := d.of.open.Add(1); n > d.of.most {
		d.of.open.Add(-1)
		return nil, &fs.PathError{Op: "open", Path: name, Err: syscall.EMFILE}
	} else if n > d.of.top.Load() {
		d.of.top.Store(n)
	}
	f, err := d.Dir.Open(name)
	if err != nil {
		d.of.open.Add(-1)
		return nil, err
	}
	return fewFile{f, d.of}, nil
}

type fewFile struct {
	vfs.File
	of *fewFS
}

func (f fewFile) Close() error {
	f.of.open.Add(-1)
	return f.File.Close()
}

// TestRemovedRouteHoldsNoFiles checks that a route that is down keeps its unread files open,
// including deleted ones, and that a removed route keeps none open.
func TestRemovedRouteHoldsNoFiles(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		files := &fewFS{FS: connectortest.FS(), most: 100}
		p := newFixture(t, dir, nil)
		p.host = streamtest.NewQuiet(files, nil, func(name string) bool { return name != "tail/notify" })
		defer p.kill()
		p.start(false)
		p.close()
		w := newWriter(t, p.dir, time.Now())
		for i := range 5 {
			w.append(fmt.Sprintf("%d.log", i), 3)
		}
		stall(10 * time.Second)
		w.remove("0.log")
		stall(10 * time.Second)
		if n := files.open.Load(); n != 5 {
			t.Errorf("%d files are open for a route that is down, want 5", n)
		}
		p.host.SetRoutes()
		stall(10 * time.Second)
		if n := files.open.Load(); n != 0 {
			t.Errorf("%d files are open for a route that was removed", n)
		}
	})
}

// TestFewDescriptors checks that all files are read, and a finite run ends, with fewer descriptors
// than files.
func TestFewDescriptors(t *testing.T) {
	for _, once := range []bool{true, false} {
		dir := t.TempDir()
		synctest.Test(t, func(t *testing.T) {
			files := &fewFS{FS: connectortest.FS(), most: 16}
			p := newFixture(t, dir, nil)
			p.host = streamtest.NewQuiet(files, nil, func(name string) bool { return name != "tail/notify" })
			defer p.kill()
			w := newWriter(t, p.dir, time.Now())
			for i := range 100 {
				w.append(fmt.Sprintf("%02d.log", i), 3)
			}
			p.start(once)
			p.pump(time.Minute)
			if once && p.failed != io.EOF {
				t.Fatalf("the run has not ended: %v; the log:\n%s", p.failed, p.host.Logged())
			}
			if !once {
				for i := range 100 {
					w.append(fmt.Sprintf("%02d.log", i), 3)
				}
				w.rename("00.log", "00.log.1")
				p.pump(time.Minute)
			}
			p.failed = nil
			p.save()
			p.want(w.ledger...)
			log := p.host.Logged()
			if n := strings.Count(log, "too many files open"); n < 1 || n > 4 ||
				strings.Contains(log, "cannot be read") {
				t.Errorf("the limit was logged %d times; the log:\n%s", n, log)
			}
			if files.top.Load() != files.most {
				t.Errorf("%d files were open at once: the limit was never reached", files.top.Load())
			}
		})
	}
}
