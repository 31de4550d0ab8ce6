// Package buffer keeps received data on disk until every route of the pipeline has settled it
// (delivered, dead-lettered or dropped it). It is for data that cannot be read a second time from
// its origin. Sources use it for `ack: buffered`: a sender gets its response as soon as the data is
// stored.
//
//	sender --> intake (memory) --> store (disk) --> routes, each at its own position
//
// One goroutine moves the data from the intake to the store. It stores the waiting data of many
// senders as one entry, an envelope, so that one sync serves all of them (group commit). If the
// store is full, the intake fills up as well, and the senders have to wait (backpressure).
//
// Each envelope has a number, a checksum, and the checksum of the preceding envelope. A route stops
// at a missing or corrupt envelope until an operator gives it up with `penstock buffer skip` or the
// option `skip`. An envelope can be deleted when the durable progress of every route covers it.
package buffer

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/penstock-io/penstock/engine/kit/diskspace"
	"github.com/penstock-io/penstock/engine/kit/intake"
	"github.com/penstock-io/penstock/engine/kit/readers"
	"github.com/penstock-io/penstock/stream"
)

const (
	partitionPrefix = "buffer-"
	// innerRoute is the name of the intake's only route, which moves received data to the store.
	innerRoute = "buffer"
	// envelopeBytes is the size at which an envelope is complete. The record with which the data of
	// an envelope reaches this size is the last record of the envelope.
	envelopeBytes = 512 << 10
	// envelopeRecords is the number of records at which an envelope ends.
	envelopeRecords = 64 << 10
	// envelopeKeys is the number of requests with a key at which an envelope ends. A key is the id
	// by which a repeated request is recognised. The keys of one envelope take less than 64 KiB.
	envelopeKeys = 384
	// purgeEvery is the interval at which the buffer deletes the envelopes that all routes have
	// settled (delivered, dead-lettered or dropped). At the same interval it determines the age of
	// its oldest unsettled data, for the limit Options.Age.
	purgeEvery = 200 * time.Millisecond
	// leastFree is the number of free bytes below which the disk of Options.Dir counts as full. It
	// equals the limit for the disk of the state directory.
	leastFree = 16 << 20
	// warnEvery is the least time between two log lines about the full buffer.
	warnEvery = time.Minute
)

// Buffer is a [stream.Source]: the routes read the received data from a [Store]. Its methods are
// safe for concurrent use.
type Buffer struct {
	o       Options
	skips   []span // skipped by the operator; set before opened is closed
	record  *lastRecord
	name    string
	objects bool
	host    stream.SourceHost
	in      *intake.Intake
	open    func(context.Context) (Store, error)
	free    func(dir string) int64 // free bytes on the disk of dir, or -1 if unknown
	opened  chan struct{}          // closed when store and part are set, or when failed is set

	mu       sync.Mutex // guards the fields below
	store    Store
	failed   error
	part     stream.Partition
	first    uint64 // the lowest envelope number that the store may have
	last     uint64 // the number of the last envelope; 0 if there is none
	sum      uint32 // checksum of the last envelope
	bytes    int64
	keys     keyRecord
	known    []stream.Mark // progress in stored requests with a key; nil once the intake has it
	oldest   time.Time     // when the first unsettled envelope was stored; zero if there is none
	routes   map[string]*progress
	warned   time.Time // when the buffer last logged that it is full
	draining func()    // drains the intake; nil before the intake is read
	emptied  bool      // the intake has drained, and everything from it is stored
	changed  chan struct{}
}

// progress is the progress of one route through the stored data. Positions below committed are
// durably settled: the route has delivered, dead-lettered or dropped their records.
type progress struct {
	committed int64 // position below which the route has durably settled everything
	known     bool  // committed is set
	cuts      readers.Cuts
	draining  bool
}

// innerHost is the host of the intake, whose only route is the store.
type innerHost struct{ stream.SourceHost }

// Routes implements stream.SourceHost.
func (innerHost) Routes() []string { return []string{innerRoute} }

