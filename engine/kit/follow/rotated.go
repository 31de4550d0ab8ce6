package follow

import (
	"path"
	"slices"
	"strings"
	"time"

	"github.com/penstock-io/penstock/engine/kit/lines"
	"github.com/penstock-io/penstock/fileid"
	"github.com/penstock-io/penstock/stream"
)

// maxKin is how many files of one stem a new file is compared with.
const maxKin = 32

// rotated is what the reader of growing files keeps to follow them through rotations: a file is
// renamed, out of the glob, too, or copied away and truncated. What it knew of a file whose name or
// content is gone is a widow: it waits for a file that leads on from it.
type rotated struct {
	byEntry map[*Entry]*file   // files with an id
	stems   map[string][]*file // the same, and widows, by the stems of their labels
	widows  map[*Entry]*file
	strays  []*file // files that have lost their names before anything was read
	tried   map[fileid.Key]tried
	search  time.Duration     // when the directories of widows and strays were searched last; 0: never
	untold  bool              // and what was found there could not be looked at
	beside  map[string]beside // by directory, since the last listing: what missed has seen there
	unread  unread
	asking  *file // it is compared with others: it stays open, and no further ones are compared; nil: none is
	meeting bool  // known files are being recognised: no new ones are taken up
	away    bool  // folders of widows or strays are not there
}

// tried is a file that leads on from no widow, as it was.
type tried struct {
	size int64
	time time.Time
	all  int // widows there were
}

func (t *rotated) begin() {
	t.byEntry, t.stems = make(map[*Entry]*file), make(map[string][]*file)
	t.widows, t.tried = make(map[*Entry]*file), make(map[fileid.Key]tried)
	t.beside = make(map[string]beside)
}

// stem is a label's last part without its last extension: what a rotation's names begin with.
func stem(label string) string {
	base := path.Base(label)
	if i := strings.LastIndexByte(base, '.'); i > 0 {
		return base[:i]
	}
	return base
}

// add notes that f has an id.
func (t *rotated) add(r *Reader, f *file) {
	if r.grow == nil {
		return
	}
	t.byEntry[f.entry] = f
	t.index(f)
}

func (t *rotated) index(f *file) {
	key := stem(f.label)
	if list := t.stems[key]; !slices.Contains(list, f) {
		t.stems[key] = append(list, f)
	}
}

// drop forgets f, before its label or entry changes.
func (t *rotated) drop(f *file) {
	if f.entry == nil || t.byEntry[f.entry] != f && t.widows[f.entry] != f {
		return
	}
	if t.byEntry[f.entry] == f {
		delete(t.byEntry, f.entry)
	}
	t.unindex(f)
}

func (t *rotated) unindex(f *file) {
	key := stem(f.label)
	if list := slices.DeleteFunc(t.stems[key], func(o *file) bool { return o == f }); len(list) > 0 {
		t.stems[key] = list
	} else {
		delete(t.stems, key)
	}
}

// byText says whether a file of the reader has the id, or is waited for under it.
func (t *rotated) byText(r *Reader, text string) bool {
	r.s.mu.Lock()
	e := r.s.byID[text]
	r.s.mu.Unlock()
	return e != nil && (t.byEntry[e] != nil || t.widows[e] != nil)
}

// widow waits for a file that leads on from f, which is gone or was rewritten.
func (r *Reader) widow(f *file, why string) {
	r.rotated.drop(f)
	r.closeFile(f)
	if f.entry == nil {
		return
	}
	w := &file{
		dir: f.dir, name: f.name, label: f.label, info: f.info, entry: f.entry, part: f.part, cursor: f.cursor, note: f.note,
		aside:     &aside{why: why},
		displaced: r.s.isDead(f.entry), held: r.s.now() + r.grow.CopyWait,
	}
	if f.aside != nil {
		w.aside.glimpse, w.aside.shrunk = f.aside.glimpse, f.aside.shrunk
	}
	r.wait(w)
}

func (r *Reader) wait(w *file) {
	r.rotated.widows[w.entry] = w
	w.aside.unseen = r.byKey[keyOf(w.info)] == nil
	r.rotated.index(w)
	clear(r.rotated.tried)
	r.rotated.search = 0
	r.pace.soon()
}

