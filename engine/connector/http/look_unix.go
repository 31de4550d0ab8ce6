//go:build unix

package http

import "syscall"

// canLook says that a connection can be looked at without waiting.
const canLook = true

// lookAt reads what must not be there, without waiting for it.
func (w *wire) lookAt(fd uintptr) bool {
	var one [1]byte
	_, err := syscall.Read(int(fd), one[:])
	w.alive = err == syscall.EAGAIN || err == syscall.EINTR
	return true
}
