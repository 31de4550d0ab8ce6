package checkpoint

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/penstock-io/penstock/engine/internal/osfs"
	"github.com/penstock-io/penstock/stream"
	"github.com/penstock-io/penstock/vfs/vfstest"
)

// TestRoundTrip performs random steps on a store and on a model. Between the steps, the store is
// sometimes synced, replaced by a snapshot or reopened. Its contents must always be those of the
// model.
func TestRoundTrip(t *testing.T) {
	for s := range uint64(8) {
		rng := rand.New(rand.NewPCG(seed, s))
		dir := stateDir(t, vfstest.New())
		o := Options{Factor: 1 + rng.IntN(3), Slack: int64(1 + rng.IntN(4000)),
			Warn: func(err error) { t.Error(err) }}
		store, report := mustOpen(t, dir, o)
		if !report.Fresh {
			t.Errorf("first Open: %v; want Fresh", report)
		}
		model := newModel()
		for i, st := range steps(rng, 100) {
			must(t, st.on(store))
			st.onModel(model)
			switch rng.IntN(10) {
			case 0:
				must(t, store.Sync())
			case 1:
				must(t, store.Close())
				store, report = mustOpen(t, dir, o)
				if report.Fresh || report.Cut != 0 || report.Damage != "" ||
					len(report.Aside) != 0 {
					t.Fatalf("seed %d step %d: clean reopening reports %+v", s, i, report)
				}
			}
			if got, want := contents(store).String(), model.String(); got != want {
				t.Fatalf("seed %d step %d: the store holds\n%s\nwant\n%s", s, i, got, want)
			}
			snapshot, _, err := Read(dir)
			if err != nil || snapshot.model().String() != model.String() {
				t.Fatalf("seed %d step %d: Read: %v, or not what the store holds", s, i, err)
			}
			if live, size := store.Size(); size > max(o.Slack, int64(o.Factor-1)*live)+live+o.Slack+2000 {
				t.Fatalf("seed %d step %d: the log has %d bytes, %d alive", s, i, size, live)
			}
		}
		must(t, store.Close())
	}
}

func TestMarkAndMarks(t *testing.T) {
	store, _ := mustOpen(t, stateDir(t, vfstest.New()), Options{})
	m := stream.Mark{
		Part: stream.Partition{ID: "p", Name: "n"}, Watermark: stream.Position{Num: 5},
		Above: []stream.Range{{From: stream.Position{Num: 7}, To: stream.Position{Num: 9}}},
	}
	must(t, store.Append("r", []stream.Mark{m}, nil))
	m.Above[0].To.Num = 99 // the store must not retain the caller's slice
	got, ok := store.Mark("r", "p")
	if !ok || got.Above[0].To.Num != 9 {
		t.Errorf("Mark = %+v, %v; want To 9", got, ok)
	}
	got.Above[0].To.Num = 77 // nor return its own
	if again, _ := store.Mark("r", "p"); again.Above[0].To.Num != 9 {
		t.Errorf("Mark = %+v; want To 9", again)
	}
	if _, ok := store.Mark("r", "q"); ok {
		t.Error("Mark of a partition that was never saved: true")
	}
	if _, ok := store.Mark("s", "p"); ok {
		t.Error("Mark of a route that was never saved: true")
	}
	for range store.Marks("r") { // the loop body may use the store
		must(t, store.Append("r", []stream.Mark{{Part: stream.Partition{ID: "q"}}}, nil))
		must(t, store.Forget("r", []string{"p"}))
	}
	for m := range store.Marks("r") {
		if m.Part.ID != "q" {
			t.Errorf("Marks yields %q, want q alone", m.Part.ID)
		}
	}
	must(t, store.Append("r", nil, nil))
	must(t, store.Forget("none", []string{"p"}))
	if routes := fmt.Sprint(store.Routes()); routes != "[r]" {
		t.Errorf("Routes = %s, want [r]", routes)
	}
}

