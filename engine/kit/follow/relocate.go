package follow

import (
	"slices"
	"time"

	"github.com/penstock-io/penstock/fileid"
	"github.com/penstock-io/penstock/stream"
)

// Identity is how a file of an earlier run is recognised.
type Identity uint8

const (
	// ByInode recognises a file by device, inode, birth time and content. Content alone counts for a
	// copy that kept the time of the last change.
	ByInode Identity = iota
	// ByContent recognises a file by its name and content wherever its inode is not found.
	ByContent
)

// Identities are the values of the option identity.
var Identities = map[string]Identity{"auto": ByInode, "content": ByContent}

// CheckIdentity refuses other values of the option.
func CheckIdentity(value string) error {
	if _, ok := Identities[value]; !ok {
		return wrong("identity", "is %q, want auto or content", value)
	}
	return nil
}

// relocate recognises complete files of earlier runs that are copies: the directory was copied to
// another machine or restored. A stored id is moved to the listed file of the same name if the
// inode that the id names is not listed, and the proof stands in the file. Growing files need no
// relocate: each copy of one is looked for as after a rotation.
func (c *catalogue) relocate(r *Reader) {
	if r.grow != nil {
		return
	}
	moved := 0
	for _, k := range c.unlisted(r) {
		m, ok := r.resume(k.text)
		f := r.files[m.Part.Name]
		if !ok || f == nil || f.entry != nil || c.claimed(r, f) || !c.mayBeCopy(f, m) || !c.holdsAll(r, f, m) {
			continue
		}
		c.s.mu.Lock()
		was := k.id.Key()
		c.s.gaveLocked(k.id)
		r.known[was] = withoutID(r.known[was], k.text)
		k.id.Dev, k.id.Ino, k.id.Birth, k.id.ModTime = f.info.Dev, f.info.Ino, int64(f.info.Birth), 0
		r.known[k.id.Key()] = append(r.known[k.id.Key()], k)
		c.s.mu.Unlock()
		moved++
	}
	if moved > 0 {
		c.s.log.Info("files were copied; they are recognised by name and content", "files", moved, "route", r.o.Route)
	}
}

// unlisted returns the stored ids whose files are not listed, in order.
func (c *catalogue) unlisted(r *Reader) (out []knownID) {
	c.s.mu.Lock()
	defer c.s.mu.Unlock()
	for key, ids := range r.known {
		f := r.byKey[key]
		for _, k := range ids {
			if f == nil || !isOf(k.id, f.info) {
				out = append(out, k)
			}
		}
	}
	slices.SortFunc(out, byID)
	return out
}

// claimed reports whether a stored id names the inode of f.
func (c *catalogue) claimed(r *Reader, f *file) bool {
	c.s.mu.Lock()
	defer c.s.mu.Unlock()
	return slices.ContainsFunc(r.known[keyOf(f.info)], func(k knownID) bool { return isOf(k.id, f.info) })
}

// mayBeCopy reports whether f can be a copy of the file that m belongs to, by size and times. A
// copy of a file that was read to its end has its size and time, which a program may have cut to
// seconds. Any other copy was changed before it was made.
func (c *catalogue) mayBeCopy(f *file, m stream.Mark) bool {
	proof, err := fileid.ParseProof(m.Note)
	if err != nil || proof.At == 0 || f.info.Size == 0 {
		return false
	}
	if c.s.o.Identity == ByContent {
		return true
	}
	if proof.ModTime != 0 && (f.info.Size == proof.Packed || proof.Packed == 0 && f.info.Size == proof.At) {
		second := proof.ModTime - proof.ModTime%int64(time.Second)
		if t := int64(f.info.ModTime); t == proof.ModTime || t == second {
			return true
		}
	}
	return !m.Finished && f.info.Birth.known() && f.info.ModTime < f.info.Birth
}

// holdsAll reports whether f holds what was read of the file that m belongs to.
func (c *catalogue) holdsAll(r *Reader, f *file, m stream.Mark) bool {
	defer r.closeFile(f)
	if !r.look(f) {
		return false
	}
	defer r.filler.release()
	head, err := r.firstHead(f)
	if err != nil {
		return false // the next look tells why
	}
	most := highest(m)
	if f.holds(most) < most {
		return false
	}
	ok, err := f.fits(r.proofOf(m), head, r.head[fileid.MaxHead:])
	return ok && err == nil
}
