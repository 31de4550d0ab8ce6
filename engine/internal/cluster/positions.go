package cluster

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/penstock-io/penstock/stream"
)

// MaxPositions is the maximum size of the progress of one route in bytes. It leaves some room below
// 1 MiB, the maximum size of a message that a NATS server accepts by default.
const MaxPositions = 900 << 10

// positionsFormat is the version of the format of a route's value.
const positionsFormat = 1

// maxOpen is the maximum number of attempts to open the progress of a route. An attempt fails if
// another process writes the key between its read and its write.
const maxOpen = 10

// Positions is the progress of a route in the bucket, for one period in which this process owns the
// pipeline. Each save writes the whole value by compare-and-set: the bucket refuses the write if
// another process has written since the last save. So after a new owner has opened the progress, an
// earlier owner cannot save. The methods are safe for concurrent use.
type Positions struct {
	register Register
	route    string
	epoch    uint64

	mu       sync.Mutex // guards the fields below; held during a write
	revision uint64
	count    uint64 // number of writes in this period of ownership
	marks    map[string]stream.Mark
	failed   error // reason why nothing can be saved in this period
}

// routeValue is the value of a route's key.
type routeValue struct {
	Format int         `json:"format"`
	Epoch  uint64      `json:"epoch"` // epoch of the owner that has written the value
	Count  uint64      `json:"count"` // number of writes of that owner
	Marks  []markValue `json:"marks"`
}

// markValue is the JSON form of a stream.Mark (the progress of a partition). Keys and metadata
// are bytes, which need not be UTF-8.
type markValue struct {
	Part     string       `json:"part"`
	Name     string       `json:"name"`
	Num      int64        `json:"num"`
	Key      []byte       `json:"key,omitempty"`
	Above    []rangeValue `json:"above,omitempty"`
	Finished bool         `json:"finished,omitempty"`
	Note     []byte       `json:"note,omitempty"`
}

type rangeValue struct {
	From    int64  `json:"from"`
	FromKey []byte `json:"from_key,omitempty"`
	To      int64  `json:"to"`
	ToKey   []byte `json:"to_key,omitempty"`
}

// FencedError means that a later owner has taken over the progress of a route.
type FencedError struct {
	Route     string
	Own, Seen uint64 // epochs
}

// Error describes the lost ownership.
func (e *FencedError) Error() string {
	return fmt.Sprintf("progress of %s: another process has taken over (its epoch is %d, this "+
		"process has %d)", e.Route, e.Seen, e.Own)
}

// OpenPositions reads the progress of a route, and writes it back with the epoch of the tenure t.
// After it has succeeded, owners with an earlier epoch cannot save progress.
func OpenPositions(ctx context.Context, r Register, route string, t Tenure) (*Positions, error) {
	p := &Positions{register: r, route: route, epoch: t.Epoch}
	var err error
	for range maxOpen {
		var old Stored
		if old, err = r.Read(ctx); err != nil {
			break
		}
		var value routeValue
		if value, err = p.decode(old); err != nil {
			return nil, err
		}
		if value.Epoch > p.epoch {
			return nil, &FencedError{Route: route, Own: p.epoch, Seen: value.Epoch}
		}
		p.count, p.marks = 0, value.positions()
		if value.Epoch == p.epoch {
			p.count = value.Count // the same tenure: the route has restarted
		}
		var next []byte
		if next, err = p.encode(p.marks); err != nil {
			return nil, err
		}
		if p.revision, err = r.Write(ctx, old.Found, old.Revision, next); err == nil {
			p.count++
			return p, nil
		}
	}
	return nil, fmt.Errorf("progress of %s in the bucket: %w", route, err)
}

func (p *Positions) decode(s Stored) (v routeValue, err error) {
	if !s.Found {
		return v, nil
	}
	if err := json.Unmarshal(s.Data, &v); err != nil {
		return v, fmt.Errorf("progress of %s in the bucket has an unknown form: %w", p.route, err)
	}
	if v.Format != positionsFormat {
		return v, fmt.Errorf("progress of %s in the bucket has format %d, but this penstock "+
			"reads up to %d: use the version that wrote it, or a newer one",
			p.route, v.Format, positionsFormat)
	}
	return v, nil
}

// encode returns the value to write next.
func (p *Positions) encode(marks map[string]stream.Mark) ([]byte, error) {
	v := routeValue{
		Format: positionsFormat, Epoch: p.epoch, Count: p.count + 1, Marks: []markValue{},
	}
	for _, id := range slices.Sorted(maps.Keys(marks)) {
		v.Marks = append(v.Marks, valueOf(marks[id]))
	}
	text, err := json.Marshal(v)
	if err == nil && len(text) > MaxPositions {
		err = fmt.Errorf("it has %d bytes for %d partitions, but a key of the bucket holds at "+
			"most %d: let the pipeline read fewer partitions", len(text), len(marks), MaxPositions)
	}
	return text, err
}

func valueOf(m stream.Mark) markValue {
	v := markValue{
		Part: m.Part.ID, Name: m.Part.Name, Num: m.Watermark.Num, Key: []byte(m.Watermark.Key),
		Finished: m.Finished, Note: []byte(m.Metadata),
	}
	for _, r := range m.Above {
		v.Above = append(v.Above, rangeValue{
			From: r.From.Num, FromKey: []byte(r.From.Key), To: r.To.Num, ToKey: []byte(r.To.Key),
		})
	}
	return v
}

