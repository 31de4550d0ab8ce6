//penstock:pure

package checkpoint

import (
	"encoding/binary"

	"github.com/penstock-io/penstock/engine/internal/framelog"
	"github.com/penstock-io/penstock/stream"
)

// See docs/formats/checkpoint.md for the format. Numbers of fixed width are little-endian.
const (
	magic   = "PSTKCKPT"
	version = 3 // written by this program; 2 had no flag for waiting, 1 no metadata
	// The layout of the header (framelog) must stay the same in all future versions.
	headerSize = framelog.HeaderSize
	frameHead  = framelog.HeadSize
)

// Kinds of a frame.
const (
	kindEntry  = 1 // marks (progress of partitions) and resume tokens of one route
	kindForget = 2 // deleted partitions of one route
	kindEnd    = 3 // the snapshot is complete
)

// Flags of a mark.
const (
	flagFinished = 1 << iota
	flagName     // a name follows
	flagKeys     // positions have keys
	flagAbove    // ranges follow
	flagNote     // metadata follows the ranges
	flagWaiting  // some of the data waits for a retry, see docs/formats/waiting.md
	flagsKnown   = flagFinished | flagName | flagKeys | flagAbove | flagNote | flagWaiting
)

// entry is the contents of one Append, or a part of a snapshot. The log numbers its routes,
// partitions and lanes, so that later entries contain a number instead of a key, id or name. The
// number 0 in an entry defines a new item, which gets the next number. Example: the first entry of
// a route's first partition has 0 and the partition's id. Later entries of this partition have 1
// and no id.
type entry struct {
	route  int
	key    string // key of a new route
	marks  []markOp
	places []placeOp
}

type markOp struct {
	part  int
	named bool        // the name must be stored; always true for a new partition
	mark  stream.Mark // Part.ID is used only if part is 0
}

type placeOp struct {
	lane  int
	name  string // name of a new lane
	place string
}

type forget struct {
	route int
	parts []int
}

// appendString appends s in a compressed form, because s often begins like prev, the string before
// it. The form is the length of the common prefix, the length of the rest of s, and the rest.
func appendString(dst []byte, prev, s string) []byte {
	n := 0
	for n < len(prev) && n < len(s) && prev[n] == s[n] {
		n++
	}
	dst = binary.AppendUvarint(dst, uint64(n))
	dst = binary.AppendUvarint(dst, uint64(len(s)-n))
	return append(dst, s[n:]...)
}

func appendEntry(dst []byte, e *entry) []byte {
	dst = append(dst, kindEntry)
	dst = binary.AppendUvarint(dst, uint64(e.route))
	if e.route == 0 {
		dst = appendString(dst, "", e.key)
	}
	dst = binary.AppendUvarint(dst, uint64(len(e.marks)))
	id, name := "", ""
	for i := range e.marks {
		op := &e.marks[i]
		dst = appendMark(dst, op, id, name)
		if op.part == 0 {
			id = op.mark.Part.ID
		}
		if op.part == 0 || op.named {
			name = op.mark.Part.Name
		}
	}
	dst = binary.AppendUvarint(dst, uint64(len(e.places)))
	for i := range e.places {
		op := &e.places[i]
		dst = binary.AppendUvarint(dst, uint64(op.lane))
		if op.lane == 0 {
			dst = appendString(dst, "", op.name)
		}
		dst = appendString(dst, "", op.place)
	}
	return dst
}

// appendMark appends the progress of one partition (a mark). The arguments id and name are the last
// ones that the entry has stored. The id and the name of the mark are compressed relative to them
// (see appendString).
func appendMark(dst []byte, op *markOp, id, name string) []byte {
	m := &op.mark
	keys, flags := hasKeys(m), byte(0)
	if m.Finished {
		flags |= flagFinished
	}
	if op.named || op.part == 0 {
		flags |= flagName
	}
	if keys {
		flags |= flagKeys
	}
	if len(m.Above) > 0 {
		flags |= flagAbove
	}
	if m.Metadata != "" {
		flags |= flagNote
	}
	if m.Waiting {
		flags |= flagWaiting
	}
	dst = binary.AppendUvarint(dst, uint64(op.part))
	if op.part == 0 {
		dst = appendString(dst, id, m.Part.ID)
	}
	dst = append(dst, flags)
	if flags&flagName != 0 {
		dst = appendString(dst, name, m.Part.Name)
	}
	at := stream.Position{}
	dst, at = appendPosition(dst, at, m.Watermark, keys)
	if flags&flagAbove != 0 {
		dst = binary.AppendUvarint(dst, uint64(len(m.Above)))
		for _, r := range m.Above {
			dst, at = appendPosition(dst, at, r.From, keys)
			dst, at = appendPosition(dst, at, r.To, keys)
		}
	}
	if flags&flagNote != 0 {
		dst = appendString(dst, "", m.Metadata)
	}
	return dst
}

// appendPosition appends the difference between p and prev, the position before it, and returns p
// as the prev of the next call. keys reports whether the positions have keys. The difference of
// numbers wraps around, so it is defined for all numbers.
func appendPosition(dst []byte, prev, p stream.Position, keys bool) ([]byte, stream.Position) {
	dst = binary.AppendVarint(dst, p.Num-prev.Num)
	if keys {
		dst = appendString(dst, prev.Key, p.Key)
	}
	return dst, p
}

func hasKeys(m *stream.Mark) bool {
	if m.Watermark.Key != "" {
		return true
	}
	for _, r := range m.Above {
		if r.From.Key != "" || r.To.Key != "" {
			return true
		}
	}
	return false
}

func appendForget(dst []byte, f *forget) []byte {
	dst = append(dst, kindForget)
	dst = binary.AppendUvarint(dst, uint64(f.route))
	dst = binary.AppendUvarint(dst, uint64(len(f.parts)))
	for _, n := range f.parts {
		dst = binary.AppendUvarint(dst, uint64(n))
	}
	return dst
}

// appendEnd appends the payload of the frame that ends a snapshot. The payload has the numbers of
// marks and resume tokens in the snapshot, so that a reader detects missing frames.
func appendEnd(dst []byte, marks, places int) []byte {
	dst = append(dst, kindEnd)
	dst = binary.AppendUvarint(dst, uint64(marks))
	return binary.AppendUvarint(dst, uint64(places))
}
