package pipeline

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"reflect"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/penstock-io/penstock/engine/config"
	"github.com/penstock-io/penstock/engine/internal/checkpoint"
	"github.com/penstock-io/penstock/stream"
	"github.com/penstock-io/penstock/vfs"
	"github.com/penstock-io/penstock/vfs/vfstest"
)

// crashOut returns the config of crashConfig with another name for the output file.
func crashOut(t *testing.T, fsync, name string) *config.Config {
	t.Helper()
	f := crashConfig(t, fsync, "rename")
	for i := range f.Pipelines[0].Routes {
		reflect.ValueOf(f.Pipelines[0].Routes[i].Sink.Options).Elem().FieldByName("Path").SetString("/job/out/" + name)
	}
	return f
}

// TestRenamedOutput renames an output file, both on disk and in the config. Every later start must
// resume at the file's offset, and the resume token of the old name must not come back.
func TestRenamedOutput(t *testing.T) {
	for _, fsync := range []string{"ack", "interval"} {
		t.Run(fsync, func(t *testing.T) {
			m := vfstest.New()
			want := ""
			run := func(n int, out string) {
				t.Helper()
				text := fmt.Sprintf("the line of run %d\n", n)
				want += text
				if err := m.WriteFile(fmt.Sprintf("/job/spool/%d.log", n),
					[]byte(text)); err != nil {
					t.Fatal(err)
				}
				if err := runOn(t, m, crashOut(t, fsync, out), "one boot"); err != nil {
					t.Fatalf("run %d: %v", n, err)
				}
				if got, err := m.ReadFile("/job/out/" + out); err != nil || string(got) != want {
					t.Fatalf("after run %d the output holds %q (%v), want %q", n, got, err, want)
				}
			}
			run(1, "z.log")
			dir, err := m.OpenDir("/job/out")
			if err != nil {
				t.Fatal(err)
			}
			defer dir.Close()
			if err := errors.Join(dir.Rename("z.log", dir, "a.log"), dir.Sync()); err != nil {
				t.Fatal(err)
			}
			for n := range 3 {
				run(2+n, "a.log")
			}
		})
	}
}

