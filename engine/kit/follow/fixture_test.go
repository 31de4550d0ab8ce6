package follow_test

import (
	"cmp"
	"context"
	"errors"
	"io/fs"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/penstock-io/penstock/engine/connector/connectortest"
	"github.com/penstock-io/penstock/engine/kit/follow"
	"github.com/penstock-io/penstock/engine/kit/lines"
	"github.com/penstock-io/penstock/stream"
	"github.com/penstock-io/penstock/vfs"
)

// folder is a Place with one directory. It is also the host of its catalogue.
type folder struct {
	vfs.Dir
	path  string
	log   strings.Builder
	level slog.Level
	hook  func(name string) // nil, or called before each read of a file
	step  func()            // nil, or called before each system call
	then  func()            // nil, or called once, at the end of the next listing
	torn  error             // nil, or the error of the next listing
	pace  func()            // nil, or called before each search for unlisted files

	fault func(name string) error // returns the error of a read, or nil
	shut  func(name string) error // nil, or returns the error of an open
	// files with this part in their names are not listed; "" hides none
	hidden string

	mu     sync.Mutex // guards the fields below
	routes []string   // of the source
	// the progress of the routes in the checkpoint
	saved    map[string]map[string]stream.Mark
	unloaded error // nil, or the error of Progress
}

// Routes, State and Progress implement stream.SourceHost.
func (d *folder) Routes() []string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.Clone(d.routes)
}

func (d *folder) State() (vfs.Dir, error) { return nil, errors.New("there is no state") }

func (d *folder) Progress(route string) (stream.OpenOptions, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	o := knows(d.saved[route])
	o.Route = route
	return o, d.unloaded
}

