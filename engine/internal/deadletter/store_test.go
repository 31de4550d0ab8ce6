package deadletter_test

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/penstock-io/penstock/engine/internal/deadletter"
	"github.com/penstock-io/penstock/stream"
	"github.com/penstock-io/penstock/vfs"
	"github.com/penstock-io/penstock/vfs/vfstest"
)

const path = "/dead/access.main.ndjson"

func letter(n int) deadletter.Letter {
	return deadletter.Letter{
		ID: fmt.Sprintf("part@%d", n), Reason: "the suite said so", Partition: "part",
		File:     "a.log",
		Position: stream.Position{Num: int64(n)}, Record: fmt.Appendf(nil, "record %d", n),
	}
}

func open(t *testing.T, files vfs.FS, maxBytes int64) *deadletter.Store {
	t.Helper()
	s, err := deadletter.Open(files, "/dead", deadletter.Options{Pipeline: "access", Route: "main",
		MaxBytes: maxBytes})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return s
}

// content returns the contents of the file as another program would read it.
func content(t *testing.T, files vfs.FS, path string) string {
	t.Helper()
	folder, name := path[:strings.LastIndexByte(path, '/')],
		path[strings.LastIndexByte(path, '/')+1:]
	dir, err := files.OpenDir(folder)
	if err != nil {
		t.Fatal(err)
	}
	defer dir.Close()
	return vfstest.Content(t, dir, name)
}

// idsIn returns the ids of the complete letters of a text, and fails the test if one is repeated.
func idsIn(t *testing.T, text string) map[string]bool {
	t.Helper()
	ids := make(map[string]bool)
	for line := range strings.Lines(text) {
		var l struct{ ID string }
		if !strings.HasSuffix(line, "\n") || json.Unmarshal([]byte(line), &l) != nil {
			continue
		}
		if ids[l.ID] {
			t.Fatalf("letter %s stands twice", l.ID)
		}
		ids[l.ID] = true
	}
	return ids
}

func TestAppend(t *testing.T) {
	files := vfstest.New()
	s := open(t, files, 0)
	l := letter(7)
	l.Position.Key, l.Attempts, l.Worker, l.Reason = "key", 3, "http://a/", "refused: <b>\n\xff"
	binary := letter(8)
	binary.Record = []byte("\xff\x00")
	empty := letter(9)
	empty.Record = nil
	if err := s.Append(t.Context(), []deadletter.Letter{l, binary, l, empty}); err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(content(t, files, path), "\n")
	if len(lines) != 4 {
		t.Fatalf("%d lines, want 3: %q", len(lines)-1, lines)
	}
	before, after, ok := strings.Cut(lines[0], `"time":"`)
	at, after, _ := strings.Cut(after, `"`)
	want := `{"version":1,"id":"part@7",| at ` +
		`|,"pipeline":"access","route":"main","reason":"refused: <b>\n\ufffd","partition":"part",` +
		`"file":"a.log","position":"7~a2V5","attempts":3,"worker":"http://a/","record":"record 7"}`
	if got := before + "| at |" + after; !ok || got != want || !strings.HasSuffix(at, "Z") {
		t.Errorf("line %s\nwant %s", got, want)
	}
	if want := `"record_base64":"` + base64.StdEncoding.EncodeToString(binary.Record) +
		`"}`; !strings.HasSuffix(lines[1], want) {
		t.Errorf("line %s, want it to end with %s", lines[1], want)
	}
	if !strings.HasSuffix(lines[2], `"record":""}`) {
		t.Errorf("line %s, want an empty record", lines[2])
	}
	dir, _ := files.OpenDir("/dead")
	if info, err := dir.Stat("access.main.ndjson"); err != nil || info.Mode != 0o600 {
		t.Errorf("mode %v, %v; want 0600", info.Mode, err)
	}
	if err := s.Close(); err != nil {
		t.Errorf("Close: %v", err)
	}
	if err := s.Close(); err != nil {
		t.Errorf("second Close: %v", err)
	}
	if err := s.Append(t.Context(), []deadletter.Letter{letter(1)}); err == nil {
		t.Error("Append after Close took a letter")
	}
}

func TestFull(t *testing.T) {
	s := open(t, vfstest.New(), 1024)
	var err error
	n := 0
	for ; err == nil && n < 100; n++ {
		err = s.Append(t.Context(), []deadletter.Letter{letter(n)})
	}
	said := fmt.Sprint(err)
	if !errors.Is(err, deadletter.ErrFull) || !strings.Contains(said, path) ||
		!strings.Contains(said, "dead_letters.max, 1KiB") {
		t.Errorf("Append: %v, want ErrFull with the file and the option", err)
	}
	if n < 3 {
		t.Errorf("full after %d letters", n)
	}
}