// TestTwiceInOneAppend sets a partition twice in one Append. The last value must count, for new and
// for known partitions.
func TestTwiceInOneAppend(t *testing.T) {
	dir := stateDir(t, vfstest.New())
	store, _ := mustOpen(t, dir, Options{})
	mark := func(name string, at int64) stream.Mark {
		return stream.Mark{Part: stream.Partition{ID: "p", Name: name},
			Watermark: stream.Position{Num: at}}
	}
	for _, marks := range [][]stream.Mark{
		{mark("a", 1), mark("b", 2)}, {mark("c", 3), mark("b", 4)},
		{mark("b", 5), mark("c", 6), mark("b", 7)},
	} {
		must(t, store.Append("r", marks, nil))
		want := marks[len(marks)-1]
		if got, _ := store.Mark("r", "p"); fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("Mark = %v, want %v", got, want)
		}
		read, report, err := Read(dir)
		if err != nil || len(read.Routes[0].Marks) != 1 ||
			fmt.Sprint(read.Routes[0].Marks[0]) != fmt.Sprint(want) || report.Marks != 1 {
			t.Errorf("Read = %+v, %+v, %v; want %v", read, report, err, want)
		}
	}
	must(t, store.Forget("r", []string{"p", "p"}))
	if read, report, err := Read(dir); err != nil || len(read.Routes) != 0 || report.Marks != 0 {
		t.Errorf("Read after Forget = %+v, %v; want nothing", read, err)
	}
}

func TestReadNothing(t *testing.T) {
	dir := stateDir(t, vfstest.New())
	if _, _, err := Read(dir); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("Read of no checkpoint = %v, want fs.ErrNotExist", err)
	}
}

func TestAppendIsOneWriteWithoutAllocation(t *testing.T) {
	m := vfstest.New()
	store, _ := mustOpen(t, stateDir(t, m), Options{})
	marks := []stream.Mark{{Part: stream.Partition{ID: "p", Name: "n"},
		Above: make([]stream.Range, 3)}}
	must(t, store.Append("r", marks, nil))
	before := len(m.Calls())
	marks[0].Watermark.Num++
	must(t, store.Append("r", marks, nil))
	if calls := m.Calls()[before:]; len(calls) != 1 || calls[0].Op != vfstest.OpWrite {
		t.Errorf("one Append makes the calls %v, want one write", calls)
	}
	dir, err := osfs.New().OpenDir(t.TempDir())
	must(t, err)
	store, _ = mustOpen(t, dir, Options{})
	must(t, store.Append("r", marks, nil))
	if n := testing.AllocsPerRun(1000, func() {
		marks[0].Watermark.Num += 1000
		must(t, store.Append("r", marks, nil))
	}); n != 0 {
		t.Errorf("an Append of a known partition allocates %v times, want 0", n)
	}
	must(t, store.Close())
}

func TestModeAndPath(t *testing.T) {
	root := t.TempDir()
	dir, err := osfs.New().OpenDir(root)
	must(t, err)
	store, report := mustOpen(t, dir, Options{})
	info, err := os.Stat(filepath.Join(root, Name))
	if err != nil || info.Mode() != 0o600 {
		t.Errorf("mode %v, %v; want 0600", info.Mode(), err)
	}
	if !strings.Contains(report.String(), filepath.Join(root, Name)) {
		t.Errorf("report %q does not name the file", report)
	}
	must(t, store.Close())
}

func TestClosed(t *testing.T) {
	store, _ := mustOpen(t, stateDir(t, vfstest.New()), Options{})
	must(t, store.Close())
	must(t, store.Close())
	mark := []stream.Mark{{Part: stream.Partition{ID: "p"}}}
	for _, err := range []error{store.Append("r", mark, nil), store.Forget("r", []string{"p"}),
		store.Sync()} {
		if !errors.Is(err, ErrClosed) {
			t.Errorf("after Close: %v, want ErrClosed", err)
		}
	}
}

