package buffer

import (
	"context"
	"time"
)

// settledBelow returns the number below which every route has settled all envelopes durably
// (delivered, dead-lettered or dropped). While a route has not opened or has no progress, this is
// the number of the first envelope. The caller holds b.mu.
func (b *Buffer) settledBelow() uint64 {
	below := b.last + 1
	for _, name := range b.host.Routes() {
		p := b.routes[name]
		if p == nil || !p.known {
			return b.first // a route that has not opened yet, or has no progress
		}
		number, _ := placeOf(p.committed)
		below = min(below, number)
	}
	return max(below, b.first)
}

// purge deletes envelopes that all routes have settled, until ctx is done. It retries a failed
// deletion. It keeps the last envelope, because the next envelope must contain its checksum.
func (b *Buffer) purge(ctx context.Context) error {
	tick := time.NewTicker(purgeEvery)
	defer tick.Stop()
	failing := false
	for {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return nil
		}
		b.mu.Lock()
		below, first, last, store := b.settledBelow(), b.first, b.last, b.store
		kept := b.deletableBelow(below)
		b.mu.Unlock()
		var err error
		if target := min(below, last, kept); target > first {
			err = b.purgeBelow(ctx, store, target)
		}
		if err == nil {
			err = b.findOldest(ctx, store, below, last)
		}
		if ctx.Err() != nil {
			return nil
		}
		if err != nil && !failing {
			b.host.Log().Warn("settled data of the buffer is not deleted yet", "error", err)
		}
		failing = err != nil
	}
}

func (b *Buffer) purgeBelow(ctx context.Context, store Store, number uint64) error {
	if err := store.Purge(ctx, number); err != nil {
		return err
	}
	_, _, bytes, err := store.State(ctx)
	if err != nil {
		return err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.first, b.bytes = number, bytes
	b.notify()
	return nil
}

// findOldest sets b.oldest to the time at which the unsettled envelope with the given number was
// stored. A number greater than last means that the buffer has no unsettled data. b.oldest then
// becomes zero, unless another envelope was stored meanwhile. findOldest changes nothing if
// Options.Age is not set or the envelope is corrupt.
func (b *Buffer) findOldest(ctx context.Context, store Store, number, last uint64) error {
	if b.o.Age == 0 {
		return nil
	}
	var oldest time.Time
	if number <= last {
		e, err := load(ctx, store, number)
		if err != nil {
			if isDown(err) {
				return err
			}
			return nil // the routes report it
		}
		oldest = time.Unix(0, e.stored)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if number > last && b.last > last {
		return nil // a new envelope was stored meanwhile
	}
	if !b.oldest.Equal(oldest) {
		b.oldest = oldest
		b.notify()
	}
	return nil
}