// TestCrashes simulates a power loss at every moment. If the Append of a letter has returned, the
// letter must exist afterwards. Appending it again must not duplicate it.
func TestCrashes(t *testing.T) {
	const total = 36
	acked, crashes := 0, 0
	for crash := range vfstest.Crashes(t, 1, func(files vfs.FS) {
		for n := 0; n < total; {
			s := open(t, files, 0)
			for range 4 {
				if err := s.Append(t.Context(),
					[]deadletter.Letter{letter(n), letter(n + 1), letter(n + 2)}); err != nil {
					t.Errorf("Append: %v", err)
				}
				n += 3
				acked = n
			}
			_ = s.Close()
		}
	}) {
		crashes++
		s := open(t, crash.FS, 0)
		for n := range acked {
			if !idsIn(t, content(t, crash.FS, path))[letter(n).ID] {
				t.Fatalf("%v: letter %d of %d is lost", crash, n, acked)
			}
		}
		var all []deadletter.Letter
		for n := range total {
			all = append(all, letter(n))
		}
		if err := s.Append(t.Context(), all); err != nil {
			t.Fatalf("%v: Append: %v", crash, err)
		}
		if ids := idsIn(t, content(t, crash.FS, path)); len(ids) != len(all) {
			t.Fatalf("%v: %d letters, want %d", crash, len(ids), len(all))
		}
		_ = s.Close()
	}
	if crashes < 50 {
		t.Errorf("%d crashes: the test shows little", crashes)
	}
}

// TestFaults makes each call of the file system fail once. A failed Append must leave no letter,
// and must succeed when it is repeated.
func TestFaults(t *testing.T) {
	for _, fault := range []vfstest.Fault{
		{Op: vfstest.OpWrite, Err: syscall.ENOSPC, Short: 100},
		{Op: vfstest.OpWrite, Err: syscall.EIO},
		{Op: vfstest.OpSync, Err: syscall.EIO},
		{Op: vfstest.OpOpen, Err: syscall.EMFILE},
		{Op: vfstest.OpTruncate, Err: syscall.EIO},
	} {
		for nth := 1; nth < 20; nth++ {
			files := vfstest.New()
			s := open(t, files, 0)
			fault.Nth, fault.Path = nth, "access"
			files.Fail(fault)
			failed := 0
			for n := range 8 {
				for s.Append(t.Context(), []deadletter.Letter{letter(2 * n), letter(2*n + 1)}) !=
					nil {
					if failed++; failed == 1 {
						// and reopening fails too
						files.Fail(vfstest.Fault{Op: vfstest.OpOpen, Path: "access",
							Err: syscall.EMFILE})
					}
					if failed > 10 {
						t.Fatalf("%s %d: Append does not recover", fault.Op, nth)
					}
				}
			}
			lost := files.Crash(vfstest.DataNone, vfstest.NamesNone, 1)
			if text := content(t, lost, path); len(idsIn(t, text)) != 16 ||
				strings.Count(text, "\n") != 16 {
				t.Fatalf("%s %d: %d letters are durable, want 16:\n%s", fault.Op, nth,
					len(idsIn(t, text)), text)
			}
			if files.Heal() == 0 && nth > 1 {
				break
			}
		}
	}
}

// TestDamaged checks the end of a damaged file: foreign lines are moved to another file, an
// incomplete line is removed, and the letters before them are kept.
func TestDamaged(t *testing.T) {
	files := vfstest.New()
	s := open(t, files, 0)
	if err := s.Append(t.Context(), []deadletter.Letter{letter(1), letter(2)}); err != nil {
		t.Fatal(err)
	}
	_ = s.Close()
	whole := content(t, files, path)
	for _, c := range []struct {
		name, tail string
		aside      bool
	}{
		{"torn", `{"version":1,"id":"par`, false},
		{"torn early", `{"ver`, false},
		{"not ours", "hello", true},
		{"not ours, whole lines", "hello\n\nworld\n", true},
		{"zeros", "\x00\x00\x00\x00", true},
		{"ours behind zeros", "\x00\x00" + strings.SplitAfter(whole, "\n")[0], true},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir, _ := files.OpenDir("/dead")
			f, err := dir.OpenFile("access.main.ndjson", 2, 0)
			if err != nil {
				t.Fatal(err)
			}
			_ = f.Truncate(int64(len(whole)))
			_, _ = f.Seek(0, 2)
			if _, err := f.Write([]byte(c.tail)); err != nil {
				t.Fatal(err)
			}
			_ = f.Close()
			s := open(t, files, 0)
			if got := content(t, files, path); got != whole {
				t.Errorf("holds %q, want %q", got, whole)
			}
			if aside := s.SetAside(); (aside != "") != c.aside {
				t.Errorf("SetAside() = %q", aside)
			} else if c.aside && content(t, files, aside) != c.tail {
				t.Errorf("%s holds %q, want %q", aside, content(t, files, aside), c.tail)
			}
			if err := s.Append(t.Context(), []deadletter.Letter{letter(2)}); err != nil ||
				content(t, files, path) != whole {
				t.Errorf("a letter that was there was written again, or %v", err)
			}
			_ = s.Close()
		})
	}
}

