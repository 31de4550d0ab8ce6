package follow_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/penstock-io/penstock"
	"github.com/penstock-io/penstock/engine/kit/follow"
	"github.com/penstock-io/penstock/engine/kit/lines"
	"github.com/penstock-io/penstock/vfs"
)

// folder is a place of one directory. It is the host of its set, too.
type folder struct {
	vfs.Dir
	path string
	log  strings.Builder
	hook func(name string) // nil, or called before each read of a file
	then func()            // nil, or called once, at the end of the next listing
	torn error             // nil, or why the next listing fails

	fault  func(name string) error // nil, or what is wrong with a read
	hidden string                  // with this in their names, files are beside and not listed; "": none are
}

func (d *folder) List(found func(follow.Sight), refused func(label, why string)) error {
	if torn := d.torn; torn != nil {
		d.torn = nil
		return torn
	}
	err := d.sights(func(s follow.Sight) {
		if d.hidden == "" || !strings.Contains(s.Name, d.hidden) {
			found(s)
		}
	})
	if then := d.then; then != nil {
		d.then = nil
		then()
	}
	return err
}

func (d *folder) sights(found func(follow.Sight)) error {
	entries, err := d.Entries(".")
	for _, e := range entries {
		info, err := d.Stat(e.Name)
		if err != nil {
			return err
		}
		found(follow.Sight{Dir: d, Name: e.Name, Label: e.Name, Info: info})
	}
	return err
}

func (d *folder) Finished(func(follow.Sight)) error { return nil }

func (d *folder) Beside(_ string, found func(follow.Sight)) error { return d.sights(found) }

func (d *folder) Open(name string) (vfs.File, error) {
	f, err := d.Dir.Open(name)
	return &hooked{f, d, name}, err
}

// hooked is a file that says when it is read.
type hooked struct {
	vfs.File
	d    *folder
	name string
}

func (f *hooked) ReadAt(p []byte, off int64) (int, error) {
	if f.d.hook != nil {
		f.d.hook(f.name)
	}
	if f.d.fault != nil {
		if err := f.d.fault(f.name); err != nil {
			return 0, err
		}
	}
	return f.File.ReadAt(p, off)
}

func (d *folder) Log() *slog.Logger { return slog.New(slog.NewTextHandler(&d.log, nil)) }
func (d *folder) FS() vfs.FS        { return vfs.OS() }
func (d *folder) Go(name string, run func(context.Context) error) {
	panic("nothing is compressed: " + name)
}
func (d *folder) Count(string, int64) {}

// put appends text to a file.
func (d *folder) put(t *testing.T, name, text string) {
	t.Helper()
	f, err := os.OpenFile(filepath.Join(d.path, name), os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o644)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.WriteString(text); err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
}

// copyTruncate makes a copy of a file, does what is done meanwhile, and empties the file.
func (d *folder) copyTruncate(t *testing.T, from, to string, meanwhile func()) {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(d.path, from))
	if err != nil {
		t.Fatal(err)
	}
	d.put(t, to, string(data))
	meanwhile()
	if err := os.Truncate(filepath.Join(d.path, from), 0); err != nil {
		t.Fatal(err)
	}
}

// route is one reader of the set and what it has delivered.
type route struct {
	*follow.Reader
	lines []string
	ids   map[string]string // the partition that each line was in
	marks map[string]penstock.Mark
}

// run lets the route run for d.
func (r *route) run(t *testing.T, d time.Duration) {
	t.Helper()
	enough := errors.New("enough")
	ctx, cancel := context.WithTimeoutCause(t.Context(), d, enough)
	defer cancel()
	for {
		b := penstock.NewBatch(penstock.Limits{})
		if err := r.Read(ctx, b); errors.Is(err, enough) {
			return
		} else if err != nil {
			t.Fatalf("Read: %v", err)
		}
		for _, span := range b.Spans {
			m := penstock.Mark{Part: *span.Part, Watermark: span.To, Finished: span.Last}
			m.Note = r.Note(m)
			r.marks[span.Part.ID] = m
		}
		b.Split()
		for i, rec := range b.Records {
			text := strings.TrimSuffix(string(b.Text(i)), "\n")
			r.lines = append(r.lines, text)
			r.ids[text] = b.Spans[rec.Span].Part.ID
		}
	}
}

// twoRoutes is a folder with two routes of one set, neither of which has a mark.
func twoRoutes(t *testing.T, growing follow.Growing) (d *folder, a, b *route) {
	t.Helper()
	path := t.TempDir()
	dir, err := vfs.OS().OpenDir(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = dir.Close() })
	d = &folder{Dir: dir, path: path}
	s := d.set(growing)
	return d, newRoute(t, s, nil), newRoute(t, s, nil)
}

// set is a process that follows the folder.
func (d *folder) set(growing follow.Growing) *follow.Set {
	growing.GoneWait, growing.CopyWait, growing.DeletedMax = 20*time.Second, 5*time.Second, 1<<20
	return follow.New(d, follow.Options{
		Rules: lines.Rules{MaxRecord: 1 << 10}, PollMin: 100 * time.Millisecond, PollMax: time.Second, OpenFiles: 10,
		Growing: &growing,
	}, d, d.Log())
}

