package spooldir_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/penstock-io/penstock/engine/connector/connectortest"
	"github.com/penstock-io/penstock/engine/connector/spooldir"
	"github.com/penstock-io/penstock/stream"
	"github.com/penstock-io/penstock/vfs"
)

func TestValidate(t *testing.T) {
	if err := options("/spool", nil).Validate(); err != nil {
		t.Errorf("the defaults: %v", err)
	}
	for _, tt := range []struct {
		change func(o *spooldir.Options)
		want   string
	}{
		{func(o *spooldir.Options) { o.Path = "" }, `path: is missing: name the directory to read`},
		{func(o *spooldir.Options) { o.Include = nil },
			`include: is empty, so that nothing would be read; leave it out or write ["*"]`},
		{func(o *spooldir.Options) { o.Include = []string{"*", "[a"} },
			`include[1]: "[a" is not a glob; brackets must close, and it may not be empty`},
		{func(o *spooldir.Options) { o.Exclude = []string{""} },
			`exclude[0]: "" is not a glob; brackets must close, and it may not be empty`},
		{func(o *spooldir.Options) { o.Include = []string{"*.part"} },
			`include[0]: "*.part" matches only files that exclude skips; ` +
				`write exclude without "*.part", for example exclude: []`},
		{func(o *spooldir.Options) { o.Include = []string{"*.log", "*.done"} },
			`include[1]: "*.done" matches only files that end with suffix (.done), ` +
				`which are never read; change one of them`},
		{func(o *spooldir.Options) { o.Include = []string{"/spool/*.log"} },
			`include[0]: "/spool/*.log" is not a path beneath the directory, such as sub/*.log`},
		{func(o *spooldir.Options) { o.Exclude = []string{"./a.log"} },
			`exclude[0]: "./a.log" is not a path beneath the directory, such as sub/*.log`},
		{func(o *spooldir.Options) { o.Order = "newest" }, `order: is "newest", want oldest or name`},
		{func(o *spooldir.Options) { o.Finished = "burn" }, `finished: is "burn", want rename, delete, move or keep`},
		{func(o *spooldir.Options) { o.Suffix = "" },
			`suffix: is empty, so that a renamed file would be read again; write .done, or finished: keep`},
		{func(o *spooldir.Options) {
			o.Suffix = "/x"
		}, `suffix: is "/x", want it without slashes: it is added to the name`},
		{func(o *spooldir.Options) {
			o.Finished = "move"
		}, `move_to: is missing: finished: move needs the directory to move to`},
		{func(o *spooldir.Options) {
			o.MoveTo = "/old"
		}, `move_to: is set, but finished is "rename"; write finished: move`},
		{func(o *spooldir.Options) { o.Finished, o.MoveTo = "move", "/spool" },
			`move_to: "/spool" lies in the directory that is read, so that moved files would be read again`},
		{func(o *spooldir.Options) { o.Finished, o.MoveTo, o.Recursive = "move", "/spool/old", true },
			`move_to: "/spool/old" lies in the directory that is read, so that moved files would be read again`},
		{func(o *spooldir.Options) { o.QuietPeriod = 0 },
			`quiet_period: is 0s, want more than 0: a file that is still written cannot be told from a finished one without`},
		{func(o *spooldir.Options) { o.QuietPeriod, o.Settle = 2*time.Second, time.Second },
			`settle: is the former name of quiet_period, and both are given; remove one of them`},
		{func(o *spooldir.Options) { o.MaxRecord = 0 }, `max_record: is 0B, want 1B to 1GiB`},
		{func(o *spooldir.Options) { o.MaxRecord = 1 << 31 }, `max_record: is 2GiB, want 1B to 1GiB`},
		{func(o *spooldir.Options) { o.LongRecord = "drop" }, `long_record: is "drop", want cut or dead_letter`},
		{func(o *spooldir.Options) { o.PollMin = 0 }, `poll_min: is 0s, want more than 0`},
		{func(o *spooldir.Options) { o.PollMax = time.Millisecond }, `poll_max: is 1ms, less than poll_min (100ms)`},
		{func(o *spooldir.Options) { o.Watch = -1 }, `watch: is -1ns, want 0 or more`},
		{func(o *spooldir.Options) { o.OpenFiles = 0 }, `open_files: is 0, want 1 or more`},
	} {
		err := options("/spool", tt.change).Validate()
		if _, ok := errors.AsType[*stream.OptionError](err); !ok || err.Error() != tt.want {
			t.Errorf("Validate = %v\nwant %s", err, tt.want)
		}
	}
}

