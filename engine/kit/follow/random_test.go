package follow_test

import (
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/penstock-io/penstock/engine/kit/follow"
	"github.com/penstock-io/penstock/engine/kit/unpack"
	"github.com/penstock-io/penstock/stream"
)

// rotator writes one log and rotates it, in steps between which a route may look at the files. It
// can also compute all lines that the routes must deliver. It never destroys a line before every
// route has read it.
type rotator struct {
	d    *folder
	disk *disk
	rnd  *rand.Rand
	who  int
	have func(who int) int
	wait func(n *inode) bool // reports whether every route has an unfinished mark of n
	pack bool                // rotated files are compressed, too
	lack bool                // copies may lack lines that are in no file later, see addLost

	lines   int    // number of written lines
	lost    int    // number of lines that addLost has written
	begun   int    // number of lines before the current file
	emptied int    // number of lines before its present content
	name    string // of that file
	names   int
	rotated []rotatedLog // oldest first
	todo    []func()     // remaining steps of the current operation
}

type rotatedLog struct {
	base string // the name under which it was written
	name string
	from int // number of lines written before its present content
	upTo int // number of lines written before its end

	packed bool // it is compressed
}

// line returns a line that differs from every other one in its first bytes.
func (w *rotator) line(n int) string {
	return fmt.Sprintf("%08x line %d of %d", (uint32(w.who)<<26^uint32(n))*2654435761, n, w.who)
}

// say records an operation on the files.
func (w *rotator) say(format string, args ...any) {
	now := time.Now().UTC().Format(time.RFC3339Nano)
	fmt.Fprintf(&w.d.log, "time=%s "+format+"\n", append([]any{now}, args...)...)
}

func (w *rotator) change(name string, text []byte) {
	w.disk.write(name, text)
	w.say("changed %s", name)
}

func (w *rotator) add(name, text string) {
	w.change(name, append(slices.Clip(w.disk.file(name).text), text...))
}

func (w *rotator) empty(name string) { w.change(name, nil) }

func (w *rotator) rename(from, to string) {
	w.disk.rename(from, to)
	w.say("renamed %s to %s", from, to)
}

func (w *rotator) remove(name string) {
	w.disk.remove(name)
	w.say("removed %s", name)
}

// write appends n lines, the last of them in two pieces.
func (w *rotator) write(name string, n int) {
	text := ""
	for range n {
		text += w.line(w.lines) + "\n"
		w.lines++
	}
	cut := len(text) - min(len(text), w.rnd.IntN(20))
	w.add(name, text[:cut])
	if cut < len(text) {
		w.todo = append([]func(){func() { w.add(name, text[cut:]) }}, w.todo...)
	}
}

// addLost adds a line that may be delivered or not: a copy of the file was made, and the file is
// truncated next.
func (w *rotator) addLost() {
	w.lost++
	w.add(w.name, fmt.Sprintf("lost line %d of %d\n", w.lost, w.who))
}

// act carries out the next step of the current operation, or begins a new one.
func (w *rotator) act() {
	if len(w.todo) == 0 {
		w.begin()
	}
	if len(w.todo) > 0 {
		next := w.todo[0]
		w.todo = w.todo[1:]
		next()
	}
}

// rest completes the current operation.
func (w *rotator) rest() {
	for len(w.todo) > 0 {
		w.act()
	}
}

func (w *rotator) then(do func()) { w.todo = append(w.todo, do) }

func (w *rotator) begin() {
	switch w.rnd.IntN(10) {
	case 0, 1:
		w.rotate()
	case 2:
		if len(w.rotated) > 0 {
			w.move(w.rnd.IntN(len(w.rotated)))
		}
	case 3:
		if len(w.rotated) > 0 && w.have(w.who) >= w.rotated[0].upTo {
			w.remove(w.rotated[0].name)
			w.rotated = w.rotated[1:]
		}
	case 4:
		if w.begun < w.lines && w.have(w.who) >= w.lines {
			w.empty(w.name)
			w.emptied = w.lines
		}
	default:
		w.then(func() { w.write(w.name, 1+w.rnd.IntN(5)) })
	}
}

