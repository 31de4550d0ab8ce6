package vfs

// WriteBack asks the system to begin writing the bytes of f from offset from to offset to on its disk, and waits for none of it, so that a
// later Sync finds less to do. Nothing becomes durable by it, and an error of the disk is Sync's to report. It is a wish: where the system
// cannot (it is not Linux, f is no file of the system's) it returns false. It may block while the disk's queue is full, and is
// safe for concurrent use.
func WriteBack(f File, from, to int64) bool {
	real, ok := f.(*osFile)
	return ok && from < to && beginWriting(real, from, to-from) == nil
}
