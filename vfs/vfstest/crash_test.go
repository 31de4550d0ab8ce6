package vfstest

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"
	"syscall"
	"testing"

	"github.com/penstock-io/penstock/vfs"
)

const seed = 20261121

func mustDir(t *testing.T, m vfs.FS) vfs.Dir {
	t.Helper()
	d, err := m.MakeDir("/d", 0o700)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

func mustOpen(t *testing.T, d vfs.Dir, name string, flag int) vfs.File {
	t.Helper()
	f, err := d.OpenFile(name, flag, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	return f
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func writeAll(t *testing.T, f vfs.File, text string) {
	t.Helper()
	_, err := f.Write([]byte(text))
	must(t, err)
}

// replace replaces the file f by a new file, so that a crash leaves the old or the new text. It
// omits the step named skip. The test checks that the file has a wrong text after some crash.
func replace(t *testing.T, fs vfs.FS, text string, skip string) {
	t.Helper()
	d := mustDir(t, fs)
	f := mustOpen(t, d, "f.new", os.O_CREATE|os.O_TRUNC|os.O_WRONLY)
	writeAll(t, f, text)
	if skip != "file sync" {
		must(t, f.Sync())
	}
	must(t, f.Close())
	must(t, d.Rename("f.new", d, "f"))
	if skip != "directory sync" {
		must(t, d.Sync())
	}
}

func TestCrashesFindWhatIsNotSynced(t *testing.T) {
	old, next := strings.Repeat("old ", 3000), strings.Repeat("new! ", 3000)
	for _, skip := range []string{"", "file sync", "directory sync"} {
		t.Run("without "+skip, func(t *testing.T) {
			m := New()
			must(t, m.WriteFile("/d/f", []byte(old)))
			bad, crashes := "", 0
			done := false
			check := func(c Crash) {
				crashes++
				got, err := c.FS.ReadFile("/d/f")
				switch text := string(got); {
				case err != nil:
					bad = fmt.Sprintf("%v: %v", c, err)
				case done && text != next:
					bad = fmt.Sprintf("%v: replaced, and holds %.20q", c, text)
				case text != old && text != next:
					bad = fmt.Sprintf("%v: it holds %.20q of %d bytes", c, text, len(text))
				}
			}
			for c := range CrashesFrom(t, seed, m, func(m *Mem) {
				replace(t, m, next, skip)
				done = true
				_, err := m.MakeDir("/d/after", 0o700) // a subsequent call
				must(t, err)
			}) {
				check(c)
			}
			if crashes < 20 {
				t.Errorf("%d crashes, want at least 20", crashes)
			}
			if skip == "" && bad != "" {
				t.Error(bad)
			}
			if skip != "" && bad == "" {
				t.Errorf("no crash found out that the %s is missing", skip)
			}
		})
	}
}

func TestWhatACrashLeavesOfBytes(t *testing.T) {
	m := New()
	d := mustDir(t, m)
	f := mustOpen(t, d, "f", os.O_CREATE|os.O_RDWR|os.O_APPEND)
	synced := bytes.Repeat([]byte("s"), 5000)
	_, err := f.Write(synced)
	must(t, err)
	must(t, f.Sync())
	must(t, d.Sync())
	writeAll(t, f, strings.Repeat("a", 1000))
	writeAll(t, f, strings.Repeat("b", 6000))
	whole, err := m.ReadFile("/d/f")
	must(t, err)
	read := func(data Data, seed uint64) []byte {
		got, err := m.Crash(data, NamesNone, seed).ReadFile("/d/f")
		must(t, err)
		return got
	}
	if got := read(DataAll, 1); !bytes.Equal(got, whole) {
		t.Errorf("kept: %d bytes, want %d", len(got), len(whole))
	}
	if got := read(DataNone, 1); !bytes.Equal(got, synced) {
		t.Errorf("lost: %d bytes, want the %d synced", len(got), len(synced))
	}
	lengths := make(map[int]bool)
	for s := range uint64(200) {
		got := read(DataPrefix, s)
		if len(got) < len(synced) || !bytes.HasPrefix(whole, got) {
			t.Fatalf("prefix: %d bytes that were never written", len(got))
		}
		lengths[len(got)] = true
	}
	if len(lengths) < 100 {
		t.Errorf("prefix: %d different lengths under 200 seeds", len(lengths))
	}
	got := read(DataTorn, 1) // the last page is bytes 8192 to 11999: half of it (1904) survives
	want := append(append([]byte(nil), whole[:8192+1904]...), make([]byte, 1904)...)
	if !bytes.Equal(got, want) {
		t.Errorf("torn: %d bytes, last new one %d; want %d, %d", len(got),
			bytes.LastIndexByte(got, 'b'), len(want), 8192+1903)
	}
}

func TestTornOverOldBytes(t *testing.T) {
	m := New()
	must(t, m.WriteFile("/d/f", []byte("oooooooooo")))
	d := mustDir(t, m)
	f := mustOpen(t, d, "f", os.O_RDWR)
	writeAll(t, f, "nnnnnnnn")
	seen := make(map[string]bool)
	for s := range uint64(50) {
		got, err := m.Crash(DataTorn, NamesNone, s).ReadFile("/d/f")
		must(t, err)
		seen[string(got)] = true
	}
	if len(seen) != 2 || !seen["nnnnoooooo"] || !seen["nnnn\x00\x00\x00\x00oo"] {
		t.Errorf("torn: %v; want half new, then old bytes or zeros", seen)
	}
}

func TestFailedSyncLosesForGood(t *testing.T) {
	m := New()
	d := mustDir(t, m)
	f := mustOpen(t, d, "f", os.O_CREATE|os.O_RDWR)
	must(t, d.Sync())
	writeAll(t, f, "one ")
	must(t, f.Sync())
	writeAll(t, f, "two ")
	m.Fail(Fault{Op: OpSync, Err: syscall.EIO})
	if err := f.Sync(); !errors.Is(err, syscall.EIO) {
		t.Fatalf("Sync = %v, want EIO", err)
	}
	writeAll(t, f, "three")
	must(t, f.Sync()) // reports success, as Linux does
	if got, _ := m.ReadFile("/d/f"); string(got) != "one two three" {
		t.Errorf("a reader sees %q, want all", got)
	}
	got, err := m.Crash(DataNone, NamesNone, 1).ReadFile("/d/f")
	if want := "one \x00\x00\x00\x00three"; string(got) != want || err != nil {
		t.Errorf("after a crash: %q, %v; want %q: a retried sync saves nothing", got, err, want)
	}
}

func TestWhatACrashLeavesOfNames(t *testing.T) {
	outcomes := make(map[string]int)
	for s := range uint64(300) {
		m := New()
		d := mustDir(t, m)
		to, err := m.MakeDir("/to", 0o700)
		must(t, err)
		for _, name := range []string{"moved", "renamed", "removed"} {
			must(t, m.WriteFile("/d/"+name, []byte(name)))
		}
		must(t, d.Rename("moved", to, "moved"))
		must(t, d.Rename("renamed", d, "again"))
		must(t, d.Remove("removed"))
		mustOpen(t, d, "made", os.O_CREATE|os.O_RDWR)
		c := m.Crash(DataNone, NamesSome, s)
		there := func(name string) bool { _, err := c.ReadFile(name); return err == nil }
		if there("/d/renamed") == there("/d/again") {
			t.Fatalf("seed %d: a rename in one directory is not whole", s)
		}
		if !there("/d/moved") && !there("/to/moved") {
			t.Fatalf("seed %d: a rename between directories lost the file", s)
		}
		outcomes[fmt.Sprint(there("/d/moved"), there("/to/moved"), there("/d/again"),
			there("/d/removed"), there("/d/made"))]++
	}
	if len(outcomes) != 3*2*2*2 {
		t.Errorf("%d outcomes, want all 24: %v", len(outcomes), outcomes)
	}
}

func TestSyncOfOneDirectoryOfTwo(t *testing.T) {
	for _, synced := range []string{"/d", "/to"} {
		m := New()
		d := mustDir(t, m)
		to, err := m.MakeDir("/to", 0o700)
		must(t, err)
		must(t, m.WriteFile("/d/f", nil))
		must(t, d.Rename("f", to, "g"))
		must(t, map[string]vfs.Dir{"/d": d, "/to": to}[synced].Sync())
		c := m.Crash(DataNone, NamesNone, 1)
		_, errOld := c.ReadFile("/d/f")
		_, errNew := c.ReadFile("/to/g")
		if errNew != nil || (errOld == nil) != (synced == "/to") {
			t.Errorf("after sync of %s: old name %v, new name %v", synced, errOld, errNew)
		}
	}
}

// TestClonesAreApart checks that later changes of the file system and of a clone do not affect each
// other.
func TestClonesAreApart(t *testing.T) {
	m := New()
	d := mustDir(t, m)
	f := mustOpen(t, d, "f", os.O_CREATE|os.O_RDWR)
	var clones []*Mem
	var texts []string
	for i := range 50 {
		writeAll(t, f, fmt.Sprint(i, " "))
		switch i % 5 {
		case 1:
			must(t, f.Sync())
		case 2:
			_, err := f.Seek(int64(i), 0)
			must(t, err)
		case 3:
			must(t, f.Truncate(int64(i/2)))
		}
		c := m.Crash(DataAll, NamesAll, 1)
		text, err := c.ReadFile("/d/f")
		must(t, err)
		clones, texts = append(clones, c), append(texts, string(text))
		cf := mustOpen(t, mustDir(t, m.Crash(DataAll, NamesAll, 1)), "f", os.O_RDWR)
		writeAll(t, cf, "ZZZZZZZZ")
		must(t, cf.Truncate(3))
	}
	for i, c := range clones {
		if got, err := c.ReadFile("/d/f"); string(got) != texts[i] || err != nil {
			t.Errorf("clone %d holds %q, %v; want %q as when it was taken", i, got, err, texts[i])
		}
		if got, err := c.Crash(DataNone, NamesNone, 1).ReadFile("/d/f"); string(got) != texts[i] ||
			err != nil {
			t.Errorf("a crash of clone %d leaves %q, %v; want all of it", i, got, err)
		}
	}
}

func TestCrashesAreTheSameUnderOneSeed(t *testing.T) {
	run := func(seed uint64) string {
		var b strings.Builder
		for c := range Crashes(t, seed, func(fs vfs.FS) {
			d := mustDir(t, fs)
			for i := range 5 {
				f := mustOpen(t, d, fmt.Sprint("f", i), os.O_CREATE|os.O_WRONLY)
				writeAll(t, f, strings.Repeat("x", 100*i))
			}
		}) {
			d, err := c.FS.OpenDir("/d")
			must(t, err)
			list, err := d.Entries(".")
			must(t, err)
			fmt.Fprintln(&b, c)
			for _, e := range sorted(list) {
				info, err := d.Stat(e.Name)
				must(t, err)
				fmt.Fprintln(&b, info)
			}
		}
		return b.String()
	}
	first := run(1)
	if first != run(1) {
		t.Error("two runs under one seed differ")
	}
	if first == run(2) {
		t.Error("two seeds give the same")
	}
}

func TestABreakEndsTheCrashesNotTheWorkload(t *testing.T) {
	n, finished := 0, false
	for range Crashes(t, seed, func(fs vfs.FS) { replace(t, fs, "text", ""); finished = true }) {
		if n++; n == 2 {
			break
		}
	}
	if n != 2 || !finished {
		t.Errorf("%d crashes, finished %v; want 2, true", n, finished)
	}
}

func TestFaults(t *testing.T) {
	m := New()
	d := mustDir(t, m)
	f := mustOpen(t, d, "f", os.O_CREATE|os.O_RDWR)
	m.Fail(Fault{Op: OpWrite, Nth: 2, Err: syscall.ENOSPC, Short: 2})
	writeAll(t, f, "abcd")
	if n, err := f.Write([]byte("efgh")); n != 2 || !errors.Is(err, syscall.ENOSPC) ||
		!strings.Contains(err.Error(), "/d/f") {
		t.Errorf("Write = %d, %v; want 2, ENOSPC that names the file", n, err)
	}
	writeAll(t, f, "ij")
	if got, _ := m.ReadFile("/d/f"); string(got) != "abcdefij" {
		t.Errorf("file holds %q, want abcdefij", got)
	}
	if n := m.Heal(); n != 1 {
		t.Errorf("Heal = %d, want 1 strike", n)
	}
	m.Fail(Fault{Path: "/d/g", Nth: 2, Lasting: true, Err: fs.ErrPermission})
	g := mustOpen(t, d, "g", os.O_CREATE|os.O_RDWR)
	for range 3 {
		if err := g.Sync(); !errors.Is(err, fs.ErrPermission) {
			t.Errorf("Sync = %v, want ErrPermission each time", err)
		}
	}
	must(t, f.Sync())
	if n := m.Heal(); n != 3 {
		t.Errorf("Heal = %d, want 3 strikes", n)
	}
	must(t, g.Sync())
	calls := m.Calls()
	if last := calls[len(calls)-1]; last.Op != OpSync || last.Path != "/d/g" || last.Err != nil ||
		last.N != len(calls) {
		t.Errorf("last call %v", last)
	}
}