// rotate switches to a new file, in one of four ways. A file gets an unlisted name only when each
// route has stored a mark by which the next process can recognise the file. A mark of the file's
// present content is sufficient. So is a mark of the content from before the file was emptied, as
// long as the route awaits a copy of that content. Once the route has given up that content, its
// mark is removed. The next process then cannot distinguish an emptied, unread file from a new one.
//
// All names of a file are derived from its first one. A copy that gets an unrelated name before any
// route could compare it is a separate file, since two files may have equal content.
func (w *rotator) rotate() {
	if w.begun == w.lines {
		return
	}
	method := w.rnd.IntN(4)
	if method == 0 && w.unknown() {
		return
	}
	w.names++
	base, old := w.name, w.name+".1"
	done := func() {
		w.rotated = append(w.rotated, rotatedLog{base: base, name: old, from: max(w.begun, w.emptied), upTo: w.lines})
		w.begun = w.lines
	}
	switch method {
	case 0:
		old = fmt.Sprintf("%s.old%d", w.name, w.names)
	case 1:
		old = w.name
		w.then(func() { done(); w.name = fmt.Sprintf("w%d-%d.log", w.who, w.names) })
		return
	}
	for i := range w.rotated { // free name.1
		if w.rotated[i].base != base {
			continue
		}
		from := w.rotated[i].name
		w.rotated[i].name = fmt.Sprintf("%s.%d", base, 100*w.names+len(w.rotated)-i+1)
		if strings.Contains(from, "old") { // it keeps an unlisted name
			w.rotated[i].name += "old"
		}
		to := w.rotated[i].name
		w.then(func() { w.rename(from, to) })
	}
	if method == 2 {
		w.then(func() { w.copy(w.name, old) })
		for w.lack && w.rnd.IntN(3) > 0 {
			w.then(w.addLost)
		}
		w.then(func() { w.empty(w.name); done() })
		return
	}
	w.then(func() {
		if method == 0 && w.unknown() { // checked again at the time of the rename
			w.todo = nil
			return
		}
		w.rename(w.name, old)
	})
	w.then(func() { w.write(old, 1+w.rnd.IntN(3)) }) // by a daemon that notices late
	w.then(done)
}

// unknown reports whether some route could not recognise the file if it were renamed to an unlisted
// name now.
func (w *rotator) unknown() bool {
	have := w.have(w.who)
	return have <= w.begun || have <= w.emptied && !w.wait(w.disk.file(w.name))
}

// copy copies a file in two pieces.
func (w *rotator) copy(from, to string) { w.addTwice(to, w.disk.file(from).text) }

// addTwice appends data to a file in two pieces. The first piece of compressed data has the bytes
// that show the compression.
func (w *rotator) addTwice(name string, data []byte) {
	cut := w.rnd.IntN(len(data) + 1)
	if unpack.Detect(data) != unpack.None {
		cut = max(cut, unpack.MaxMagic)
	}
	w.add(name, string(data[:cut]))
	w.todo = append([]func(){func() { w.add(name, string(data[cut:])) }}, w.todo...)
}

// move moves a rotated file to another file system and back: it is copied, and the original is
// deleted. An unlisted file of which nothing was read is not moved. Once its inode is deleted, only
// its read data identifies it, so no route could recognise the copy.
func (w *rotator) move(i int) {
	from := w.rotated[i].name
	if strings.Contains(from, "old") && w.have(w.who) <= w.rotated[i].from {
		return
	}
	to := from + fmt.Sprintf("%dx", w.names)
	w.names++
	w.rotated[i].name = to
	if w.pack && !w.rotated[i].packed && w.rnd.IntN(2) == 0 {
		w.rotated[i].packed = true
		w.then(func() { w.compress(from, to) })
	} else {
		w.then(func() { w.copy(from, to) })
	}
	w.then(func() { w.remove(from) })
}

// compress writes a compressed copy of a file.
func (w *rotator) compress(from, to string) {
	var packed bytes.Buffer
	z := gzip.NewWriter(&packed)
	_, err := z.Write(w.disk.file(from).text)
	if err = errors.Join(err, z.Close()); err != nil {
		panic(err)
	}
	w.addTwice(to, packed.Bytes())
}

