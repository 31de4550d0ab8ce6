package checkpoint

import (
	"bufio"
	"cmp"
	"errors"
	"fmt"
	"io"

	"github.com/penstock-io/penstock/engine/internal/framelog"
	"github.com/penstock-io/penstock/vfs"
)

// readBuffer is the size of the read buffer in bytes.
const readBuffer = 256 << 10

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
	sums       framelog.Summer
	torn       bool // the bad frame is an unfinished last entry: no entry follows it
}

// load reads a file to its end, or to the first bad frame. It returns an error in four cases: the
// file cannot be read, the header is bad, the format version is above newest, or the snapshot at
// the beginning is damaged. The entries after a damaged snapshot are useless, because they refer to
// it. All other damage is no error: the result describes it.
func load(f vfs.File, newest uint16) (*loaded, error) {
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	l := &loaded{st: newState(), size: info.Size}
	r := bufio.NewReaderSize(io.NewSectionReader(f, 0, l.size), int(min(l.size, readBuffer)))
	head := make([]byte, min(l.size, headerSize))
	if _, err := io.ReadFull(r, head); err != nil {
		return nil, err
	}
	if l.version, l.generation, err = framelog.ParseHeader(head, magic); err != nil {
		return nil, err
	}
	if l.version > newest {
		return nil, fmt.Errorf("%w: its format is %d, this program reads up to %d", errVersion,
			l.version, newest)
	}
	e := &entry{}
	apply := func(payload []byte, end int64) error {
		if err := l.apply(payload, e); err != nil {
			return err
		}
		if payload[0] == kindEnd {
			l.snapshot = end
		}
		return nil
	}
	l.good, l.bad, err = l.sums.Read(r, l.generation, l.size, apply)
	if _, broken := l.bad.(*framelog.FrameError); broken && err == nil {
		follows := false
		follows, err = l.sums.Follows(f, l.generation, l.size, l.good)
		l.torn = !follows
	}
	if err == nil && l.snapshot == 0 {
		why := cmp.Or(l.bad, errors.New("it ends early"))
		err = fmt.Errorf("its snapshot is damaged at byte %d: %w", l.good, why)
	}
	return l, err
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