func (d *folder) List(found func(follow.Listed), refused func(label, why string)) error {
	if torn := d.torn; torn != nil {
		d.torn = nil
		return torn
	}
	err := d.listed(func(s follow.Listed) {
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

func (d *folder) listed(found func(follow.Listed)) error {
	d.calls()
	entries, err := d.Entries(".")
	for _, e := range entries {
		info, err := d.Stat(e.Name)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		} else if err != nil {
			return err
		}
		found(follow.Listed{Dir: d, Name: e.Name, Label: e.Name, Info: info})
	}
	return err
}

func (d *folder) Finished(func(follow.Listed)) error { return nil }

// FolderMissing implements follow.Place. The folder always exists.
func (d *folder) FolderMissing(string, uint64) bool { return false }

// siblings calls found with all files, for follow.Growing.
func (d *folder) siblings(_ string, found func(follow.Listed)) error {
	if d.pace != nil {
		d.pace()
	}
	return d.listed(found)
}

func (d *folder) calls() {
	if d.step != nil {
		d.step()
	}
}

func (d *folder) Stat(name string) (vfs.Info, error) {
	d.calls()
	return d.Dir.Stat(name)
}

func (d *folder) Open(name string) (vfs.File, error) {
	d.calls()
	if d.shut != nil {
		if err := d.shut(name); err != nil {
			return nil, err
		}
	}
	f, err := d.Dir.Open(name)
	if err != nil {
		return nil, err
	}
	return &hooked{f, d, name}, nil
}

// hooked is a file that calls the folder's hooks when it is read.
type hooked struct {
	vfs.File
	d    *folder
	name string
}

func (f *hooked) Stat() (vfs.Info, error) {
	f.d.calls()
	return f.File.Stat()
}

func (f *hooked) ReadAt(p []byte, off int64) (int, error) {
	f.d.calls()
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

func (d *folder) Log() *slog.Logger {
	return slog.New(slog.NewTextHandler(&d.log, &slog.HandlerOptions{Level: d.level}))
}
func (d *folder) FS() vfs.FS { return connectortest.FS() }
func (d *folder) Go(name string, run func(context.Context) error) {
	panic("nothing is compressed: " + name)
}
func (d *folder) Count(string, int64) {}
func (d *folder) Fault(err error)     { d.Log().Error("fault", "error", err) }

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

// rename gives a file another name.
func (d *folder) rename(t *testing.T, from, to string) {
	t.Helper()
	if err := os.Rename(filepath.Join(d.path, from), filepath.Join(d.path, to)); err != nil {
		t.Fatal(err)
	}
}

// remove moves a file out of the folder, so that its inode is not reused.
func (d *folder) remove(t *testing.T, name string) {
	t.Helper()
	if err := os.Rename(filepath.Join(d.path, name),
		filepath.Join(t.TempDir(), "away")); err != nil {
		t.Fatal(err)
	}
}

// delete deletes a file. The next new file may have its inode.
func (d *folder) delete(t *testing.T, name string) {
	t.Helper()
	if err := os.Remove(filepath.Join(d.path, name)); err != nil {
		t.Fatal(err)
	}
}

// empty truncates a file.
func (d *folder) empty(t *testing.T, name string) {
	t.Helper()
	if err := os.Truncate(filepath.Join(d.path, name), 0); err != nil {
		t.Fatal(err)
	}
}

// age gives a file an old modification time, so that it is read before others.
func (d *folder) age(t *testing.T, name string) {
	t.Helper()
	if err := os.Chtimes(filepath.Join(d.path, name), time.Unix(1, 0),
		time.Unix(1, 0)); err != nil {
		t.Fatal(err)
	}
}

// copyTruncate copies a file, calls meanwhile, and empties the file.
func (d *folder) copyTruncate(t *testing.T, from, to string, meanwhile func()) {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(d.path, from))
	if err != nil {
		t.Fatal(err)
	}
	d.put(t, to, string(data))
	meanwhile()
	d.empty(t, from)
}

// route is one reader of the catalogue and its delivered lines.
type route struct {
	*follow.Reader
	lines []string
	trace []string          // time, file and partition of each line
	ids   map[string]string // the partition of each line
	marks map[string]stream.Mark

	unordered *unordered // nil: each batch settles at once
}

// run lets the route run for d.
func (r *route) run(t *testing.T, d time.Duration) {
	t.Helper()
	enough := errors.New("enough")
	ctx, cancel := context.WithTimeoutCause(t.Context(), d, enough)
	defer cancel()
	for {
		b := stream.NewBatch(r.limits())
		if err := r.Read(ctx, b); errors.Is(err, enough) {
			return
		} else if err != nil {
			t.Fatalf("Read: %v", err)
		}
		r.deliver(b)
	}
}

// deliver records the lines of a batch and saves its progress.
func (r *route) deliver(b *stream.Batch) {
	if r.unordered != nil {
		r.unordered.deliver(r, b)
		return
	}
	for _, span := range b.Spans {
		r.save(stream.Mark{Part: *span.Part, Watermark: span.To, Finished: span.Last})
	}
	r.record(b)
}

// save saves the progress of a partition.
func (r *route) save(m stream.Mark) {
	m.Metadata = r.Metadata(m)
	r.marks[m.Part.ID] = m
	_ = r.Commit(context.Background(), []stream.Mark{m}) // it returns nil
}

// record records the lines of a batch.
func (r *route) record(b *stream.Batch) {
	b.Split()
	for i, rec := range b.Records {
		text := strings.TrimSuffix(string(b.Text(i)), "\n")
		r.lines = append(r.lines, text)
		r.ids[text] = b.Spans[rec.Span].Part.ID
		part := b.Spans[rec.Span].Part
		r.trace = append(r.trace,
			time.Now().UTC().Format("15:04:05.000")+" "+text+" in "+part.Name+" "+part.ID)
	}
}

// twoRoutes returns a folder with two routes of one catalogue. Neither route has a mark.
func twoRoutes(t *testing.T, growing follow.Growing) (d *folder, a, b *route) {
	t.Helper()
	path := t.TempDir()
	dir, err := connectortest.FS().OpenDir(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = dir.Close() })
	d = &folder{Dir: dir, path: path}
	s := d.set(growing)
	return d, newRoute(t, s, nil), newRoute(t, s, nil)
}

// set returns a catalogue of the folder, as in a new process.
func (d *folder) set(growing follow.Growing) *follow.Catalogue { return d.setOf(growing, 10) }

// setOf is set with a limit of open files.
func (d *folder) setOf(growing follow.Growing, open int) *follow.Catalogue {
	growing.Siblings = d.siblings
	growing.GoneWait, growing.DeletedMax = 20*time.Second, 1<<20
	growing.CopyWait = cmp.Or(growing.CopyWait, 5*time.Second)
	return follow.New(d, follow.Options{
		Rules: lines.Rules{MaxRecord: 1 << 10}, PollMin: 100 * time.Millisecond,
		PollMax: time.Second, OpenFiles: open,
		Packed: follow.Packed{Auto: true, MaxExpansion: 1000}, Growing: &growing,
	}, d, d.Log())
}

// newRoute opens a route with the given stored marks.
func newRoute(t *testing.T, s *follow.Catalogue, stored map[string]stream.Mark) *route {
	r := &route{ids: make(map[string]string), marks: make(map[string]stream.Mark)}
	r.Reader = s.Open(knows(stored))
	t.Cleanup(func() { _ = r.Close() })
	return r
}

// knows returns the options of a route with the given stored marks, by partition id. The marks may
// lack the id. Resume then adds it to its result, as the Resume of the engine does.
func knows(stored map[string]stream.Mark) stream.OpenOptions {
	return stream.OpenOptions{
		Known: func(yield func(stream.Mark) bool) {
			for _, id := range slices.Sorted(maps.Keys(stored)) {
				if !yield(stored[id]) {
					return
				}
			}
		},
		Resume: func(id string) (stream.Mark, bool) {
			m, ok := stored[id]
			m.Part.ID = id
			return m, ok
		},
	}
}

// want compares the lines that the route has delivered, in any order.
func (r *route) want(t *testing.T, d *folder, want ...string) {
	t.Helper()
	if got := slices.Sorted(slices.Values(r.lines)); !slices.Equal(got, want) {
		t.Errorf("delivered %q, want %q; the log:\n%s", got, want, &d.log)
	}
}

// wantLines compares the lines that both routes have delivered.
func wantLines(t *testing.T, d *folder, a, b *route, want ...string) {
	t.Helper()
	a.want(t, d, want...)
	b.want(t, d, want...)
}

// wantNoLoss checks that no loss was reported.
func (d *folder) wantNoLoss(t *testing.T) {
	t.Helper()
	if log := d.log.String(); strings.Contains(log, "is gone before") {
		t.Errorf("what was read is said to be lost; the log:\n%s", log)
	}
}

// three is the content of a.log in most tests.
const three = "1 one\n2 two\n3 three\n"

// earlierRun returns a folder with a.log, which two closed routes have read, with their progress
// saved.
func earlierRun(t *testing.T) (d *folder, a, b *route) {
	t.Helper()
	d, a, b = twoRoutes(t, follow.Growing{})
	d.put(t, "a.log", three)
	turns(t, 1, 2*time.Second, a, b)
	stop(t, a, b)
	return d, a, b
}

// restarted starts the next process: one catalogue with two routes that have the stored progress of
// a and b.
func (d *folder) restarted(t *testing.T, a, b *route) (a2, b2 *route) {
	t.Helper()
	s := d.set(follow.Growing{})
	return newRoute(t, s, a.marks), newRoute(t, s, b.marks)
}

// turns lets the routes run for each in turn, n times.
func turns(t *testing.T, n int, each time.Duration, routes ...*route) {
	t.Helper()
	for range n {
		for _, r := range routes {
			r.run(t, each)
		}
	}
}

// stop closes routes.
func stop(t *testing.T, routes ...*route) {
	t.Helper()
	for _, r := range routes {
		if err := r.Close(); err != nil {
			t.Fatal(err)
		}
	}
}