// widowOf waits for a file that leads on from a mark of an earlier run. displaced: its inode lives
// on with other content.
func (r *Reader) widowOf(e *Entry, m stream.Mark, displaced bool, why string) *file {
	id, name := r.s.foundAt(e)
	w := &file{
		name: name, label: m.Part.Name, entry: e, cursor: lines.Resume(m), aside: &aside{why: why}, displaced: displaced, skipped: true,
		part: &stream.Partition{ID: e.text, Name: m.Part.Name}, note: r.notes.begin(e.text, r.proofOf(m)),
		held: r.s.now() + r.grow.CopyWait,
	}
	w.info.Dev, w.info.Ino = id.Dev, id.Ino
	r.wait(w)
	return w
}

// unmet makes widows of what earlier runs have read and the first listing does not have, and of
// what another route has found rewritten since. What they had done with is over.
func (r *Reader) unmet() {
	var list, rewritten []knownID
	r.s.mu.Lock()
	for key, ids := range r.known {
		f, rested := r.byKey[key], r.resting.get(key)
		for _, k := range ids {
			if rested != nil && isOf(k.id, stat{Dev: key.Dev, Ino: key.Ino, Birth: rested.birth}) {
				continue
			}
			if f == nil || !isOf(k.id, f.info) {
				list = append(list, k)
			}
		}
	}
	for _, ids := range r.dead {
		rewritten = append(rewritten, ids...)
	}
	r.s.mu.Unlock()
	slices.SortFunc(list, byID)
	slices.SortFunc(rewritten, byID)
	for _, k := range list {
		switch m, ok := r.resume(k.text); {
		case !ok:
		case !m.Finished:
			r.widowOf(r.s.know(k, m.Part.Name), m, false, "a file of an earlier run is gone")
		case !r.grow.FromEnd && !r.isAway(m.Part.Name, k.id.Dev): // with FromEnd a route without marks has its very first start
			r.unforgotten(k, m.Part.Name)
		}
	}
	for _, k := range rewritten {
		if m, ok := r.resume(k.text); ok && !m.Finished && !r.rotated.byText(r, k.text) {
			e := r.s.know(k, m.Part.Name)
			r.widowOf(e, m, r.s.isDead(e), "a file was rewritten in place since an earlier run; "+anew)
		}
	}
}

// unforgotten ends what an earlier run had done with, whose process was killed before it forgot the
// mark.
func (r *Reader) unforgotten(k knownID, name string) {
	e := r.s.know(k, name)
	r.s.end(r, e)
	r.s.forget(r, e)
	r.gone.now(k.text)
}

// meetKnown recognises the files of earlier runs before any other: a new one may be a copy of one
// of them.
func (r *Reader) meetKnown() {
	var known []*file
	r.s.mu.Lock()
	for key, f := range r.byKey {
		of := func(k knownID) bool { return !r.past[k.text] && isOf(k.id, f.info) }
		if slices.ContainsFunc(r.known[key], of) || slices.ContainsFunc(r.dead[key], of) { // another route was first to see it
			known = append(known, f)
		}
	}
	r.s.mu.Unlock()
	slices.SortFunc(known, byLabel)
	r.recognised(known)
}

// recogniseTries is how often a file of an earlier run is looked at that changes while it is being
// looked at.
const recogniseTries = 3

// recognised finds out which files of earlier runs these are. One that is none of them, because its
// inode was used again or it was rewritten, is met when all of these are known: it may be a copy of
// one of them. One that is gone since it was listed is waited for from now on, not from the next
// listing on: what it was copied to may have been listed already. One of which it cannot be told
// now is looked at before any other in the next listing, and until then holds back what may be a
// copy of it.
func (r *Reader) recognised(files []*file) {
	r.rotated.meeting = true
	defer func() { r.rotated.meeting = false }()
	for _, f := range files {
		for tries := 0; tries < recogniseTries && f.entry == nil && !r.recall(f); tries++ {
			look := r.look
			if tries > 0 { // what was seen of it just now is not what stands there
				look = r.lookNow
			}
			if !look(f) {
				if f.handle == nil && f.trouble == nil {
					r.goneSinceListed(f)
				}
				break
			}
			if r.identify(f) || f.view != nil || f.trouble != nil || !r.isKnown(f) {
				break
			}
		}
		if f.trouble == nil && r.isUnread(f) {
			r.noteUnread(f)
		}
	}
}

// isKnown says whether f has no id yet, and can be, by its stat, a file of an earlier run.
func (r *Reader) isKnown(f *file) bool { return f.entry == nil && len(r.knownAs(f)) > 0 }

