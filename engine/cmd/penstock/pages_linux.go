package main

import (
	"bufio"
	"io"
	"os"
	"strconv"
	"strings"
	"syscall"
)

// handBack takes the pages of the program's own code and constants out of the process's memory; what is needed comes back from the
// page cache as it is touched. A start touches two thirds of them, because every package that is linked in has something to set up,
// and the kernel maps the pages around with each: 20 MiB, of which a run that reads and sends needs four. Where anything is not as
// expected, nothing happens.
func handBack() {
	exe, err := os.Readlink("/proc/self/exe")
	if err != nil {
		return
	}
	f, err := os.Open("/proc/self/smaps")
	if err != nil {
		return
	}
	defer f.Close()
	for _, m := range unchanged(f, exe) {
		_, _, _ = syscall.Syscall(syscall.SYS_MADVISE, m.from, m.to-m.from, syscall.MADV_DONTNEED) // advice
	}
}

// mapped is a stretch of the process's addresses.
type mapped struct{ from, to uintptr }

// unchanged are the stretches of smaps that show a file read-only, and of which the process holds no page of its own: neither
// one that the loader has adjusted nor one with a debugger's breakpoint. Those would be lost.
func unchanged(smaps io.Reader, file string) (all []mapped) {
	var m mapped
	is := false
	for lines := bufio.NewScanner(smaps); lines.Scan(); {
		words := strings.Fields(lines.Text())
		switch {
		case len(words) >= 5 && !strings.HasSuffix(words[0], ":"):
			from, to, _ := strings.Cut(words[0], "-")
			begin, err := strconv.ParseUint(from, 16, strconv.IntSize)
			end, err2 := strconv.ParseUint(to, 16, strconv.IntSize)
			readOnly := len(words[1]) == 4 && words[1][0] == 'r' && words[1][1] == '-' && words[1][3] == 'p'
			is = err == nil && err2 == nil && readOnly && len(words) == 6 && words[5] == file
			m = mapped{uintptr(begin), uintptr(end)}
		case is && len(words) == 3 && words[0] == "Anonymous:" && words[1] == "0":
			all = append(all, m)
		}
	}
	return all
}
