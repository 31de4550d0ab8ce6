package follow

import (
	"cmp"
	"fmt"
	"io"
	"io/fs"
	"slices"
	"strings"
	"time"

	"github.com/penstock-io/penstock/fileid"
)

// Once: how often a file is tried that cannot be read, and how many times settle (but at least
// endgameMin) a file that is still written is waited for.
const (
	onceTries     = 3
	endgameSettle = 10
	endgameMin    = 10 * time.Second
)

// listPatience is how long listings may fail, since the set was made or since the last one that did
// not, until the route has to stop; it starts again with growing waits. With Once none may fail.
const listPatience = 10 * time.Second

// scan lists the place, follows what has changed since the last listing, and queues what there is
// to do.
func (r *Reader) scan() {
	r.pace.due = 0
	r.scans++
	if !r.begun {
		r.first = r.scans
	}
	now := r.s.now()
	if r.grow != nil && r.resting.len() > 0 && !r.alone() {
		r.riseAll()
	}
	var rest []Sight
	found := func(s Sight) { // first those that are where they were, so that the others are known to have moved
		info := statOf(s.Info)
		switch f := r.files[s.Label]; {
		case f != nil && sameFile(f.info, info):
			f.scan = r.scans
			if info.Size < f.info.Size {
				r.stirred = now
			}
			f.saw(info, now)
			if f.handle != nil {
				f.looked = now
			}
		case r.passed(s, info):
		default:
			rest = append(rest, s)
		}
	}
	if err := r.s.place.List(found, r.refuse); err != nil {
		r.listFailed(err, now)
		return
	}
	r.begun, r.listed = true, now
	delete(r.refused, ".")
	r.retire()
	r.takeNews()            // before a name that the source has changed counts as missing
	if r.scans == r.first { // what is read first lies together in memory, which comes free together
		slices.SortFunc(rest, r.bySight)
	}
	if len(rest) > 0 {
		r.stirred = now
	}
	for _, s := range rest {
		r.meet(s, now)
	}
	for _, f := range r.unlisted() {
		r.stirred = now
		r.missing(f)
	}
	if r.scans == r.first || r.rotated.away {
		r.s.catalogue.renumber(r)
	}
	if r.scans == r.first && r.marked {
		r.s.catalogue.relocate(r)
	}
	if r.grow != nil {
		r.missRests()
		r.s.catalogue.meetCarried(r, now)
	}
	if r.scans == r.first {
		r.findFinished()
	}
	r.lookAgain(now)
	if r.grow != nil {
		r.followRotated(now)
	}
	r.countLeft()
	r.enqueue(now)
	r.sweep(now)
}

// listFailed decides whether the route goes on after a listing that failed.
func (r *Reader) listFailed(err error, now time.Duration) {
	freed := outOfDescriptors(err) && r.s.catalogue.openFewer(r)
	if freed {
		r.pace.soon()
	}
	r.refuse(".", fmt.Sprintf("the directory cannot be listed; it is tried again: %v", err))
	if r.o.Once && !freed || now-r.listed >= listPatience {
		r.over = fmt.Errorf("list the directory: %w", err)
	}
}

// Kind says why something that is no regular file is not read.
func Kind(t fs.FileMode) string {
	switch {
	case t&fs.ModeSymlink != 0:
		return "it is a symlink, which may lead anywhere; put the file itself here"
	case t&fs.ModeNamedPipe != 0:
		return "it is a FIFO, which has no end and cannot be read again"
	case t&fs.ModeSocket != 0:
		return "it is a socket"
	case t&fs.ModeDevice != 0:
		return "it is a device"
	}
	return "it is no regular file"
}

// meet follows a file whose name is new, or has been given to another file.
func (r *Reader) meet(s Sight, now time.Duration) {
	info := statOf(s.Info)
	key := keyOf(info)
	if f := r.byKey[key]; f != nil && sameFile(f.info, info) {
		if f.scan == r.scans {
			r.refuse(s.Label, fmt.Sprintf("it is a hard link to %q, which is read", f.label))
			return
		}
		if r.files[f.label] == f {
			delete(r.files, f.label)
		}
		r.displace(s.Label)
		if f.label != s.Label {
			r.s.log.Info("a file was renamed", "from", f.label, "to", s.Label)
		}
		r.rotated.drop(f)
		f.rename(s.Dir, s.Name, s.Label)
		f.scan, f.orphan, f.beside = r.scans, false, false
		f.saw(info, now)
		r.files[s.Label] = f
		if f.entry != nil {
			r.s.renamed(f.entry, s.Name)
			r.rotated.add(r, f)
		}
		return
	}
	if r.hardLink(s.Label, key) {
		return
	}
	delete(r.refused, s.Label)
	r.displace(s.Label)
	f := &file{dir: s.Dir, name: s.Name, label: s.Label, info: info, since: now, unread: max(now, 1), scan: r.scans}
	f.fromEnd = r.grow != nil && r.grow.FromEnd && r.scans == r.first && !r.marked && s.Info.Size > 0
	r.files[s.Label] = f
	if old := r.byKey[key]; old != nil { // its inode was used again before its name was seen to be gone
		delete(r.byKey, key)
		if r.files[old.label] == old {
			delete(r.files, old.label)
		}
		r.missing(old)
	}
	r.byKey[key] = f
}

