//go:build linux && (amd64 || arm64)

package vfs

import (
	"errors"
	"io/fs"
	"syscall"
	"unsafe"
)

// maxParts is how many parts one call of writev(2) takes (IOV_MAX).
const maxParts = 1024

// gather writes parts by writev, in as few calls as the system allows, and says whether it could.
func gather(f *osFile, parts [][]byte) (gathered bool, err error) {
	vec := make([]syscall.Iovec, 0, len(parts))
	for _, p := range parts {
		if len(p) > 0 {
			v := syscall.Iovec{Base: &p[0]}
			v.SetLen(len(p))
			vec = append(vec, v)
		}
	}
	for len(vec) > 0 {
		n, err := writev(f, vec[:min(len(vec), maxParts)])
		if err == nil && n == 0 {
			err = errors.New("nothing was taken")
		}
		if err != nil {
			return true, &fs.PathError{Op: "writev", Path: f.Name(), Err: err}
		}
		vec = behind(vec, n)
	}
	return true, nil
}

// behind returns what is left of vec after its first n bytes.
func behind(vec []syscall.Iovec, n int) []syscall.Iovec {
	for len(vec) > 0 && n >= int(vec[0].Len) {
		n -= int(vec[0].Len)
		vec = vec[1:]
	}
	if n > 0 {
		v := &vec[0]
		v.Base = (*byte)(unsafe.Add(unsafe.Pointer(v.Base), n))
		v.SetLen(int(v.Len) - n)
	}
	return vec
}

func writev(f *osFile, vec []syscall.Iovec) (n int, err error) {
	err = withFD(f.File, func(fd uintptr) error {
		wrote, _, errno := syscall.Syscall(syscall.SYS_WRITEV, fd, uintptr(unsafe.Pointer(&vec[0])), uintptr(len(vec)))
		n = int(wrote)
		return asError(errno)
	})
	return n, err
}
