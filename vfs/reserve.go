package vfs

// Reserve asks the file system for room for length bytes of f from offset from on, and leaves the file's length as it is. Writes
// that find their room allotted cost less. It is a wish: where the system cannot (it is not Linux, the file system knows no
// such call, the disk is full) it returns false, and writes work as before. Room behind the end that stays unused is given
// back by Truncate to the file's own length. It is safe for concurrent use.
func Reserve(f File, from, length int64) bool {
	real, ok := f.(*osFile)
	return ok && length > 0 && allot(real, from, length) == nil
}