func TestFailedSyncPoisons(t *testing.T) {
	m := vfstest.New()
	dir := stateDir(t, m)
	store, _ := mustOpen(t, dir, Options{})
	mark := func(at int64) []stream.Mark {
		return []stream.Mark{{Part: stream.Partition{ID: "p"}, Watermark: stream.Position{Num: at}}}
	}
	must(t, store.Append("r", mark(1), nil))
	must(t, store.Sync())
	must(t, store.Append("r", mark(2), nil))
	m.Fail(vfstest.Fault{Op: vfstest.OpSync, Err: syscall.EIO})
	for _, err := range []error{
		store.Sync(), store.Sync(), store.Append("r", mark(3), nil),
		store.Forget("r", []string{"p"}), store.Sync(),
	} {
		if !errors.Is(err, syscall.EIO) || !strings.Contains(err.Error(), "/state/"+Name) {
			t.Errorf("after a failed sync: %v, want EIO and the file", err)
		}
	}
	must(t, store.Close())
	again, _ := mustOpen(t, stateDir(t, m.Crash(vfstest.DataNone, vfstest.NamesNone, seed)),
		Options{})
	if got, _ := again.Mark("r", "p"); got.Watermark.Num != 1 {
		t.Errorf("after a power loss: %v, want what was synced, 1", got)
	}
}

// TestFailedWriteIsCutOff fills the disk in the middle of an entry. The incomplete entry must be
// removed, so that later entries can be written and read once the disk has room. If it cannot be
// removed, all later calls must fail, and the next Open must ignore it.
func TestFailedWriteIsCutOff(t *testing.T) {
	m := vfstest.New()
	dir := stateDir(t, m)
	store, _ := mustOpen(t, dir, Options{})
	mark := []stream.Mark{{Part: stream.Partition{ID: "p"}, Watermark: stream.Position{Num: 1}}}
	must(t, store.Append("r", mark, nil))
	for _, short := range []int{0, 1, 9, 1000} {
		m.Fail(vfstest.Fault{Op: vfstest.OpWrite, Err: syscall.ENOSPC, Short: short})
		lost := []stream.Mark{{Part: stream.Partition{ID: fmt.Sprint("lost", short)}}}
		if err := store.Append("r", lost, nil); !errors.Is(err, syscall.ENOSPC) {
			t.Fatalf("Append on a full disk = %v, want ENOSPC", err)
		}
		mark[0].Watermark.Num++
		must(t, store.Append("r", mark, nil))
		read, report, err := Read(dir)
		if err != nil || report.Cut != 0 || report.Marks != 1 ||
			read.Routes[0].Marks[0].Watermark != mark[0].Watermark {
			t.Errorf("Read = %+v, %v, %v; want %v", read, report, err, mark)
		}
	}
	m.Fail(vfstest.Fault{Op: vfstest.OpWrite, Err: syscall.ENOSPC, Short: 5})
	m.Fail(vfstest.Fault{Op: vfstest.OpTruncate, Err: syscall.EIO})
	first := store.Append("r", mark, nil)
	if !errors.Is(first, syscall.ENOSPC) || !errors.Is(first, syscall.EIO) &&
		!errors.Is(store.Sync(), syscall.EIO) {
		t.Errorf("Append that could not be cut off = %v; want both errors", first)
	}
	if err := store.Append("r", mark, nil); !errors.Is(err, syscall.EIO) {
		t.Errorf("Append after it = %v; want the store poisoned", err)
	}
	must(t, store.Close())
	again, report := mustOpen(t, dir, Options{})
	if got, _ := again.Mark("r", "p"); got.Watermark != mark[0].Watermark || report.Cut != 5 {
		t.Errorf("reopened: %v, %v; want %v and 5 bytes cut", got, report, mark)
	}
}

// TestReplaceThatCannotBe keeps the disk full when the log should be replaced. The old log must
// stay in use.
func TestReplaceThatCannotBe(t *testing.T) {
	for _, op := range []vfstest.Op{vfstest.OpOpen, vfstest.OpWrite, vfstest.OpSync,
		vfstest.OpRename} {
		m := vfstest.New()
		dir := stateDir(t, m)
		warned := 0
		store, _ := mustOpen(t, dir, Options{Factor: 1, Slack: 500, Warn: func(error) { warned++ }})
		mark := []stream.Mark{{Part: stream.Partition{ID: "p"}}}
		path := newName
		if op == vfstest.OpRename {
			path = Name
		}
		m.Fail(vfstest.Fault{Op: op, Path: path, Lasting: true, Err: syscall.ENOSPC})
		for i := range 100 {
			mark[0].Watermark.Num = int64(i)
			must(t, store.Append("r", mark, nil))
			must(t, store.Sync())
		}
		_, size := store.Size()
		if warned == 0 || warned > 20 || size < 500 {
			t.Errorf("%s: warned %d times, log of %d bytes; want some, not each time, "+
				"and the old log going on", op, warned, size)
		}
		m.Heal()
		for i := range 100 {
			mark[0].Watermark.Num = int64(100 + i)
			must(t, store.Append("r", mark, nil))
			must(t, store.Sync())
		}
		if live, size := store.Size(); size > live+600 {
			t.Errorf("%s: with space again the log has %d bytes, %d alive", op, size, live)
		}
		read, _, err := Read(dir)
		if err != nil || read.Routes[0].Marks[0].Watermark.Num != 199 {
			t.Errorf("%s: Read = %+v, %v; want 199", op, read, err)
		}
	}
}

