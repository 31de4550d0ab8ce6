package buffer

import (
	"context"
	"slices"
	"time"
)

// maxKeys is the maximum number of keys that a buffer remembers. A key identifies a request that
// may be sent twice. A small buffer remembers fewer keys (see keyShare).
const maxKeys = 128 << 10

// recoverKeys restores the keys of requests that the buffer remembers. It reads the envelopes that
// contain them, from the number last.keysFrom on. last is the last intact envelope. The caller
// holds b.mu.
func (b *Buffer) recoverKeys(ctx context.Context, store Store, last *envelope) error {
	b.keys = keyRecord{from: last.keysFrom}
	if last.keysFrom == 0 {
		return nil
	}
	known := make(map[string]*key)
	var order []*key
	for n := last.keysFrom; n <= last.number; n++ {
		e, err := load(ctx, store, n)
		if isDown(err) {
			return err
		}
		if err != nil {
			const text = "keys of requests are lost with an envelope; a repeated request may arrive twice"
			b.host.Log().Error(text, "number", n, "error", err)
			continue
		}
		b.keys.found(e)
		for i := range e.keys {
			k := &e.keys[i]
			switch old := known[k.id]; {
			case old == nil:
				known[k.id] = k
				order = append(order, k)
			case old.end < k.end:
				*old = *k
			}
		}
	}
	for _, k := range order {
		b.known = append(b.known, k.mark())
	}
	b.host.Log().Info("keys of requests recovered", "keys", len(b.known))
	return nil
}

// copyKeys appends envelopes with copies of all remembered keys of requests, if enough data was
// stored since the last copies (see copiesEvery). After that, the envelopes with the original keys
// can be deleted.
func (b *Buffer) copyKeys(ctx context.Context) error {
	if !b.keys.due(int64(b.o.Bytes)) {
		return nil
	}
	now, before := time.Now(), b.keys.from
	first, copied := b.last+1, 0
	marks := b.in.Requests(innerRoute)
	for part := range slices.Chunk(marks, copiesEach) {
		e := &envelope{keysFrom: before}
		for _, m := range part {
			e.keys = append(e.keys, copyOf(m, now))
		}
		if len(marks) <= copiesEach*int(b.last+2-first) {
			e.keysFrom = first // the last part
		}
		size, err := b.put(ctx, e, now)
		if err != nil {
			return err
		}
		copied += size
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.keys = keyRecord{copied: int64(copied)}
	if len(marks) > 0 {
		b.keys.from = first
	}
	return nil
}

// deletableBelow returns the number below which envelopes may be deleted. This is the argument
// number, or a lower number if some envelopes below it contain remembered keys of requests. The
// caller holds b.mu.
func (b *Buffer) deletableBelow(number uint64) uint64 {
	if b.keys.from != 0 {
		return min(number, b.keys.from)
	}
	return number
}