// displace makes room for another file under a name.
func (r *Reader) displace(label string) {
	if old := r.files[label]; old != nil {
		delete(r.files, label)
		r.missing(old)
	}
}

// missing deals with a file that the listing does not have any more.
func (r *Reader) missing(f *file) {
	key := keyOf(f.info)
	switch {
	case r.grow == nil && stillThere(r, f):
		return
	case f.entry == nil, f.sealed: // nothing of it was read, or all
		if r.grow != nil && f.entry == nil {
			if r.mournKnown(f); r.leadsOn(f) {
				return
			}
		}
		r.closeFile(f)
		if r.byKey[key] == f {
			delete(r.byKey, key)
		}
		r.release(f)
	case f.handle != nil:
		if !f.orphan {
			f.orphan, f.nameless = true, r.s.now()
			if f.aside != nil {
				f.aside.until = 0
			}
		}
		r.orphaned(f)
	default:
		if r.byKey[key] == f {
			delete(r.byKey, key)
		}
		if r.grow != nil {
			r.widow(f, "its name is gone and it was not held open")
			return
		}
		r.lose(f, "its name is gone and it was not held open")
	}
}

// orphaned reports a file that is read on by its handle alone, unless that is how a rotation is
// meant to be.
func (r *Reader) orphaned(f *file) {
	if r.grow != nil {
		r.s.log.Debug("a file has lost its name; it is read to its end", "file", f.label, "read", f.cursor.Next)
	} else {
		r.s.log.Warn("a file was renamed or deleted while it was read; it is read to its end", "file", f.label, "read", f.cursor.Next)
	}
	r.count("files_orphaned", 1)
}

// enqueue queues all files that have something to be done, in order.
func (r *Reader) enqueue(now time.Duration) {
	for _, f := range r.queue {
		f.queued = false
	}
	lost := append(slices.DeleteFunc(r.queue, func(f *file) bool { return !f.lost }), r.seals...)
	r.seals = nil
	ready := r.ready
	if r.grow != nil {
		ready = r.readyGrowing
	}
	var todo, odd []*file
	for _, f := range r.byKey {
		if r.askable(f) {
			odd = append(odd, f)
		} else if ready(f, now) {
			todo = append(todo, f)
		}
	}
	slices.SortFunc(odd, byLabel)
	for _, f := range odd {
		if ready(f, now) {
			todo = append(todo, f)
		}
	}
	for _, f := range r.after {
		if r.ready(f, now) {
			todo = append(todo, f)
		}
	}
	slices.SortFunc(todo, func(a, b *file) int {
		if !r.s.o.ByName {
			if c := compareTimes(a, b); c != 0 {
				return c
			}
		}
		return byLabel(a, b)
	})
	r.queue = append(lost, todo...)
	for _, f := range r.queue {
		f.queued = true
	}
}

// bySight orders as enqueue does.
func (r *Reader) bySight(a, b Sight) int {
	if !r.s.o.ByName {
		if c := a.Info.ModTime.Compare(b.Info.ModTime); c != 0 {
			return c
		}
	}
	return strings.Compare(a.Label, b.Label)
}

// ready says whether there is something to be done with f now; if not, when to look again.
func (r *Reader) ready(f *file, now time.Duration) bool {
	if r.troubled(f, now) {
		return false
	}
	if f.sealed {
		return f.changed()
	}
	if f.orphan {
		f.saw(f.info, now)
	}
	if f.entry == nil && r.s.o.Keep && r.recall(f) {
		return false
	}
	at, now := r.s.quietAt(f.info.ModTime, f.since)
	if at <= now {
		return true
	}
	r.pace.dueAt(at)
	if f.view != nil { // it is read when it is whole
		return false
	}
	if f.info.Size-max(f.cursor.Next, f.drained) >= r.target {
		return true
	}
	if f.entry == nil && f.info.Size < fileid.MaxHead || f.info.Size <= f.drained && !f.changed() {
		return false
	}
	if wait := f.unread + r.s.o.Settle; f.unread > 0 && wait > now {
		r.pace.dueAt(wait)
		return false
	}
	return true
}

// ended says whether a reader with Once has come to its end, and how: io.EOF, or what was left.
func (r *Reader) ended() (bool, error) {
	if r.over != nil {
		return true, r.over
	}
	var failed []*file
	young := 0
	for _, f := range r.byKey {
		switch {
		case r.atEnd(f):
		case f.trouble == nil:
			young++
		case f.trouble.failures.N < onceTries:
			return false, nil
		default:
			failed = append(failed, f)
		}
	}
	young += r.rotated.waited()
	now := r.s.now()
	if young == 0 {
		r.endgame = 0
	} else if r.endgame == 0 {
		r.endgame = now
	}
	if young > 0 && now-r.endgame < max(endgameMin, endgameSettle*r.s.o.Settle) {
		return false, nil
	}
	if young > 0 {
		r.s.log.Warn("files are still being written; what was there of them is read, the rest is left to the next run", "files", young)
	}
	if len(failed) == 0 {
		return true, io.EOF
	}
	slices.SortFunc(failed, func(a, b *file) int { return cmp.Compare(a.label, b.label) })
	return true, fmt.Errorf("%d files could not be read, the first is %q: %w; mend that and run again",
		len(failed), failed[0].label, failed[0].failed())
}
