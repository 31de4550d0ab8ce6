package follow

// mayGrowInto says whether f may be a copy of the widow w that is still being made: it is shorter
// than what was read of w, and begins as that did. Where it has less than the id of w has hashed,
// that cannot be told: then a copy of a file that is gone is waited for, rather than read a second
// time; what was rewritten in place may have any number of new files beside it.
func (r *Reader) mayGrowInto(f, w *file, head []byte) bool {
	if f.view != nil || f.orphan || f.info.Size >= w.cursor.Next || !mayInherit(r.s, f, w) || sameFile(f.info, w.info) {
		return false
	}
	id := r.s.idOf(w.entry)
	return len(head) < id.Len && !w.displaced || id.MatchHead(head)
}

// beingMade says whether f, which may be a copy of w, was being made when it was looked at: it held
// less than was read of w, and holds more by now. As long as it is not looked at again, an earlier
// place of w would be taken for where f leads on.
func (f *file) beingMade(w *file) bool { return f.info.Size < w.cursor.Next && f.grewMeanwhile() }

// grewMeanwhile says whether a file that is not compressed is longer by now than when it was looked
// at.
func (f *file) grewMeanwhile() bool {
	if f.view != nil {
		return false
	}
	info, err := f.handle.Stat()
	return err == nil && info.Size > f.info.Size
}

// grewAsCopy says whether a copy that was compared while it was still being made holds more by now:
// then how far it equals the old file is for the proofs to tell.
func (r *Reader) grewAsCopy(f *file) (bool, error) {
	if f.view != nil {
		return f.info.Size != f.aside.twinOf, nil
	}
	info, err := f.handle.Stat()
	if err != nil {
		return false, err
	}
	f.saw(statOf(info), r.s.now())
	return f.info.Size > f.aside.twinTo, nil
}