// newRoute opens a route that has stored marks.
func newRoute(t *testing.T, s *follow.Set, stored map[string]penstock.Mark) *route {
	r := &route{ids: make(map[string]string), marks: make(map[string]penstock.Mark)}
	r.Reader = s.Open(penstock.OpenOptions{
		Known: maps.Values(stored), Resume: func(id string) (penstock.Mark, bool) { m, ok := stored[id]; return m, ok },
	})
	t.Cleanup(func() { _ = r.Close() })
	return r
}

// wantLines compares what both routes have delivered.
func wantLines(t *testing.T, d *folder, a, b *route, want ...string) {
	t.Helper()
	for name, r := range map[string]*route{"first": a, "second": b} {
		if got := slices.Sorted(slices.Values(r.lines)); !slices.Equal(got, want) {
			t.Errorf("the %s route delivered %q, want %q; the log:\n%s", name, got, want, &d.log)
		}
	}
}

// Two routes that meet a file at the same time know it by one id: with two, the one that is later at a copy of the file would take it for
// what the other one follows, and read it from its beginning.
func TestTwoRoutesMeetAFileAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, a, b := twoRoutes(t, follow.Growing{})
		d.put(t, "a.old", "0 another file, longer than the next\n")
		a.run(t, 2*time.Second)
		b.run(t, 2*time.Second)

		d.put(t, "a.log", "1 one\n2 two\n3 three\n")
		met := false
		d.hook = func(name string) {
			if name == "a.old" { // the first route compares it with a.log, which nobody knew when it asked
				d.hook, met = nil, true
				b.run(t, 2*time.Second)
			}
		}
		a.run(t, 2*time.Second)
		if !met || len(b.lines) != 4 {
			t.Fatalf("the second route has delivered %q before the first gave the file an id, want all four lines", b.lines)
		}
		if a.ids["1 one"] != b.ids["1 one"] {
			t.Errorf("the routes know a.log as %s and %s", a.ids["1 one"], b.ids["1 one"])
		}

		d.copyTruncate(t, "a.log", "a.log.1", func() {})
		d.put(t, "a.log", "4 four\n")
		for range 10 {
			a.run(t, time.Second)
			b.run(t, time.Second)
		}
		wantLines(t, d, a, b, "0 another file, longer than the next", "1 one", "2 two", "3 three", "4 four")
	})
}

// What a route has not read yet begins for it where it would if it were alone, although the other route knows the file already.
func TestSecondRouteBeginsForItself(t *testing.T) {
	t.Run("at the end", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			d, a, b := twoRoutes(t, follow.Growing{FromEnd: true})
			d.put(t, "a.log", "1 old\n")
			for range 2 {
				a.run(t, 2*time.Second)
				b.run(t, 2*time.Second)
				d.put(t, "a.log", fmt.Sprintf("%d new\n", 2+len(a.lines)))
			}
			a.run(t, 2*time.Second)
			b.run(t, 2*time.Second)
			wantLines(t, d, a, b, "2 new", "3 new")
		})
	})
	t.Run("after what it has read of the original", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			d, a, b := twoRoutes(t, follow.Growing{})
			d.put(t, "a.log", "1 one\n2 two\n3 three\n")
			a.run(t, time.Second)
			b.run(t, time.Second)
			d.copyTruncate(t, "a.log", "a.log.1", func() {
				a.run(t, time.Second)
				b.run(t, time.Second)
				d.put(t, "a.log", "4 only in the original\n")
				a.run(t, time.Second)
				b.run(t, time.Second)
			})
			d.put(t, "a.log", "5 five\n")
			for range 10 {
				a.run(t, time.Second)
				b.run(t, time.Second)
			}
			wantLines(t, d, a, b, "1 one", "2 two", "3 three", "4 only in the original", "5 five")
		})
	})
}

// A file was rotated while nothing ran. The first route finds out that it was rewritten just before the second one looks, and is then
// slower to find the copy: the second one knows from its own mark, which the first has put aside, what the copy is.
func TestRouteRewrittenBeforeItLooks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, a, b := twoRoutes(t, follow.Growing{})
		d.put(t, "a.log", "1 one\n2 two\n3 three\n")
		a.run(t, 2*time.Second)
		b.run(t, 2*time.Second)
		if err := errors.Join(a.Close(), b.Close()); err != nil {
			t.Fatal(err)
		}
		d.copyTruncate(t, "a.log", "a.log.1", func() {})
		d.put(t, "a.log", "4 four\n")

		s := d.set(follow.Growing{})
		a2, b2 := newRoute(t, s, a.marks), newRoute(t, s, b.marks)
		atCopy, goOn, done := make(chan struct{}), make(chan struct{}), make(chan struct{})
		d.hook = func(name string) { // the second route meets a.log
			d.hook = func(name string) { // the first one has seen a.log, and meets the copy
				if name == "a.log.1" {
					d.hook = nil
					close(atCopy)
					<-goOn
				}
			}
			go func() {
				defer close(done)
				a2.run(t, 10*time.Second)
			}()
			<-atCopy
		}
		b2.run(t, 10*time.Second)
		close(goOn)
		<-done
		a2.run(t, 10*time.Second)
		wantLines(t, d, a2, b2, "4 four")
	})
}
