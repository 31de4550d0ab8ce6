package syslog

import (
	"bytes"
	"fmt"

	"github.com/penstock-io/penstock/engine/kit/intake"
)

const (
	maxCountDigits = 7
	// Before each read, at least minSpace bytes of the buffer are free. The buffer grows up to
	// maxSpace while reads fill it, and beyond maxSpace only for long messages.
	minSpace = 4 << 10
	maxSpace = 16 << 10
)

// frames cuts the data of a connection into messages (RFC 6587). Each message either has its length
// in digits before it, or a line end after it. A connection may use both forms.
type frames struct {
	max     int
	message func(out *intake.Records, message []byte)
	buf     []byte
	filled  bool // the last read filled the buffer
}

// Space implements listen.Framer. It returns the free part of the buffer for the next read.
func (f *frames) Space() []byte {
	size := cap(f.buf)
	if f.filled && size < maxSpace {
		size *= 2
	}
	for size-len(f.buf) < minSpace {
		size = max(2*size, minSpace)
	}
	if size > cap(f.buf) {
		f.buf = append(make([]byte, 0, size), f.buf...)
	}
	return f.buf[len(f.buf):size]
}

// Pending implements listen.Framer. It returns the number of bytes of the incomplete message.
func (f *frames) Pending() int { return len(f.buf) }

// Frame implements listen.Framer. It returns the records of the messages that are complete after a
// read of n bytes.
func (f *frames) Frame(n int) (out intake.Records, err error) {
	f.buf = f.buf[:len(f.buf)+n]
	f.filled = len(f.buf) == cap(f.buf)
	rest := f.buf
	for len(rest) > 0 && err == nil {
		message, size, wrong := f.next(rest)
		err = wrong
		if size == 0 || err != nil {
			break
		}
		if len(message) > 0 {
			f.message(&out, message)
		}
		rest = rest[size:]
	}
	f.buf = f.buf[:copy(f.buf, rest)]
	if len(f.buf) == 0 && cap(f.buf) > maxSpace {
		f.buf = nil // so that idle connections use little memory
	}
	return out, err
}

// next returns the first message, and the size of its frame. The size is 0 if the end of the frame
// is missing.
func (f *frames) next(data []byte) (message []byte, size int, err error) {
	if isCount(data[0]) {
		return f.counted(data)
	}
	end := bytes.IndexByte(data[:min(len(data), f.max+2)], '\n')
	if end < 0 {
		if len(data) > f.max+1 {
			return nil, 0, fmt.Errorf("a message of more than %d bytes (max_record)", f.max)
		}
		return nil, 0, nil
	}
	return bytes.TrimRight(data[:end], "\r\x00"), end + 1, nil
}

// isCount reports whether a frame that begins with c begins with the length of its message.
func isCount(c byte) bool { return c >= '1' && c <= '9' }

// counted is like next, for a message that has its length before it.
func (f *frames) counted(data []byte) (message []byte, size int, err error) {
	n := 0
	for i, c := range data {
		switch {
		case c >= '0' && c <= '9' && i < maxCountDigits:
			n = 10*n + int(c-'0')
			continue
		case c != ' ':
			return nil, 0, fmt.Errorf("a length of a message that begins with %q", data[:i+1])
		case n > f.max:
			return nil, 0, fmt.Errorf("a message of %d bytes, at most %d (max_record)", n, f.max)
		case len(data) < i+1+n:
			return nil, 0, nil
		}
		return bytes.TrimRight(data[i+1:i+1+n], "\r\n\x00"), i + 1 + n, nil
	}
	return nil, 0, nil
}

// Rest implements listen.Framer. If the end of the last message is missing, Rest returns the part
// that was received.
func (f *frames) Rest() (out intake.Records) {
	rest := f.buf
	f.buf = nil
	if len(rest) > 0 && isCount(rest[0]) { // next has checked that it is a length
		if i := bytes.IndexByte(rest, ' '); i > 0 {
			rest = rest[i+1:]
		}
	}
	if rest = bytes.TrimRight(rest, "\r\n\x00"); len(rest) > 0 {
		f.message(&out, rest)
	}
	return out
}