// New returns the intake of a source, a queue in memory for received data. It also returns the
// stream.Source from which the routes read. If ack is Buffered, this source is a Buffer, which
// stores the data of the intake. Otherwise, it is the intake itself. The options must have passed
// Check. maxRecord is the maximum size of a record.
func New(ack string, o Options, maxRecord stream.Size, io intake.Options, h stream.Host) (
	*intake.Intake, stream.Source, error,
) {
	if ack != Buffered {
		in, err := intake.New(io, h)
		return in, in, err
	}
	o.maxRecord = maxRecord
	b, err := newBuffer(o, io, h, nil)
	if err != nil {
		return nil, nil, err
	}
	return b.in, b, nil
}

// newBuffer returns a buffer that uses the store returned by open. If open is nil, the buffer opens
// the store that the options in o describe.
func newBuffer(o Options, io intake.Options, h stream.Host,
	open func(context.Context) (Store, error)) (*Buffer, error) {
	host, ok := h.(stream.SourceHost)
	if !ok {
		return nil, fmt.Errorf("host is a %T, want a stream.SourceHost", h)
	}
	b := &Buffer{
		o: o, open: open, free: diskspace.Free, name: io.Name, objects: io.Objects, host: host,
		opened: make(chan struct{}), routes: make(map[string]*progress), changed: make(chan struct{}),
	}
	if b.open == nil {
		b.open = b.openStore
	}
	io.Objects, io.MaxSpans = false, envelopeKeys
	io.MaxRequests = min(maxKeys, int(o.Bytes/keyShare/keyRoom))
	var err error
	if b.in, err = intake.New(io, innerHost{host}); err != nil {
		return nil, err
	}
	for _, name := range []string{"buffer_full", "buffer_corrupt", "buffer_skipped"} {
		h.Count(name, 0)
	}
	h.Go("buffer/store", b.run)
	return b, nil
}

// openStore opens the store in the directory of the options.
func (b *Buffer) openStore(ctx context.Context) (Store, error) {
	dir := b.o.Dir
	if dir == "" {
		state, err := b.host.State()
		if err != nil {
			return nil, err
		}
		dir = filepath.Join(state.Path(), storeDir)
	}
	return OpenStore(ctx, dir, b.o, b.host.Log())
}

// storeDir is the default directory of the store, in the state directory of the source.
const storeDir = "buffer"

// openRecords reads two files in the state directory of the source. One lists the envelopes that
// operators have decided to skip. The other has the number of the last acknowledged envelope. If
// the store ends before this envelope, openRecords returns an error.
func (b *Buffer) openRecords(ctx context.Context, store Store) error {
	state, err := b.host.State()
	if err != nil {
		return err
	}
	recorded, err := readLast(state)
	if err != nil {
		return err
	}
	_, last, _, err := store.State(ctx)
	if err != nil {
		return err
	}
	if recorded > last {
		const text = "%s: the store of the buffer ends at envelope %d, but %d were acknowledged: it lost " +
			"data; restore it from a backup, or stop the run and give the rest up with " +
			"`penstock buffer skip CONFIG %d-%d`"
		return fmt.Errorf(text, b.name, last, recorded, last+1, recorded)
	}
	if b.skips, err = currentSkips(b.o, state, last); err != nil {
		return err
	}
	b.record, err = openLast(state)
	return err
}

// run moves data from the intake to the store until ctx is done.
func (b *Buffer) run(ctx context.Context) error {
	store, err := b.open(ctx)
	if err == nil {
		err = b.openRecords(ctx, store)
	}
	if err == nil {
		err = b.recover(ctx, store)
	}
	if err != nil {
		b.mu.Lock()
		b.failed = err
		b.mu.Unlock()
		close(b.opened)
		if store != nil {
			err = errors.Join(err, store.Close())
		}
		if b.record != nil {
			err = errors.Join(err, b.record.close())
		}
		return err
	}
	if w, ok := store.(watcher); ok {
		b.host.Go("buffer/connection", w.watch) // its error restarts the source
	}
	purged := make(chan error, 1)
	b.host.Go("buffer/purge", func(ctx context.Context) error {
		err := b.purge(ctx)
		purged <- err
		return err
	})
	close(b.opened)
	err = b.storeAll(ctx)
	if ctx.Err() != nil {
		err = nil
		<-purged // purge uses the store
	}
	return errors.Join(err, store.Close(), b.record.close())
}