// TestDamagedLetter damages one byte of the last letter. When its record is refused again, the
// letter must be stored again, and the damaged line must be moved to another file.
func TestDamagedLetter(t *testing.T) {
	binary := letter(2)
	binary.Record = []byte("\xff record")
	for _, c := range []struct {
		name     string
		letter   deadletter.Letter
		old, new string
	}{
		{"record is not UTF-8", letter(2), "record 2", "rec\xffrd 2"},
		{"no record", letter(2), `"record"`, `"recorx"`},
		{"no record in base64", binary, `"record_base64"`, `"recorx_base64"`},
		{"record is not base64", binary, `"record_base64":"`, `"record_base64":"!`},
		{"no id", letter(2), `"id"`, `"ix"`},
		{"time", letter(2), `"time":"2`, `"time":"x`},
	} {
		t.Run(c.name, func(t *testing.T) {
			files := vfstest.New()
			s := open(t, files, 0)
			if err := s.Append(t.Context(), []deadletter.Letter{letter(1), c.letter}); err != nil {
				t.Fatal(err)
			}
			_ = s.Close()
			first, last, _ := strings.Cut(content(t, files, path), "\n")
			damaged := strings.Replace(last, c.old, c.new, 1)
			dir, _ := files.OpenDir("/dead")
			defer dir.Close()
			f, err := dir.OpenFile("access.main.ndjson", 2, 0)
			if err != nil {
				t.Fatal(err)
			}
			_, _ = f.Seek(int64(len(first)+1), 0)
			if _, err := f.Write([]byte(damaged)); err != nil {
				t.Fatal(err)
			}
			_ = f.Close()
			s = open(t, files, 0)
			if aside := s.SetAside(); aside == "" || content(t, files, aside) != damaged {
				t.Errorf("SetAside() = %q: it does not have the damaged line", aside)
			}
			if err := s.Append(t.Context(), []deadletter.Letter{c.letter}); err != nil {
				t.Fatal(err)
			}
			entries := deadletter.NewEntries(strings.NewReader(content(t, files, path)))
			var ids []string
			for e, err := entries.Next(); err == nil; e, err = entries.Next() {
				ids = append(ids, e.ID)
			}
			if got := strings.Join(ids, " "); got != "part@1 part@2" || entries.Skipped > 0 {
				t.Errorf("letters %q, %d lines skipped", got, entries.Skipped)
			}
		})
	}
}

func TestAppendAtOnce(t *testing.T) {
	files := vfstest.New()
	s := open(t, files, 0)
	var wg sync.WaitGroup
	for worker := range 8 {
		wg.Go(func() {
			random := rand.New(rand.NewPCG(uint64(worker), 0))
			for range 50 {
				if err := s.Append(t.Context(),
					[]deadletter.Letter{letter(random.IntN(100))}); err != nil {
					t.Errorf("Append: %v", err)
				}
			}
		})
	}
	wg.Wait()
	if n := len(idsIn(t, content(t, files, path))); n < 90 {
		t.Errorf("%d letters, want about 100", n)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_ = s.Append(ctx, nil) // returns in either case
}

func TestFileName(t *testing.T) {
	for _, c := range []struct{ pipeline, route, want string }{
		{"access", "main", "access.main.ndjson"},
		{"a.b", "c", "a%2Eb.c.ndjson"},
		{"../x", "grün/", "%2E%2E%2Fx.gr%C3%BCn%2F.ndjson"},
	} {
		if got := deadletter.FileName(c.pipeline, c.route); got != c.want || !fs.ValidPath(got) {
			t.Errorf("FileName(%q, %q) = %q, want %q", c.pipeline, c.route, got, c.want)
		}
	}
}