// TestMigration opens a log like a later version of the program. That version converts the log to
// its own format. This version must then refuse the log, and name the command that converts it
// back.
func TestMigration(t *testing.T) {
	w := writeSteps(t, steps(rand.New(rand.NewPCG(seed, 1)), 20))
	m, dir := memory(t, w.log)
	later, report := mustOpen(t, dir, Options{version: version + 1})
	if want := fmt.Sprintf("%s.v%d-1", Name, version); len(report.Aside) != 1 ||
		report.Aside[0] != want {
		t.Fatalf("migration keeps %v, want %s", report.Aside, want)
	}
	if got, err := m.ReadFile("/state/" + report.Aside[0]); !bytes.Equal(got, w.log) || err != nil {
		t.Errorf("the copy has %d bytes, %v; want the %d of the log", len(got), err, len(w.log))
	}
	if got := contents(later).String(); got != w.held[len(w.held)-1] {
		t.Errorf("migrated: %s", got)
	}
	must(t, later.Close())
	newer, err := m.ReadFile("/state/" + Name)
	must(t, err)
	_, _, openErr := Open(dir, Options{})
	_, _, readErr := Read(dir)
	for _, err := range []error{openErr, readErr} {
		want := fmt.Sprint("format is ", version+1)
		if !errors.Is(err, errVersion) || !strings.Contains(err.Error(), "/state/"+Name) ||
			!strings.Contains(err.Error(), want) ||
			!strings.Contains(err.Error(), "`penstock checkpoint convert --format 3 /state`") {
			t.Errorf("a newer log: %v; want file, format, errVersion and the command", err)
		}
	}
	if got, _ := m.ReadFile("/state/" + Name); !bytes.Equal(got, newer) {
		t.Error("the refused log was changed")
	}
}

func TestConcurrentUse(t *testing.T) {
	dir, err := osfs.New().OpenDir(t.TempDir())
	must(t, err)
	store, _ := mustOpen(t, dir, Options{Factor: 1, Slack: 20_000})
	const workers, rounds = 4, 300
	var wg sync.WaitGroup
	for w := range workers {
		route := fmt.Sprint("pipeline/", w)
		wg.Add(3)
		go func() {
			defer wg.Done()
			for i := range rounds {
				part := stream.Partition{ID: fmt.Sprint(i % 7), Name: "n"}
				mark := stream.Mark{Part: part, Watermark: stream.Position{Num: int64(i)}}
				if err := store.Append(route, []stream.Mark{mark},
					map[string]string{"l": fmt.Sprint(i)}); err != nil {
					t.Error(err)
				}
				if got, ok := store.Mark(route, mark.Part.ID); !ok ||
					got.Watermark != mark.Watermark {
					t.Errorf("Mark = %v, want %v", got, mark)
				}
			}
		}()
		go func() {
			defer wg.Done()
			for range 20 {
				if err := store.Sync(); err != nil {
					t.Error(err)
				}
			}
		}()
		go func() {
			defer wg.Done()
			for range 50 {
				for m := range store.Marks(route) {
					_ = m
				}
				_, _ = store.Places(route), store.Routes()
				_, _ = store.Size()
			}
		}()
	}
	wg.Wait()
	want := contents(store).String()
	must(t, store.Close())
	again, _ := mustOpen(t, dir, Options{})
	if got := contents(again).String(); got != want {
		t.Errorf("reopened it holds\n%s\nwant\n%s", got, want)
	}
	must(t, again.Close())
}