// recover restores the state of the buffer after a start. It takes the buffer's id from the last
// intact envelope in the store. It also reads the keys of requests that the buffer remembers, from
// the envelopes that this one refers to (keysFrom). It logs each corrupt envelope after the last
// intact one. If no envelope is intact, the buffer gets a new id.
func (b *Buffer) recover(ctx context.Context, store Store) error {
	first, last, bytes, err := store.State(ctx)
	if err != nil {
		return err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.store, b.first, b.last, b.bytes = store, max(first, 1), last, bytes
	b.part = stream.Partition{ID: partitionPrefix + rand.Text(), Name: b.name}
	for n := last; n >= b.first && n > 0; n-- {
		e, err := load(ctx, store, n)
		if isDown(err) {
			return err
		}
		if err != nil {
			b.host.Log().Error("envelope is corrupt", "number", n, "error", err)
			continue
		}
		if n == last {
			b.sum = e.sum
		}
		b.part.ID = partitionPrefix + e.id
		return b.recoverKeys(ctx, store, e)
	}
	return nil
}

// load returns the envelope with the given number. It checks the envelope's own checksum, but does
// not compare the other checksum in the envelope with the preceding envelope. If the error is a
// storeError, the store cannot be read. Any other error means that the envelope is missing or
// corrupt.
func load(ctx context.Context, store Store, number uint64) (*envelope, error) {
	text, err := store.Get(ctx, number)
	switch {
	case errors.Is(err, ErrMissing):
		return nil, err
	case err != nil:
		return nil, &storeError{number, err}
	}
	return decodeAs(text, number)
}

// storeError means that the store cannot be read, so that it is unknown whether it has an envelope.
type storeError struct {
	number uint64
	err    error
}

// Error names the envelope and the reason.
func (e *storeError) Error() string {
	return fmt.Sprintf("read envelope %d of the buffer: %v", e.number, e.err)
}

// Unwrap returns the reason.
func (e *storeError) Unwrap() error { return e.err }

// isDown reports whether err, returned by load, is a storeError.
func isDown(err error) bool {
	_, down := errors.AsType[*storeError](err)
	return down
}

// storeAll moves the data of the intake to the store until ctx is done. If all routes drain (read
// no further data), the intake drains as well. storeAll then waits until a route does not drain,
// and opens the intake again.
func (b *Buffer) storeAll(ctx context.Context) error {
	var mark stream.Mark // of the intake's own partition
	for {
		o := stream.OpenOptions{
			Route:  innerRoute,
			Resume: func(id string) (stream.Mark, bool) { return mark, id == mark.Part.ID },
		}
		if b.known != nil {
			o.Known = slices.Values(b.known)
		}
		reader, err := b.in.Open(ctx, o)
		if err != nil {
			return err
		}
		b.mu.Lock()
		b.known = nil // the intake has them
		drain := reader.(stream.DrainingReader).Drain
		b.draining, b.emptied = drain, false
		drains := b.allDraining()
		b.mu.Unlock()
		if drains {
			drain()
		}
		for err == nil {
			batch := stream.NewBatch(stream.BatchLimits{Bytes: envelopeBytes, Records: envelopeRecords})
			err = reader.Read(ctx, batch)
			if ctx.Err() != nil {
				return context.Cause(ctx)
			}
			if len(batch.Spans) == 0 {
				continue
			}
			if failed := b.append(ctx, batch); failed != nil {
				return failed
			}
			settled := make([]stream.Mark, 0, len(batch.Spans))
			for _, span := range batch.Spans {
				m := stream.Mark{Part: *span.Part, Watermark: span.To}
				settled = append(settled, m)
				if !stream.IsRequest(m.Part.ID) {
					mark = m
				}
			}
			reader.(stream.SettledReader).Settled(settled)
			reader.(stream.PartitionTracker).Deleted() // the next copy of the keys omits them
			if failed := b.copyKeys(ctx); failed != nil {
				return failed
			}
		}
		if !errors.Is(err, io.EOF) {
			return err
		}
		if err := b.awaitRoutes(ctx); err != nil {
			return err
		}
	}
}

// awaitRoutes waits as long as all routes drain.
func (b *Buffer) awaitRoutes(ctx context.Context) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.emptied = true
	b.notify()
	return b.waitWhile(ctx, b.allDraining)
}

