//go:build unix

package http

import "syscall"

// lookAt reads what must not be there, without waiting for it.
func (w *wire) lookAt(fd uintptr) bool {
	var one [1]byte
	_, err := syscall.Read(int(fd), one[:])
	w.alive = err == syscall.EAGAIN || err == syscall.EINTR
	return true
}
