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

	"github.com/penstock-io/penstock/vfs"
)

const (
	// tailBytes of the file are read at Open for the ids of letters that a kill may let come again:
	// twice the default replay bound, because a letter is longer than its record.
	tailBytes = 64 << 20
	// maxKnown ids are kept, the newest.
	maxKnown = 1 << 19
)

// idHash stands for a record's id: 16 bytes of its SHA-256.
type idHash [16]byte

func hashOf(id string) idHash {
	sum := sha256.Sum256([]byte(id))
	return idHash(sum[:16])
}

// recentIDs is a set of at most a given number of ids, the newest.
type recentIDs struct {
	set  map[idHash]struct{}
	ring []idHash
	next int
	max  int
}

func newRecentIDs(limit int) *recentIDs {
	return &recentIDs{set: make(map[idHash]struct{}), max: limit}
}

func (r *recentIDs) has(id idHash) bool {
	_, ok := r.set[id]
	return ok
}

func (r *recentIDs) add(id idHash) {
	if r.has(id) {
		return
	}
	if len(r.ring) < r.max {
		r.ring = append(r.ring, id)
	} else {
		delete(r.set, r.ring[r.next])
		r.ring[r.next] = id
		r.next = (r.next + 1) % r.max
	}
	r.set[id] = struct{}{}
}

// repair removes what a kill or a power loss left half written at the end of f, learns the ids of
// its tail, and leaves the offset at the end, which it returns. A line without an end is cut off:
// no Append had returned. Whole lines at the end that are no letters are none of ours, or were
// damaged: they are moved into a file of their own, so that nothing is lost.
func (s *Store) repair(f vfs.File) (size int64, err error) {
	info, err := f.Stat()
	if err != nil {
		return 0, err
	}
	from := max(0, info.Size-tailBytes)
	tail := make([]byte, info.Size-from)
	if _, err := f.ReadAt(tail, from); err != nil && err != io.EOF {
		return 0, err
	}
	torn := bytes.LastIndexByte(tail, '\n') + 1
	good := torn
	for good > 0 && !endsWhole(tail[:good]) {
		good = bytes.LastIndexByte(tail[:good-1], '\n') + 1
	}
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

// linePrefix begins every line of this version.
var linePrefix = []byte(`{"version":1,"id":"`)

// asides bounds the search for a free name.
const asides = 1000

// setAside writes text into a new file beside the store's.
func (s *Store) setAside(text []byte) error {
	for n := 1; n <= asides; n++ {
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
		s.aside = filepath.Join(s.dir.Path(), name)
		return s.dir.Sync()
	}
	return fmt.Errorf("%d files that were set aside stand beside it; look at them and move them away", asides)
}

// endsWhole says whether the last line of text is whole.
func endsWhole(text []byte) bool {
	last := len(text) - 1
	if text[last] != '\n' {
		return false
	}
	_, ok := idOf(text[bytes.LastIndexByte(text[:last], '\n')+1:])
	return ok
}

// idOf reads the id of a whole line.
func idOf(line []byte) (string, bool) {
	if rest, ok := bytes.CutPrefix(line, linePrefix); ok && bytes.HasSuffix(line, []byte("}\n")) { // the fast way
		if id, _, ok := bytes.Cut(rest, []byte(`"`)); ok && bytes.IndexByte(id, '\\') < 0 {
			return string(id), json.Valid(line)
		}
	}
	var letter struct {
		ID *string `json:"id"`
	}
	if err := json.Unmarshal(line, &letter); err != nil || letter.ID == nil {
		return "", false
	}
	return *letter.ID, true
}