// knownAs are the files of earlier runs that f can be by its stat, or could before another route
// found something else in it, and that nobody waits for.
func (r *Reader) knownAs(f *file) []knownID {
	key := keyOf(f.info)
	r.s.mu.Lock()
	ids := slices.Concat(r.known[key], r.dead[key])
	r.s.mu.Unlock()
	return slices.DeleteFunc(ids, func(k knownID) bool { return r.past[k.text] || !isOf(k.id, f.info) || r.rotated.byText(r, k.text) })
}

// goneSinceListed deals at once with a file that the next listing will not have.
func (r *Reader) goneSinceListed(f *file) {
	if r.files[f.label] == f {
		delete(r.files, f.label)
	}
	r.missing(f)
}

// mournKnown waits for what leads on from the files of earlier runs that f can have been, which has
// lost its name before it was looked at.
func (r *Reader) mournKnown(f *file) {
	for _, k := range r.knownAs(f) {
		m, ok := r.resume(k.text)
		if !ok || m.Finished {
			continue
		}
		e := r.s.know(k, m.Part.Name)
		w := r.widowOf(e, m, r.s.isDead(e), "a file of an earlier run is gone")
		if !w.displaced && w.note.proof.Packed == 0 { // else its bytes are not those that were counted
			w.info.Size, w.skipped = f.info.Size, false
		}
		f.skipped = true // what is missed of it is the widow's
	}
}

// displaced makes widows of what an earlier run has read of this inode, if another head stands
// there now.
func (r *Reader) displaced(f *file, seen fileid.File) {
	r.s.mu.Lock()
	var gone []knownID
	for _, k := range r.known[seen.Key()] {
		if isOf(k.id, f.info) && !k.id.Match(seen) {
			gone = append(gone, k)
		}
	}
	for _, k := range r.dead[seen.Key()] { // another route was first to see it
		if !r.past[k.text] && isOf(k.id, f.info) {
			gone = append(gone, k)
		}
	}
	r.s.mu.Unlock()
	for _, k := range gone {
		if m, ok := r.resume(k.text); ok && !m.Finished && !r.rotated.byText(r, k.text) {
			e := r.s.know(k, f.name)
			r.s.kill(e, f.info)
			r.widowOf(e, m, r.s.isDead(e), "a file was rewritten in place since an earlier run; "+anew)
		}
	}
}

// expire gives up widows and strays that nothing leads on from.
func (r *Reader) expire(now time.Duration) {
	for _, w := range r.rotated.inOrder() {
		if r.rotated.widows[w.entry] != w {
			continue // another one's end has settled what became of it
		}
		if now < w.held {
			r.pace.dueAt(w.held)
			continue
		}
		if r.mayLead(w, now) || r.rotated.widows[w.entry] != w {
			continue
		}
		r.unwait(w)
		if w.displaced {
			r.rewritten(w)
			w.skipped = true
		}
		r.lose(w, w.aside.why)
	}
	r.rotated.strays = slices.DeleteFunc(r.rotated.strays, func(f *file) bool {
		if now < f.held {
			r.pace.dueAt(f.held)
			return false
		}
		if !f.skipped && !f.isTwin() {
			r.vanished(f)
		}
		return true
	})
}

// isTwin says whether all of a file that was held back stands in the one that it equals, where it
// is read.
func (f *file) isTwin() bool {
	return f.aside != nil && f.aside.twin != nil && f.aside.twinTo >= f.info.Size
}

// unwait takes a widow off the list.
func (r *Reader) unwait(w *file) {
	r.rotated.unindex(w)
	delete(r.rotated.widows, w.entry)
}

// leadsOn keeps a file that has lost its name before anything of it was read: its inode may be
// found beside, and one that is open, because it was rewritten in place, is read on by its handle.
// One that was empty when it was seen last may have been written to since. One that is held back
// may be a copy, of which there may be another copy by now: only its name tells.
func (r *Reader) leadsOn(f *file) bool {
	if f.orphan {
		return false
	}
	if f.handle != nil && f.held == 0 && !f.skipped {
		f.orphan, f.nameless = true, r.s.now()
		r.orphaned(f)
		return true
	}
	if key := keyOf(f.info); r.byKey[key] == f {
		delete(r.byKey, key)
	}
	r.closeFile(f)
	f.held = r.s.now() + r.grow.CopyWait
	r.rotated.strays = append(r.rotated.strays, f)
	r.rotated.search = 0
	r.pace.soon()
	return true
}