// TestOpenRefused checks that an error of Open names the reason and the remedy.
func TestOpenRefused(t *testing.T) {
	dir := t.TempDir()
	h := newHost(t, connectortest.FS())
	missing := filepath.Join(dir, "missing")
	_, err := h.source(options(missing, nil)).Open(t.Context(), newStore().options(false))
	want := fmt.Sprintf("%q: the directory does not exist; make it, or correct path", missing)
	if err == nil || !strings.HasPrefix(err.Error(), want) {
		t.Errorf("a missing directory: %v, want %s", err, want)
	}
	first, second := h.source(options(dir, nil)), h.source(options(dir, nil))
	r := must(first.Open(t.Context(), newStore().options(false)))
	_, err = second.Open(t.Context(), newStore().options(false))
	if !errors.Is(err, vfs.ErrLocked) || !strings.Contains(err.Error(), ".penstock.lock; stop it") {
		t.Errorf("a second instance: %v", err)
	}
	r2, err := first.Open(t.Context(), newStore().options(false))
	if err != nil {
		t.Fatalf("a second route of the same source: %v", err)
	}
	for _, r := range []stream.Reader{r, r, r2, r2} {
		if err := r.Close(); err != nil {
			t.Error(err)
		}
	}
	r, err = second.Open(t.Context(), newStore().options(false))
	if err != nil {
		t.Fatalf("after the first one was closed: %v", err)
	}
	r.Close()
}

func TestFinished(t *testing.T) {
	for _, tt := range []struct {
		finished string
		want     []string
	}{
		{"rename", []string{"a.log.done.2", "a.log.done", "a.log.done.1", "sub/b.log.done"}},
		{"delete", []string{"a.log.done", "a.log.done.1"}},
		{"move", []string{"a.log.done", "a.log.done.1"}},
		{"keep", []string{"a.log", "a.log.done", "a.log.done.1", "sub/b.log"}},
	} {
		moved := t.TempDir()
		bubble(t, func(o *spooldir.Options) {
			o.Recursive = true
			if o.Finished = tt.finished; tt.finished == "move" {
				o.MoveTo = moved
			}
		}, func(t *testing.T, w *fixture) {
			for _, name := range []string{"a.log", "a.log.done", "a.log.done.1", "sub/b.log"} {
				put(t, w.dir, name, name+"\n")
			}
			put(t, moved, "a.log", "taken\n")
			for range 2 { // the second run has nothing to do
				if err := w.once(); err != nil {
					t.Fatal(err)
				}
				w.want("a.log: a.log\n", "sub/b.log: sub/b.log\n")
				slices.Sort(tt.want)
				w.wantFiles(tt.want...)
			}
			if tt.finished == "move" {
				w.dir = moved
				w.wantFiles("a.log", "a.log.1", "sub/b.log")
			}
		})
	}
}

func TestOrderAndChoice(t *testing.T) {
	for _, tt := range []struct {
		change func(o *spooldir.Options)
		want   []string
	}{
		{nil, []string{"c.log", "a.log", "b.txt"}},
		{func(o *spooldir.Options) { o.Order = "name" }, []string{"a.log", "b.txt", "c.log"}},
		{func(o *spooldir.Options) { o.Include = []string{"*.log"} }, []string{"c.log", "a.log"}},
		{func(o *spooldir.Options) { o.Exclude = []string{"c*", "*.tmp"} }, []string{"a.log", "b.txt"}},
		{func(o *spooldir.Options) { o.Recursive, o.Include = true, []string{"sub/*"} }, []string{"sub/d.log"}},
		{func(o *spooldir.Options) { o.Recursive, o.Include = true, []string{"**/[ad].log"} },
			[]string{"a.log", "sub/d.log"}},
	} {
		bubble(t, tt.change, func(t *testing.T, w *fixture) {
			for i, name := range []string{"c.log", "a.log", "b.txt", "sub/d.log", ".hidden", "x.tmp", "old.log.done"} {
				path := put(t, w.dir, name, name+"\n")
				at := time.Unix(1_700_000_000+int64(i), 0)
				if err := os.Chtimes(path, at, at); err != nil {
					t.Fatal(err)
				}
			}
			w.finish = false
			if err := w.once(); err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, id := range w.store.order {
				got = append(got, w.store.marks[id].Part.Name)
			}
			if !slices.Equal(got, tt.want) {
				t.Errorf("read %v, want %v", got, tt.want)
			}
		})
	}
}

// TestReadsFile checks which output files of a sink the source would read.
func TestReadsFile(t *testing.T) {
	for _, c := range []struct {
		include, exclude, file string
		want                   bool
	}{
		{"", "", "in/out.log", true}, {"", "", "./in/../in/out.log", true},
		{"", "out*", "in/out.log", false}, {"", "", "in/out.log.done", false},
		{"", "", "in/sub/out.log", false}, {"sub", "", "in/sub/out.log", true},
		{"sub", "", "inn/out.log", false}, {"sub", "", "../in/out.log", false},
	} {
		o := spooldir.Source().Options().(*spooldir.Options)
		o.Path, o.Recursive = "in", c.include == "sub"
		o.Exclude = append(o.Exclude, strings.Fields(c.exclude)...)
		if got := o.ReadsFile(c.file); got != c.want {
			t.Errorf("%+v: ReadsFile = %v", c, got)
		}
	}
}