// waitWhile waits as long as a condition is true. The caller holds b.mu, which waitWhile releases
// while it waits.
func (b *Buffer) waitWhile(ctx context.Context, condition func() bool) error {
	for condition() {
		changed := b.changed
		b.mu.Unlock()
		select {
		case <-changed:
		case <-ctx.Done():
		}
		b.mu.Lock()
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
	}
	return nil
}

// append waits for room and stores a batch as the next envelope.
func (b *Buffer) append(ctx context.Context, batch *stream.Batch) error {
	if err := b.awaitRoom(ctx); err != nil {
		return err
	}
	now := time.Now()
	e := &envelope{records: batch.Origins, data: batch.Data, keys: keysOf(batch.Spans, now)}
	for i := range batch.Records { // only batches with line ends inside records are split
		r := &batch.Records[i]
		e.ends = append(e.ends, int32(r.Off+r.Len+1))
	}
	e.keysFrom = b.keys.fromOf(b.last+1, e.keys)
	size, err := b.put(ctx, e, now)
	if err != nil {
		return err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.keys.stored(e, size)
	return nil
}

// put stores e as the next envelope, and returns its size. Only one goroutine calls put and changes
// the fields last, sum and keys of b. This goroutine may therefore read them without b.mu.
func (b *Buffer) put(ctx context.Context, e *envelope, now time.Time) (size int, err error) {
	b.mu.Lock()
	e.id = strings.TrimPrefix(b.part.ID, partitionPrefix)
	e.number, e.previous, e.stored = b.last+1, b.sum, now.UnixNano()
	store := b.store
	b.mu.Unlock()
	text := e.encode(nil)
	if err := store.Append(ctx, e.number, text); err != nil {
		return 0, fmt.Errorf("store envelope %d: %w", e.number, err)
	}
	if err := b.record.write(e.number); err != nil {
		return 0, err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.last, b.sum = e.number, e.sum
	b.bytes += int64(len(text))
	if b.oldest.IsZero() {
		b.oldest = now
	}
	b.notify()
	return len(text), nil
}

// awaitRoom waits while the buffer is full. While routes are slow, each envelope may fill the
// buffer again, so the log gets at most one line in warnEvery.
func (b *Buffer) awaitRoom(ctx context.Context) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	now := time.Now()
	if !b.isFull(now) {
		return nil
	}
	b.host.Count("buffer_full", 1)
	if now.Sub(b.warned) >= warnEvery {
		b.warned = now
		b.host.Log().Warn("buffer full; senders wait", "bytes", b.bytes, "since", b.oldest)
	}
	return b.waitWhile(ctx, func() bool { return b.isFull(time.Now()) })
}

// isFull reports whether the buffer accepts no data. This is so if its oldest unsettled data is too
// old, or if it has unsettled data and has reached its maximum size. The caller holds b.mu.
func (b *Buffer) isFull(now time.Time) bool {
	old := b.o.Age > 0 && !b.oldest.IsZero() && now.Sub(b.oldest) > b.o.Age
	return old || b.bytes >= int64(b.o.Bytes) && b.settledBelow() <= b.last
}

var _ stream.RetryingSource = (*Buffer)(nil)

// Failure implements stream.RetryingSource. It returns an error if the disk of the directory in the
// options is full. If the directory is in the state directory, the engine checks the disk itself.
func (b *Buffer) Failure() error {
	if b.o.Dir == "" {
		return nil
	}
	if n := b.free(b.o.Dir); n >= 0 && n < leastFree {
		return fmt.Errorf("buffer %s: %d bytes are free on its file system", b.o.Dir, n)
	}
	return nil
}

// notify wakes the goroutines that wait for a change. The caller holds b.mu.
func (b *Buffer) notify() {
	close(b.changed)
	b.changed = make(chan struct{})
}
