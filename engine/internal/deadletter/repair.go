package deadletter

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"io"

	"github.com/penstock-io/penstock/vfs"
)

const (
	// tailBytes of the file are read at Open for the ids of letters that a kill may let come again: twice the default replay
	// bound, because a letter is longer than its record.
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

func newRecentIDs(limit int) *recentIDs { return &recentIDs{set: make(map[idHash]struct{}), max: limit} }

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

// repair removes what a kill or a power loss left half written at the end of f, puts the ids of its tail into known, and leaves
// the offset at the end, which it returns. What it removes was never acknowledged: an acknowledged letter was durable, and
// so was all before it.
func repair(f vfs.File, known *recentIDs) (size int64, err error) {
	info, err := f.Stat()
	if err != nil {
		return 0, err
	}
	from := max(0, info.Size-tailBytes)
	tail := make([]byte, info.Size-from)
	if _, err := f.ReadAt(tail, from); err != nil && err != io.EOF {
		return 0, err
	}
	good := len(tail)
	for good > 0 && !endsWhole(tail[:good]) {
		good = bytes.LastIndexByte(tail[:good-1], '\n') + 1
	}
	for line := range bytes.Lines(tail[:good]) {
		if id, ok := idOf(line); ok {
			known.add(hashOf(id))
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
	var letter struct {
		ID *string `json:"id"`
	}
	if err := json.Unmarshal(line, &letter); err != nil || letter.ID == nil {
		return "", false
	}
	return *letter.ID, true
}