// rotating is one run of two rotators and two routes. The files may change before each system call.
type rotating struct {
	t       *testing.T
	rnd     *rand.Rand
	d       *folder
	set     *follow.Catalogue
	routes  []*route
	writers []*rotator
	late    time.Duration // longest time between the opening of the two routes
	// batches settle in random order, and those in flight are read again after a restart
	unordered bool
	acts      int           // remaining steps of the writers
	ends      time.Duration // a different nanosecond for each end time
}

func (s *rotating) have(who int) int {
	least := -1
	for _, r := range s.routes {
		got := make(map[string]bool, len(r.lines))
		for _, line := range r.lines {
			got[line] = true
		}
		n := 0
		for got[s.writers[who].line(n)] {
			n++
		}
		if least < 0 || n < least {
			least = n
		}
	}
	return least
}

func (s *rotating) wait(n *inode) bool {
	return !slices.ContainsFunc(s.routes, func(r *route) bool { return !r.waits(n) })
}

// step is called before each system call.
func (s *rotating) step() {
	if s.acts <= 0 {
		return
	}
	if s.rnd.IntN(10) == 0 {
		s.acts--
		s.writers[s.rnd.IntN(len(s.writers))].act()
	}
}

// act carries out one random action.
func (s *rotating) act() {
	if s.unordered && s.rnd.IntN(2) == 0 {
		r := s.routes[s.rnd.IntN(len(s.routes))]
		r.unordered.settleAll(r)
	}
	switch n := s.rnd.IntN(20); {
	case n == 0: // no route calls Read
		s.rest()
		time.Sleep(30 * time.Second)
	case n == 1:
		s.restart()
	case n == 2:
		s.reopen(s.rnd.IntN(len(s.routes)))
	case n < 8: // one batch
		r := s.routes[s.rnd.IntN(len(s.routes))]
		ctx, cancel := context.WithTimeout(s.t.Context(), s.about(100*time.Millisecond))
		defer cancel()
		b := stream.NewBatch(stream.BatchLimits{Bytes: 32 << s.rnd.IntN(5)})
		if r.Read(ctx, b) == nil {
			r.deliver(b)
		}
	default:
		s.routes[s.rnd.IntN(len(s.routes))].run(s.t, s.about(time.Duration(1+s.rnd.IntN(1000))*time.Millisecond))
	}
}

func (s *rotating) rest() {
	for _, w := range s.writers {
		w.rest()
	}
}

// about returns d plus up to a millisecond. The result is unique, so that no two events have the
// same time, because their order would be undefined.
func (s *rotating) about(d time.Duration) time.Duration {
	s.ends++
	return time.Until(time.Now().Add(d + time.Millisecond).Truncate(time.Millisecond).Add(s.ends))
}

// restart ends the process and begins the next one.
func (s *rotating) restart() {
	s.writers[0].say("restart")
	stop(s.t, s.routes...)
	s.set.EndRun()
	s.set = s.d.set(follow.Growing{})
	s.set.BeginRun()
	first := 0
	if s.late > 0 {
		first = s.rnd.IntN(len(s.routes))
	}
	s.open(first)
	if s.late > 0 && s.rnd.IntN(2) == 0 {
		late := time.Duration(1+s.rnd.Int64N(int64(s.late/time.Millisecond))) * time.Millisecond
		for ; late > 0; late -= time.Second { // no operation on the files takes longer than CopyWait
			s.routes[first].run(s.t, s.about(min(late, time.Second)))
			s.rest()
		}
	}
	s.open(1 - first)
}

// reopen restarts one route while the other one continues.
func (s *rotating) reopen(i int) {
	s.writers[0].say("route %d starts again", i)
	stop(s.t, s.routes[i])
	s.open(i)
}

func (s *rotating) open(i int) {
	next := &route{ids: make(map[string]string), marks: make(map[string]stream.Mark)}
	if r := s.routes[i]; r != nil {
		next.lines, next.trace = r.lines, r.trace
		maps.Copy(next.marks, r.marks)
	}
	if s.unordered {
		next.unordered = newUnordered(s.rnd)
	}
	o := knows(next.marks)
	o.Route = fmt.Sprint(i)
	s.d.setProgress(o.Route, next.marks)
	next.Reader = s.set.Open(o)
	s.t.Cleanup(func() { _ = next.Close() })
	s.routes[i] = next
}

