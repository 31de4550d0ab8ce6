package tail_test

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// writer writes and rotates files as daemons and logrotate do. It uses no code of the source under
// test. Its field ledger lists the lines that the source must deliver once.
type writer struct {
	t     testing.TB
	dir   string
	start time.Time // on the clock of the test
	// time of the files' clock at start; zero: real time, and file times set by the system
	base   time.Time
	ledger []string
	maybe  []string // lines that were destroyed at once: a process may have read them
	count  int
	wide   int // extra bytes in each line
	open   map[string]*os.File
	rest   []byte // of a truncated file
}

func newWriter(t testing.TB, dir string, base time.Time) *writer {
	return &writer{t: t, dir: dir, start: time.Now(), base: base, open: make(map[string]*os.File)}
}

func (w *writer) must(err error) {
	w.t.Helper()
	if err != nil {
		w.t.Fatal(err)
	}
}

func (w *writer) path(name string) string { return filepath.Join(w.dir, name) }

// touch sets the modification time of a file by the test's clock.
func (w *writer) touch(name string) {
	if w.base.IsZero() {
		return
	}
	now := w.base.Add(time.Since(w.start))
	_ = os.Chtimes(w.path(name), now, now)
}

// line adds a new line to the ledger and returns it.
func (w *writer) line() string {
	w.count++
	s := fmt.Sprintf("line %05d of the writer's ledger%s", w.count, strings.Repeat(".", w.wide))
	w.ledger = append(w.ledger, s)
	return s
}

func (w *writer) lines(n int) string {
	var b strings.Builder
	for range n {
		b.WriteString(w.line() + "\n")
	}
	return b.String()
}

func (w *writer) put(name, text string, flag int) {
	w.t.Helper()
	f, err := os.OpenFile(w.path(name), os.O_WRONLY|os.O_CREATE|flag, 0o644)
	w.must(err)
	_, err = f.WriteString(text)
	w.must(err)
	w.must(f.Close())
	w.touch(name)
}

// append adds n lines.
func (w *writer) append(name string, n int) { w.t.Helper(); w.put(name, w.lines(n), os.O_APPEND) }

// text appends any text to a file, such as a part of a line. expected are the lines that the text
// completes.
func (w *writer) text(name, text string, expected ...string) {
	w.t.Helper()
	w.put(name, text, os.O_APPEND)
	w.ledger = append(w.ledger, expected...)
}

// rewrite truncates the file and writes n new lines in its place at once.
func (w *writer) rewrite(name string, n int) { w.t.Helper(); w.put(name, w.lines(n), os.O_TRUNC) }

func (w *writer) truncate(name string) {
	w.t.Helper()
	w.must(os.Truncate(w.path(name), 0))
	w.touch(name)
}

func (w *writer) rename(from, to string) { w.t.Helper(); w.must(os.Rename(w.path(from), w.path(to))) }
func (w *writer) remove(name string)     { w.t.Helper(); w.must(os.Remove(w.path(name))) }
func (w *writer) mkdir(name string)      { w.t.Helper(); w.must(os.MkdirAll(w.path(name), 0o755)) }

// copy copies a file as cp does.
func (w *writer) copy(from, to string) {
	w.t.Helper()
	in, err := os.Open(w.path(from))
	w.must(err)
	out, err := os.OpenFile(w.path(to), os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o644)
	w.must(err)
	_, err = io.Copy(out, in)
	w.must(err)
	w.must(in.Close())
	w.must(out.Close())
	w.touch(to)
}

// copyOver copies a file as cp --preserve=timestamps, backups, and moves to another file system do.
func (w *writer) copyOver(from, to string) {
	w.t.Helper()
	w.copy(from, to)
	w.age(to)
}

// age sets a modification time long before the creation of a file.
func (w *writer) age(name string) {
	w.t.Helper()
	info, err := os.Stat(w.path(name))
	w.must(err)
	old := time.Date(2020, 1, 1, 0, 0, 0, 0, time.UTC).Add(time.Duration(info.Size()))
	w.must(os.Chtimes(w.path(name), old, old))
}

// hold opens a file as a daemon does that keeps writing to it after a rename.
func (w *writer) hold(as, name string) {
	w.t.Helper()
	f, err := os.OpenFile(w.path(name), os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o644)
	w.must(err)
	w.open[as] = f
}

// more appends n lines to a held file.
func (w *writer) more(as string, n int) {
	w.t.Helper()
	_, err := w.open[as].WriteString(w.lines(n))
	w.must(err)
}

// release closes a held file.
func (w *writer) release(as string) {
	w.t.Helper()
	w.must(w.open[as].Close())
	delete(w.open, as)
}

// disown moves the last n lines from ledger to maybe. Call it before the lines are destroyed: the
// source may have read them or not, so both results are correct.
func (w *writer) disown(n int) {
	at := len(w.ledger) - n
	w.maybe = append(w.maybe, w.ledger[at:]...)
	w.ledger = w.ledger[:at]
}

func (w *writer) close() {
	for _, f := range w.open {
		_ = f.Close()
	}
}
