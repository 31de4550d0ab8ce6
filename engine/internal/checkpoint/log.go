package checkpoint

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/penstock-io/penstock/vfs"
)

// readBuffer is the size of the read buffer in bytes.
const readBuffer = 256 << 10

// scanWork limits the search for valid frames after a bad frame. The search may read at most this
// number of bytes to compute checksums. If it would need more, the file counts as damaged, which is
// the safe choice.
const scanWork = 64 << 20

// errVersion means that a newer program wrote the file.
var errVersion = errors.New("written by a newer penstock")

// loaded has the contents of a log and describes its damage.
type loaded struct {
	st         *state
	version    uint16
	generation uint64
	size       int64 // size of the file
	snapshot   int64 // end of the snapshot; 0 if incomplete
	good       int64 // end of the last good frame
	bad        error // why the frame at offset good is bad; nil at the end of the file
	nonsense   bool  // the bad frame has a valid checksum and invalid contents
	sums       summer
	torn       bool // the bad frame is an unfinished last entry: no entry follows it
}

// load reads a file to its end, or to the first bad frame. It returns an error in three cases: a
// read fails, the header is bad, or the format version is above newest. The result describes any
// other damage.
func load(f vfs.File, newest uint16) (*loaded, error) {
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	l := &loaded{st: newState(), size: info.Size}
	r := bufio.NewReaderSize(io.NewSectionReader(f, 0, l.size), int(min(l.size, readBuffer)))
	var head [headerSize]byte
	if _, err := io.ReadFull(r, head[:]); errors.Is(err, io.EOF) ||
		errors.Is(err, io.ErrUnexpectedEOF) {
		return nil, errNotCheckpoint
	} else if err != nil {
		return nil, err
	}
	if l.version, l.generation, err = parseHeader(head[:]); err != nil {
		return nil, err
	}
	if l.version > newest {
		return nil, fmt.Errorf("%w: its format is %d, this program reads up to %d", errVersion,
			l.version, newest)
	}
	l.good = headerSize
	if err := l.frames(r); err != nil {
		return nil, err
	}
	if l.bad != nil && !l.nonsense {
		l.torn, err = l.last(f)
	}
	return l, err
}

// frames reads the frames in order and applies them to the state. At the first bad frame it stops
// and sets l.bad. It returns an error only if a read fails.
func (l *loaded) frames(r *bufio.Reader) error {
	var head [frameHead]byte
	var payload []byte
	e := &entry{}
	for l.good < l.size {
		left := l.size - l.good
		if left < frameHead {
			l.bad = errors.New("its header is incomplete")
			return nil
		}
		if _, err := io.ReadFull(r, head[:]); err != nil {
			return err
		}
		n := int64(binary.LittleEndian.Uint32(head[:]))
		if n == 0 || n > maxEntry || n > left-frameHead {
			l.bad = fmt.Errorf("its length of %d is invalid", n)
			return nil
		}
		payload = slices.Grow(payload[:0], int(n))[:n]
		if _, err := io.ReadFull(r, payload); err != nil {
			return err
		}
		if l.sums.sum(l.generation, l.good, payload) != binary.LittleEndian.Uint32(head[4:]) {
			l.bad = errors.New("its checksum is wrong")
			return nil
		}
		if l.bad = l.apply(payload, e); l.bad != nil {
			l.nonsense = true
			return nil
		}
		l.good += frameHead + n
		if payload[0] == kindEnd {
			l.snapshot = l.good
		}
	}
	return nil
}

// apply applies a frame with a valid checksum to the state. After an error the state is
// unchanged.
func (l *loaded) apply(payload []byte, e *entry) error {
	switch payload[0] {
	case kindEntry:
		if err := l.st.decodeEntry(payload, e); err != nil {
			return err
		}
		l.st.apply(e)
	case kindForget:
		f, err := l.st.decodeForget(payload)
		if err != nil {
			return err
		}
		l.st.forget(&f)
	case kindEnd:
		marks, places, err := decodeEnd(payload)
		if err != nil {
			return err
		}
		if m, p := l.st.size(); l.snapshot != 0 || m != marks || p != places {
			return fmt.Errorf("the snapshot should contain %d progress entries and %d resume "+
				"tokens, but contains %d and %d", marks, places, m, p)
		}
	default:
		return fmt.Errorf("its kind is %d, which is unknown in this format", payload[0])
	}
	return nil
}

// last reports whether the bad frame is a last write that a crash has interrupted. This is so if no
// good frame follows it. The length in the bad frame may be wrong, so last looks for a good frame
// at every offset. If this takes more work than scanWork allows, last returns false.
func (l *loaded) last(f vfs.File) (bool, error) {
	rest := make([]byte, l.size-l.good)
	if _, err := io.ReadFull(io.NewSectionReader(f, l.good, l.size-l.good), rest); err != nil {
		return false, err
	}
	work := scanWork
	for at := 1; at+frameHead < len(rest); at++ {
		n := int64(binary.LittleEndian.Uint32(rest[at:]))
		if n == 0 || n > maxEntry || n > int64(len(rest)-at-frameHead) {
			continue
		}
		if work -= int(n); work < 0 {
			return false, nil
		}
		payload := rest[at+frameHead:][:n]
		if l.sums.sum(l.generation, l.good+int64(at), payload) ==
			binary.LittleEndian.Uint32(rest[at+4:]) {
			return false, nil
		}
	}
	return true, nil
}
