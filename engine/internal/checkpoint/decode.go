//penstock:pure

package checkpoint

import (
	"errors"

	"github.com/penstock-io/penstock/stream"
	"github.com/penstock-io/penstock/wire"
)

// errEntry means that a frame (a part of the log with its own checksum) has a valid checksum but
// invalid contents. The cause is a bug or a manipulation of the file.
var errEntry = errors.New("an entry has a correct checksum but invalid content")

// cursor reads the items of a frame in order. An error sets Bad, which then stays set. So a decoder
// needs to check for an error only once, at its end.
type cursor struct{ wire.Reader }

func cursorOver(payload []byte) *cursor {
	c := &cursor{wire.Reader{Rest: payload}}
	c.Byte() // skip the kind
	return c
}

// count reads the number of items that follow. The caller knows that each item has at least size
// bytes. If the remaining bytes are too few for the number of items, the frame is invalid, and
// count returns 0.
func (c *cursor) count(size int) int {
	n := c.Uvarint()
	if n > uint64(len(c.Rest)/size) {
		c.Fail()
		return 0
	}
	return int(n)
}

// number reads a reference to an item that was defined earlier in the log. Items are numbered from
// 1, and known is the last number. In an entry, 0 means that a new item is defined here.
func (c *cursor) number(known int) int {
	n := c.Uvarint()
	if n > uint64(known) {
		c.Fail()
		return 0
	}
	return int(n)
}

func (c *cursor) string(prev string) string {
	shared, rest := c.Uvarint(), c.Uvarint()
	own := c.Take(rest)
	if c.Bad || shared > uint64(len(prev)) {
		c.Fail()
		return ""
	}
	return prev[:shared] + string(own)
}

func (c *cursor) position(prev stream.Position, keys bool) stream.Position {
	p := stream.Position{Num: prev.Num + c.Varint()}
	if keys {
		p.Key = c.string(prev.Key)
	}
	return p
}

// decodeEntry decodes the payload of a frame into e, and reuses the slices of e. It returns an
// error if the payload is invalid, for example if it refers to a route, partition or lane (worker)
// that the log has not defined.
func (st *state) decodeEntry(payload []byte, e *entry) error {
	c := cursorOver(payload)
	e.marks, e.places, e.key = e.marks[:0], e.places[:0], ""
	e.route = c.number(len(st.routes))
	r := &route{}
	if e.route == 0 {
		e.key = c.string("")
	} else {
		r = st.routes[e.route-1]
	}
	known := len(r.parts)
	id, name := "", ""
	for range c.count(3) {
		op := c.mark(known, id, name)
		if op.part == 0 {
			known++
			id = op.mark.Part.ID
		} else if op.part <= len(r.parts) && r.parts[op.part-1].gone {
			c.Bad = true
		}
		if op.named {
			name = op.mark.Part.Name
		}
		e.marks = append(e.marks, op)
	}
	lanes := len(r.lanes)
	for range c.count(3) {
		op := placeOp{lane: c.number(lanes)}
		if op.lane == 0 {
			lanes++
			op.name = c.string("")
		}
		op.place = c.string("")
		e.places = append(e.places, op)
	}
	if !c.Done() {
		return errEntry
	}
	return nil
}

func (c *cursor) mark(known int, id, name string) markOp {
	op := markOp{part: c.number(known)}
	m := &op.mark
	if op.part == 0 {
		m.Part.ID = c.string(id)
	}
	flags := c.Byte()
	if flags&^flagsKnown != 0 {
		c.Bad = true
	}
	op.named = flags&flagName != 0
	if op.named {
		m.Part.Name = c.string(name)
	}
	keys := flags&flagKeys != 0
	m.Finished, m.Waiting = flags&flagFinished != 0, flags&flagWaiting != 0
	m.Watermark = c.position(stream.Position{}, keys)
	if flags&flagAbove != 0 {
		at := m.Watermark
		n := c.count(2)
		m.Above = make([]stream.Range, 0, n)
		for range n {
			from := c.position(at, keys)
			at = c.position(from, keys)
			m.Above = append(m.Above, stream.Range{From: from, To: at})
		}
	}
	if flags&flagNote != 0 {
		m.Metadata = c.string("")
	}
	return op
}

func (st *state) decodeForget(payload []byte) (forget, error) {
	c := cursorOver(payload)
	f := forget{route: c.number(len(st.routes))}
	if f.route == 0 {
		return f, errEntry
	}
	parts := st.routes[f.route-1].parts
	for range c.count(1) {
		n := c.number(len(parts))
		if n == 0 || parts[n-1].gone {
			return f, errEntry
		}
		f.parts = append(f.parts, n)
	}
	if !c.Done() {
		return f, errEntry
	}
	return f, nil
}

func decodeEnd(payload []byte) (marks, places int, err error) {
	c := cursorOver(payload)
	m, p := c.Uvarint(), c.Uvarint()
	if !c.Done() || m > 1<<40 || p > 1<<40 {
		return 0, 0, errEntry
	}
	return int(m), int(p), nil
}
