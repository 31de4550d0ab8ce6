package deadletter

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"time"
	"unicode/utf8"

	"github.com/penstock-io/penstock/vfs"
)

const (
	// tailBytes is the size of the last part of the file in which Open collects the ids of letters.
	// After a kill, the source repeats records, some of which may already be letters. The Store
	// recognizes them by their ids and does not write them again. The size is twice the default of
	// checkpoint.replay, because a letter is longer than its record.
	tailBytes = 64 << 20
	// maxKnown is the maximum number of ids that are kept. The newest are kept.
	maxKnown = 1 << 19
)

// idHash stands for the id of a record. It is the first 16 bytes of the id's SHA-256.
type idHash [16]byte

func hashOf(id string) idHash {
	sum := sha256.Sum256([]byte(id))
	return idHash(sum[:16])
}

// recentIDs is a set of the newest ids, up to maxKnown.
type recentIDs struct {
	set  map[idHash]struct{}
	ring []idHash
	next int
}

func (r *recentIDs) has(id idHash) bool {
	_, ok := r.set[id]
	return ok
}

func (r *recentIDs) add(id idHash) {
	if r.has(id) {
		return
	}
	if len(r.ring) < maxKnown {
		r.ring = append(r.ring, id)
	} else {
		delete(r.set, r.ring[r.next])
		r.ring[r.next] = id
		r.next = (r.next + 1) % maxKnown
	}
	r.set[id] = struct{}{}
}

// repair prepares the file f for appending. It collects the ids of the letters in the last part of
// f, and returns the offset at which the next letter is written.
//
// A kill or power loss may leave an incomplete letter at the end. repair removes it: its Append has
// not returned, so nobody relies on it. Other lines at the end that are not letters were damaged,
// or written by another program. repair moves them, and an incomplete line after them, to a
// separate file, so that nothing is lost.
func (s *Store) repair(f vfs.File) (size int64, err error) {
	info, err := f.Stat()
	if err != nil {
		return 0, err
	}
	from, tail, err := lastLines(f, info.Size)
	if err != nil {
		return 0, err
	}
	torn, good := ends(tail)
	ours := bytes.HasPrefix(tail[torn:], linePrefix[:min(len(linePrefix), len(tail)-torn)])
	if good < torn || !ours {
		if err := s.setAside(tail[good:]); err != nil {
			return 0, err
		}
	}
	for line := range bytes.Lines(tail[:good]) {
		if id, ok := idOf(line); ok {
			s.known.add(hashOf(id))
		}
	}
	size = from + int64(good)
	if size < info.Size {
		if err := f.Truncate(size); err != nil {
			return 0, err
		}
	}
	_, err = f.Seek(size, io.SeekStart)
	return size, err
}

// lastLines returns the last tailBytes of a file and their offset. The last complete line may begin
// before them, because a letter may be long. lastLines then returns a larger part of the file,
// which contains this line.
func lastLines(f vfs.File, size int64) (from int64, tail []byte, err error) {
	for n := int64(tailBytes); ; n *= 2 {
		from = max(0, size-n)
		tail = make([]byte, size-from)
		if _, err := f.ReadAt(tail, from); err != nil && err != io.EOF {
			return 0, nil, err
		}
		end := bytes.LastIndexByte(tail, '\n')
		if from == 0 || end >= 0 && bytes.IndexByte(tail[:end], '\n') >= 0 {
			return from, tail, nil
		}
	}
}

// ends returns two offsets in tail: torn is the end of the last line that has a line end, and good
// is the end of the last line that is a letter.
func ends(tail []byte) (torn, good int) {
	torn = bytes.LastIndexByte(tail, '\n') + 1
	good = torn
	for good > 0 && !endsWhole(tail[:good]) {
		good = bytes.LastIndexByte(tail[:good-1], '\n') + 1
	}
	return torn, good
}

// linePrefix is the beginning of every line in this version of the format.
var linePrefix = []byte(`{"version":1,"id":"`)

// maxAsides is the maximum number of file names that setAside tries.
const maxAsides = 1000

// setAside writes text to a new file in the directory of the store.
func (s *Store) setAside(text []byte) error {
	for n := 1; n <= maxAsides; n++ {
		name := fmt.Sprintf("%s.aside-%d", s.name, n)
		f, err := s.dir.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
		if errors.Is(err, fs.ErrExist) {
			continue
		}
		if err != nil {
			return err
		}
		if _, err = f.Write(text); err == nil {
			err = f.Sync()
		}
		if err = errors.Join(err, f.Close()); err != nil {
			return err
		}
		s.aside = filepath.Join(s.path, name)
		return s.dir.Sync()
	}
	return fmt.Errorf("there are %d damaged copies beside it already; check them and move them "+
		"away", maxAsides)
}

// endsWhole reports whether the last line of text is a complete letter.
func endsWhole(text []byte) bool {
	last := len(text) - 1
	if text[last] != '\n' {
		return false
	}
	_, ok := idOf(text[bytes.LastIndexByte(text[:last], '\n')+1:])
	return ok
}

// idOf returns the id of the letter in a line, and false if the line is not a letter.
func idOf(line []byte) (string, bool) {
	// Fast path: check the line without decoding the record.
	rest, ours := bytes.CutPrefix(line, linePrefix)
	id, rest, hasTime := bytes.Cut(rest, []byte(`","time":"`))
	at, rest, _ := bytes.Cut(rest, []byte(`"`))
	if ours && hasTime && !bytes.ContainsAny(id, `\"`) && new(time.Time).UnmarshalText(at) == nil &&
		bytes.Contains(rest, []byte(`,"record":"`)) {
		return string(id), utf8.Valid(line) && json.Valid(line)
	}
	e, ok := decode(line)
	return e.ID, ok
}