// lateSeed divides the seeds into kinds of runs. From lateSeed on, routes open up to 0.9 s apart,
// and from 2*lateSeed on, up to 20 s apart. From 3*lateSeed on, they open at once, and batches
// settle in random order. From 4*lateSeed on, copies may also lack lines that were read in their
// originals.
const lateSeed = 1 << 32

// rotations performs the run of a seed, which determines everything that happens in it.
func rotations(t *testing.T, seed uint64) *rotating {
	d := &folder{Dir: newDisk(seed), hidden: "old", level: slog.LevelDebug, routes: []string{"0", "1"}}
	set := d.set(follow.Growing{})
	set.BeginRun()
	s := &rotating{t: t, rnd: rand.New(rand.NewPCG(seed, 0)), d: d, set: set, routes: make([]*route, 2)}
	switch seed / lateSeed {
	case 0:
	case 1:
		s.late = 900 * time.Millisecond
	case 2:
		s.late = 20 * time.Second
	default:
		s.unordered = true
	}
	s.open(0)
	s.open(1)
	for who := range 2 {
		s.writers = append(s.writers, &rotator{
			d: d, disk: d.Dir.(*disk), rnd: s.rnd, who: who, have: s.have, wait: s.wait,
			name: fmt.Sprintf("w%d.log", who), pack: s.unordered, lack: seed/lateSeed >= 4,
		})
	}
	d.step = s.step
	for range 60 {
		s.acts = 1 + s.rnd.IntN(8)
		s.act()
		s.rest()
	}
	d.step = nil
	s.rest()
	for range 60 {
		for _, r := range s.routes {
			r.run(t, s.about(time.Second))
			if s.unordered {
				r.unordered.settleAll(r)
			}
		}
	}
	t.Cleanup(func() { s.set.EndRun() })
	return s
}

// FuzzRotations checks that every line is delivered exactly once, however files are rotated while
// they are looked at and whenever a process ends. It allows repeated lines if copies lack lines.
// PENSTOCK_SEED is the first seed, PENSTOCK_SEEDS their number.
func FuzzRotations(f *testing.F) {
	failed := []uint64{21670, 23985, 25830, 27448, 27910, 101931, 401833,
		lateSeed + 5123, lateSeed + 402815, lateSeed + 701279, 3*lateSeed + 34,
		4*lateSeed + 148, 4*lateSeed + 1736, 4*lateSeed + 12933}
	for _, seed := range failed {
		f.Add(seed)
	}
	each := uint64(40)
	if testing.Short() {
		each = 8
	}
	for _, seed := range seeds(f, each) {
		f.Add(seed)
		f.Add(lateSeed + seed)
		f.Add(2*lateSeed + seed)
		f.Add(3*lateSeed + seed)
		f.Add(4*lateSeed + seed)
	}
	f.Fuzz(func(t *testing.T, seed uint64) {
		synctest.Test(t, func(t *testing.T) {
			s := rotations(t, seed)
			var want []string
			for _, w := range s.writers {
				for n := range w.lines {
					want = append(want, w.line(n))
				}
			}
			slices.Sort(want)
			for i, r := range s.routes {
				got := slices.Sorted(slices.Values(r.lines))
				if s.writers[0].lack { // lines just before a lost one may be delivered twice
					got = slices.Compact(got)
					got = slices.DeleteFunc(got, func(line string) bool { return strings.HasPrefix(line, "lost") })
				}
				if !slices.Equal(got, want) {
					t.Errorf("seed %d: route %d: %s; it delivered\n%s", seed, i, differ(got, want),
						strings.Join(r.trace, "\n"))
				}
			}
			if t.Failed() {
				t.Logf("the log:\n%s", &s.d.log)
			}
		})
	})
}

// TestRotationsReplay checks that a seed determines the operations on the files, their log, and the
// arrival time of each line.
func TestRotationsReplay(t *testing.T) {
	for _, seed := range seeds(t, 5) {
		var was string
		for run := range 3 {
			synctest.Test(t, func(t *testing.T) {
				s := rotations(t, seed)
				is := s.d.log.String()
				for _, r := range s.routes {
					is += strings.Join(r.trace, "\n")
				}
				if run > 0 && is != was {
					t.Errorf("seed %d: run %d differs from the one before:\n%s", seed, run, firstDifference(was, is))
				}
				was = is
			})
		}
	}
}
