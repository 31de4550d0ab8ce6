// Package framelog has the frames of the log files in the state directory. A file consists of a
// header and of frames. A frame is a payload with its length and a checksum. The package does not
// know the contents of payloads, and does not write files.
//
// Numbers are little-endian. The header is: a magic of 8 bytes, version u16, reserved u16, number
// u64, and CRC-32C u32 of the bytes before it. A frame is: length u32 of the payload, CRC-32C u32
// (see [Summer]), payload.
package framelog

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"io"
	"slices"

	"github.com/penstock-io/penstock/vfs"
)

const (
	HeaderSize = 24       // of a file
	HeadSize   = 8        // of a frame, before its payload
	MaxPayload = 64 << 20 // maximum size of a payload

	// scanWork limits the search for intact frames after a damaged one: Follows computes checksums
	// of at most this number of bytes. If it would need more, the file counts as damaged, which is
	// the safe choice.
	scanWork = 64 << 20
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// AppendHeader appends the header of a file. number distinguishes the files of one log.
func AppendHeader(dst []byte, magic string, version uint16, number uint64) []byte {
	start := len(dst)
	dst = append(dst, magic...)
	dst = binary.LittleEndian.AppendUint16(dst, version)
	dst = binary.LittleEndian.AppendUint16(dst, 0)
	dst = binary.LittleEndian.AppendUint64(dst, number)
	return binary.LittleEndian.AppendUint32(dst, crc32.Checksum(dst[start:], castagnoli))
}

// ParseHeader parses the header at the beginning of b. It returns a *FrameError if b does not begin
// with a header, or if its checksum is wrong.
func ParseHeader(b []byte, magic string) (version uint16, number uint64, err error) {
	if len(b) < HeaderSize || string(b[:len(magic)]) != magic {
		return 0, 0, &FrameError{fmt.Sprintf("it does not begin with the signature %q", magic)}
	}
	if crc32.Checksum(b[:HeaderSize-4], castagnoli) !=
		binary.LittleEndian.Uint32(b[HeaderSize-4:]) {
		return 0, 0, &FrameError{"its header is damaged"}
	}
	return binary.LittleEndian.Uint16(b[8:]), binary.LittleEndian.Uint64(b[12:]), nil
}

// Summer computes the checksums of frames. A checksum also covers the number of the file and the
// offset of the frame. So it is wrong if the frame was moved, or comes from another file. A Summer
// is not safe for concurrent use.
type Summer struct{ where [20]byte } // a field, because an argument of crc32 escapes to the heap

func (s *Summer) sum(number uint64, offset int64, payload []byte) uint32 {
	binary.LittleEndian.PutUint64(s.where[0:], number)
	binary.LittleEndian.PutUint64(s.where[8:], uint64(offset))
	binary.LittleEndian.PutUint32(s.where[16:], uint32(len(payload)))
	return crc32.Update(crc32.Checksum(s.where[:], castagnoli), castagnoli, payload)
}

// Seal completes the frame b at an offset of the file with the given number. b has a gap of
// HeadSize bytes before its payload. Seal writes the length and the checksum into this gap. It
// returns an error if the payload is too large.
func (s *Summer) Seal(b []byte, number uint64, offset int64) error {
	n := len(b) - HeadSize
	if n > MaxPayload {
		return fmt.Errorf("an entry of %d bytes is larger than the limit of %d", n, MaxPayload)
	}
	binary.LittleEndian.PutUint32(b, uint32(n))
	binary.LittleEndian.PutUint32(b[4:], s.sum(number, offset, b[HeadSize:]))
	return nil
}

// FrameError means that a header or a frame is incomplete or damaged.
type FrameError struct{ text string }

// Error implements error.
func (e *FrameError) Error() string { return e.text }

// ErrShort is a *FrameError: the file ends within its own header or within that of a frame.
var ErrShort error = &FrameError{"its header is incomplete"}

// Read reads the frames after the header of a file with the given size, and calls apply with the
// payload and the end of each. The payload is valid only during the call. r begins after the header
// of the file. At the first bad frame, Read stops. It returns the offset of this frame in good, and
// its error in bad: a *FrameError, or the error of apply. If all frames are good, good is size. err
// is an error of r.
func (s *Summer) Read(r io.Reader, number uint64, size int64,
	apply func(payload []byte, end int64) error) (good int64, bad, err error) {
	var head [HeadSize]byte
	var payload []byte
	for good = HeaderSize; good < size; {
		left := size - good - HeadSize
		if left < 0 {
			return good, ErrShort, nil
		}
		if _, err := io.ReadFull(r, head[:]); err != nil {
			return good, nil, err
		}
		n := int64(binary.LittleEndian.Uint32(head[:]))
		if n == 0 || n > MaxPayload || n > left {
			return good, &FrameError{fmt.Sprintf("its length of %d is invalid", n)}, nil
		}
		payload = slices.Grow(payload[:0], int(n))[:n]
		if _, err := io.ReadFull(r, payload); err != nil {
			return good, nil, err
		}
		if s.sum(number, good, payload) != binary.LittleEndian.Uint32(head[4:]) {
			return good, &FrameError{"its checksum is wrong"}, nil
		}
		end := good + HeadSize + n
		if bad := apply(payload, end); bad != nil {
			return good, bad, nil
		}
		good = end
	}
	return good, nil, nil
}

// Follows reports whether a good frame follows the bad frame at the given offset. If so, the bad
// frame is damaged. If not, it may be the last write, which a crash has interrupted. The length in
// the bad frame may be wrong, so Follows looks for a good frame at every offset. If this takes too
// much work, or if more bytes follow than one frame may have, Follows returns true.
func (s *Summer) Follows(f vfs.File, number uint64, size, bad int64) (bool, error) {
	if size-bad > HeadSize+MaxPayload { // more than one write
		return true, nil
	}
	rest := make([]byte, size-bad)
	if _, err := io.ReadFull(io.NewSectionReader(f, bad, size-bad), rest); err != nil {
		return false, err
	}
	work := scanWork
	for at := 1; at+HeadSize < len(rest); at++ {
		n := int64(binary.LittleEndian.Uint32(rest[at:]))
		if n == 0 || n > MaxPayload || n > int64(len(rest)-at-HeadSize) {
			continue
		}
		if work -= int(n); work < 0 {
			return true, nil
		}
		payload := rest[at+HeadSize:][:n]
		if s.sum(number, bad+int64(at), payload) == binary.LittleEndian.Uint32(rest[at+4:]) {
			return true, nil
		}
	}
	return false, nil
}