func (v *routeValue) positions() map[string]stream.Mark {
	marks := make(map[string]stream.Mark, len(v.Marks))
	for _, m := range v.Marks {
		out := stream.Mark{
			Part:      stream.Partition{ID: m.Part, Name: m.Name},
			Watermark: stream.Position{Num: m.Num, Key: string(m.Key)},
			Finished:  m.Finished, Metadata: string(m.Note),
		}
		for _, r := range m.Above {
			out.Above = append(out.Above, stream.Range{
				From: stream.Position{Num: r.From, Key: string(r.FromKey)},
				To:   stream.Position{Num: r.To, Key: string(r.ToKey)},
			})
		}
		marks[m.Part] = out
	}
	return marks
}

// Append saves marks (the progress of partitions) of the route. After an error, it is unknown
// whether they were saved. Append may be called again unless Failed returns an error.
//
// Append returns an error if there are places (resume tokens). Only sinks that append to a local
// file have resume tokens, and a pipeline that a cluster shares cannot have such a sink.
func (p *Positions) Append(_ string, marks []stream.Mark, places map[string]string) error {
	if len(places) > 0 {
		return fmt.Errorf("progress of %s: a bucket stores no resume tokens", p.route)
	}
	return p.change(func(all map[string]stream.Mark) {
		for _, m := range marks {
			m.Part.ID, m.Part.Name = strings.Clone(m.Part.ID), strings.Clone(m.Part.Name)
			m.Above = slices.Clone(m.Above)
			all[m.Part.ID] = m
		}
	})
}

// Forget deletes the progress of partitions.
func (p *Positions) Forget(_ string, ids []string) error {
	return p.change(func(all map[string]stream.Mark) {
		for _, id := range ids {
			delete(all, id)
		}
	})
}

func (p *Positions) change(f func(map[string]stream.Mark)) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.failed != nil {
		return p.failed
	}
	next := maps.Clone(p.marks)
	f(next)
	text, err := p.encode(next)
	if err != nil {
		p.failed = fmt.Errorf("progress of %s: %w", p.route, err)
		return p.failed
	}
	revision, err := p.write(text)
	if err != nil {
		return fmt.Errorf("save progress of %s in the bucket: %w", p.route, err)
	}
	p.revision, p.marks = revision, next
	p.count++
	return nil
}

// write writes text as the next value. If the write fails, the bucket may have stored text although
// no response has arrived. write then reads the stored value, and there are four cases:
//
//   - The value equals text: the write has taken effect, and write succeeds.
//   - The value is an older one of this owner. If the failure was ErrConflict, an earlier write has
//     taken effect late, and write tries once more, with the new revision. Otherwise write returns
//     the failure.
//   - The value is that of another owner: write returns a FencedError.
//   - The key was deleted by hand: write creates it again, because this owner still has the
//     progress.
func (p *Positions) write(text []byte) (uint64, error) {
	ctx := context.Background() // each request has a timeout of its own
	revision, err := p.register.Write(ctx, true, p.revision, text)
	if err == nil {
		return revision, nil
	}
	stored, readErr := p.register.Read(ctx)
	if readErr != nil {
		return 0, errors.Join(err, readErr)
	}
	value, decodeErr := p.decode(stored)
	switch {
	case decodeErr != nil:
		return 0, decodeErr
	case !stored.Found: // the key was deleted by hand; the owner still has the progress
		return p.register.Write(ctx, false, stored.Revision, text)
	case value.Epoch != p.epoch:
		p.failed = &FencedError{Route: p.route, Own: p.epoch, Seen: value.Epoch}
		return 0, p.failed
	case string(stored.Data) == string(text):
		return stored.Revision, nil
	case errors.Is(err, ErrConflict):
		return p.register.Write(ctx, true, stored.Revision, text)
	}
	return 0, err
}

// Sync writes nothing, because Append has already saved the progress in the bucket. Sync returns
// the result of Failed.
func (p *Positions) Sync() error { return p.Failed() }

// Failed returns the reason why this owner can save nothing any more, or nil.
func (p *Positions) Failed() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.failed
}

// Mark returns the progress of a partition. ok is false if there is none.
func (p *Positions) Mark(_, id string) (m stream.Mark, ok bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	m, ok = p.marks[id]
	m.Above = slices.Clone(m.Above)
	return m, ok
}

// Marks yields the progress of each partition of the route.
func (p *Positions) Marks(string) iter.Seq[stream.Mark] {
	return func(yield func(stream.Mark) bool) {
		p.mu.Lock()
		ids := slices.Sorted(maps.Keys(p.marks))
		p.mu.Unlock()
		for _, id := range ids {
			if m, ok := p.Mark("", id); ok && !yield(m) {
				return
			}
		}
	}
}

// Places returns nil, because a cluster uses no sinks with resume tokens.
func (p *Positions) Places(string) map[string]string { return nil }

// Routes returns the one route of this value.
func (p *Positions) Routes() []string { return []string{p.route} }