// TestStrayPlaces checks that the resume token of an earlier worker, with another name than the
// present one, is removed from both layers of the checkpoint (see layeredStore). This must also
// happen if an earlier run was killed when it had removed the token from one layer only.
func TestStrayPlaces(t *testing.T) {
	m := vfstest.New()
	dir, err := m.MakeDir("/state", 0o700)
	if err != nil {
		t.Fatal(err)
	}
	defer dir.Close()
	store, _, err := checkpoint.Open(dir, checkpoint.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	layers := newLayeredStore(store, "p/r", true, "boot")
	if err := errors.Join(store.Append(layers.lower, nil, map[string]string{"old": "1"}),
		store.Append(layers.upper, nil, map[string]string{"new": "2"})); err != nil {
		t.Fatal(err)
	}
	if got := layers.resumeTokens(); !maps.Equal(got, map[string]string{"new": "2"}) {
		t.Errorf("places are %v, want those of the upper layer", got)
	}
	if err := errors.Join(layers.save(nil, layers.tokensToDelete("new")),
		layers.synced()); err != nil {
		t.Fatal(err)
	}
	if got := layers.tokensToDelete("new"); len(got) > 0 || len(store.Places(layers.lower)) > 0 {
		t.Errorf("left are %v, and %v in the lower layer", got, store.Places(layers.lower))
	}
}

// TestOwedToTheLowerLayer checks progress that a run has saved without a sync: only in the upper
// layer of the checkpoint, which is valid until the system restarts. After the first sync of the
// next run, the lower layer must have the progress, too, although the next run delivers no data of
// the partition.
func TestOwedToTheLowerLayer(t *testing.T) {
	dir, err := vfstest.New().MakeDir("/state", 0o700)
	if err != nil {
		t.Fatal(err)
	}
	defer dir.Close()
	store, _, err := checkpoint.Open(dir, checkpoint.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	markOf := func(id string, at int64) stream.Mark {
		return stream.Mark{Part: stream.Partition{ID: id, Name: id},
			Watermark: stream.Position{Num: at}}
	}
	first := newLayeredStore(store, "p/r", true, "boot")
	if err := errors.Join(first.save([]stream.Mark{markOf("a", 1), markOf("b", 1)},
		map[string]string{"lane": "1"}), first.synced(),
		first.save([]stream.Mark{markOf("a", 2), markOf("c", 3)},
			map[string]string{"lane": "5"})); err != nil {
		t.Fatal(err)
	}
	second := newLayeredStore(store, "p/r", true, "boot")
	if n := len(second.pendingMarks); n != 2 {
		t.Errorf("%d partitions are owed to the lower layer, want a and c", n)
	}
	if err := second.synced(); err != nil {
		t.Fatal(err)
	}
	for id, at := range map[string]int64{"a": 2, "b": 1, "c": 3} {
		if mark, ok := store.Mark("p/r", id); !ok || mark.Watermark.Num != at {
			t.Errorf("the lower layer has %s at %d, %v; want %d", id, mark.Watermark.Num, ok, at)
		}
	}
	if got := store.Places("p/r"); got["lane"] != "5" {
		t.Errorf("the lower layer's places are %v", got)
	}
}

// TestOutputThatNeverWas runs a job that delivers nothing, for example because of a wrong path.
// Then the config names another output file. This must not count as a lost output: the next runs
// must deliver all data to the new file, once.
func TestOutputThatNeverWas(t *testing.T) {
	m := vfstest.New()
	if err := m.WriteFile("/job/spool/.empty", nil); err != nil {
		t.Fatal(err)
	}
	if err := runOn(t, m, crashOut(t, "ack", "first.log"), "one boot"); err != nil {
		t.Fatal(err)
	}
	if err := m.WriteFile("/job/spool/1.log", []byte("a line\n")); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := runOn(t, m, crashOut(t, "ack", "second.log"), "one boot"); err != nil {
			t.Fatal(err)
		}
		if got, err := m.ReadFile("/job/out/second.log"); err != nil || string(got) != "a line\n" {
			t.Errorf("the output holds %q, %v", got, err)
		}
	}
}

// TestNoState checks that an error about an unusable state directory contains the remedy.
func TestNoState(t *testing.T) {
	for _, c := range []struct {
		op     vfstest.Op
		err    error
		remedy string
	}{
		{vfstest.OpMakeDir, fs.ErrPermission, "let this user write there"},
		{vfstest.OpLock, syscall.ENOSPC, "make room on its disk"},
		{vfstest.OpLock, vfs.ErrLocked, "stop the other penstock"},
	} {
		m := vfstest.New()
		m.Fail(vfstest.Fault{Op: c.op, Err: c.err})
		e := fakeJob(t, m, Options{}, &fakeSource{},
			config.Route{Sink: use(stream.SinkRole, &fakeSink{})})
		err := e.Run(t.Context())
		if !errors.Is(err, c.err) || !strings.Contains(err.Error(), c.remedy) ||
			strings.Count(err.Error(), "`state:`") != 1 {
			t.Errorf("%s fails with %v: %v, want %q and the key", c.op, c.err, err, c.remedy)
		}
	}
}

// countFS counts the directories that are open.
type countFS struct {
	vfs.FS
	open atomic.Int64
	fail string // creating this directory fails
}

type countDir struct {
	vfs.Dir
	closed atomic.Bool
	fs     *countFS
}

// MakeDir implements vfs.FS.
func (c *countFS) MakeDir(path string, perm fs.FileMode) (vfs.Dir, error) {
	if path == c.fail {
		return nil, errors.New("the disk is full")
	}
	dir, err := c.FS.MakeDir(path, perm)
	if err != nil {
		return nil, err
	}
	c.open.Add(1)
	return &countDir{Dir: dir, fs: c}, nil
}

// Close implements vfs.Dir.
func (d *countDir) Close() error {
	if !d.closed.Swap(true) {
		d.fs.open.Add(-1)
	}
	return d.Dir.Close()
}

// TestPrepareLeavesNothingOpen checks that all routes close everything that they have opened if one
// of them cannot be prepared.
func TestPrepareLeavesNothingOpen(t *testing.T) {
	counted := &countFS{FS: vfstest.New(), fail: "/full"}
	e := fakeJob(t, vfstest.New(), Options{}, &fakeSource{},
		config.Route{Sink: use(stream.SinkRole, &fakeSink{})},
		config.Route{Sink: use(stream.SinkRole, &fakeSink{})})
	e.o.FS = counted
	e.pipes[0].slots[1].route.cfg.DeadLetters.Dir = counted.fail
	if err := e.Run(t.Context()); err == nil {
		t.Fatal("Run says that all is well")
	}
	if n := counted.open.Load(); n != 0 {
		t.Errorf("%d directories are open after a Run that could not begin", n)
	}
}
