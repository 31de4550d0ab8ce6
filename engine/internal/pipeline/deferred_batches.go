package pipeline

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/penstock-io/penstock/engine/internal/waiting"
	"github.com/penstock-io/penstock/flow"
	"github.com/penstock-io/penstock/flow/ledger"
	"github.com/penstock-io/penstock/stream"
	"github.com/penstock-io/penstock/supervise"
	"github.com/penstock-io/penstock/vfs"
)

// waits holds the batches of a route that wait a long time for a retry. It implements
// flow.WaitStore. To save memory, it stores only the positions of a batch in the source, and
// releases the data. When the batch is due, the source reads the data again.
//
// Once the store has durably stored that a batch waits, the positions of the batch count as
// settled. So the checkpoint can advance beyond them. The saved progress of the partition (its
// mark) then has Waiting set. The source is told only the progress before the first waiting
// position, and does not finish the partition.
//
// Some routes keep waiting batches in memory instead. A route does so if its sink is ordered,
// `flow.order` is partition, or its checkpoint has two layers (see layeredStore). It also does so
// if a broker assigns the partitions, a cluster shares the pipeline, or the source cannot read
// ranges. A replay of dead letters does so too: the store, with the batches in it, belongs to the
// replayed route.
type waits struct {
	*core
	letters *letterWriter
	saver   *saver
	reader  *reader
	sender  *sender
	boot    string // id of this run of the operating system; "" if unknown

	dir     vfs.Dir
	store   *waiting.Store // nil if batches wait in memory
	ranges  stream.RangeReader
	changed chan struct{} // a buffer of one: wakes the saver to save changes soon

	lost    sync.Mutex // guards missing
	missing missingRanges
}

// open opens the store. It leaves w.store nil if the route must keep waiting batches in memory.
func (w *waits) open(p *pipe) error {
	// If the pipeline is shared, the next owner may be on another machine. In a replay, the store
	// belongs to the replayed route.
	if p.sharing.on || p.isReplay() {
		return nil
	}
	canStore := w.assigned == nil && !allOrdered(w.sender.lanes()) && !w.saver.layers.layered() &&
		w.cfg.Flow.Order != "partition"
	dir, err := p.state.makeDir(WaitingDir(p.name, w.cfg.Name))
	if err != nil {
		return err
	}
	store, err := w.openStore(dir, p.state.name, canStore)
	if err != nil {
		return supervise.Final(errors.Join(fmt.Errorf("state directory %s: %w", p.state.name, err),
			dir.Close()))
	}
	if store == nil {
		return dir.Close()
	}
	w.dir, w.store = dir, store
	if w.saver.resumed != nil {
		w.dropSettled()
	}
	n, records, size := w.store.Held()
	switch {
	case n == 0 && !canStore:
		err := w.close()
		w.store = nil
		return err
	case !canStore:
		return supervise.Final(fmt.Errorf("%d records wait for a retry in %s, and the route keeps an order "+
			"now, in which they have no place: "+
			"deliver them with the former configuration, or accept that they are lost and remove "+
			"that directory", records, dir.Path()))
	case n > 0:
		w.host.log.Info("batches wait for a retry since an earlier run", "ranges", n, "records",
			records)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.books.countRead(records, size)
	w.books.waiting = w.store
	return nil
}

// openStore opens the store in dir. It returns nil if there is none and the route must not have one
// (canStore is false). state is the path of the state directory, for messages.
func (w *waits) openStore(dir vfs.Dir, state string, canStore bool) (*waiting.Store, error) {
	exists, err := waiting.Exists(dir)
	if err == nil {
		err = w.check(exists, state)
	}
	if err != nil || !exists && !canStore {
		return nil, err
	}
	return waiting.Open(dir, waiting.Options{Boot: w.boot, SinceBoot: sinceBoot})
}

// check returns an error if batches wait according to the checkpoint, but the store of waiting
// batches does not exist (exists is false). state is the path of the state directory, for the
// message.
func (w *waits) check(exists bool, state string) error {
	if exists {
		return nil
	}
	for m := range w.saver.layers.marks() {
		if m.Waiting {
			return fmt.Errorf("the directory of the batches that wait for a retry does not exist, and "+
				"%q has some: put it back, or accept that "+
				"everything is delivered again with `penstock checkpoint reset %s %s`", m.Part.Name,
				state, w.key)
		}
	}
	return nil
}

// dropSettled is called when the sink has a ledger, the progress that it stores in its own
// database. Ranges that wait according to the store may be settled according to the ledger.
// dropSettled removes such ranges, and such parts of ranges, from the store.
func (w *waits) dropSettled() {
	for _, m := range w.saver.resumed.all() {
		for _, settled := range append([]stream.Range{{To: m.Watermark}}, m.Above...) {
			w.store.Settled(m.Part.ID, settled, 0)
		}
	}
}

// begin keeps the route's reader, to read the data of waiting batches again when their retries are
// due. It returns an error if batches of an earlier run wait, but the reader cannot read ranges of
// the source again.
func (w *waits) begin(reader stream.Reader) error {
	if w.store == nil {
		return nil
	}
	w.ranges, _ = reader.(stream.RangeReader)
	if n, records, _ := w.store.Held(); w.ranges == nil && n > 0 {
		return supervise.Final(fmt.Errorf("%d records wait for a retry in %s, and the source cannot read "+
			"them again: deliver them with the former "+
			"configuration, or accept that they are lost and remove that directory", records,
			w.dir.Path()))
	}
	return nil
}

// resume returns the stored progress m with the waiting ranges added to its settled ranges. So the
// reader skips them, and the method Next reads them when they are due. If no progress is stored,
// known is false and m has only the id of the partition. The second result is then false if no
// ranges wait either.
func (w *waits) resume(m stream.Mark, known bool) (stream.Mark, bool) {
	if w == nil || w.store == nil {
		return m, known
	}
	for _, r := range w.store.Ranges(m.Part.ID) {
		m.Waiting = true
		if r.To.Compare(m.Watermark) <= 0 {
			continue
		}
		if r.From.Compare(m.Watermark) < 0 {
			r.From = m.Watermark
		}
		m.Above, known = append(m.Above, r), true
	}
	if known && len(m.Above) > 1 {
		m.Above = ledger.Join(m.Above)
	}
	return m, known
}

// covers reports whether all settled ranges of m wait for a retry.
func (w *waits) covers(m stream.Mark) bool {
	if w.store == nil {
		return false
	}
	waiting := ledger.Join(w.store.Ranges(m.Part.ID))
	for _, settled := range append([]stream.Range{{To: m.Watermark}}, m.Above...) {
		if settled.From != settled.To && !slices.ContainsFunc(waiting, func(r stream.Range) bool {
			return r.From.Compare(settled.From) <= 0 && settled.To.Compare(r.To) <= 0
		}) {
			return false
		}
	}
	return true
}

// limit returns the progress m. If ranges wait, it is cut off at the first waiting range or at the
// watermark, whichever comes first. The source and the sink's ledger get only this progress,
// because the data of a waiting range was not delivered.
func (w *waits) limit(m stream.Mark) stream.Mark {
	if w.store == nil {
		return m
	}
	if at, ok := w.store.First(m.Part.ID); ok {
		if at.Compare(m.Watermark) < 0 {
			m.Watermark = at
		}
		m.Above = nil
	}
	return m
}

// options returns the sender's wait store, or nil if there is none.
func (w *waits) options() flow.WaitStore[*stream.Batch] {
	if w.store == nil {
		return nil
	}
	return w
}

// rangesOf returns the source positions of a batch as ranges. It returns false if the source cannot
// read them again.
func (w *waits) rangesOf(b *stream.Batch) ([]waiting.Range, bool) {
	if w.ranges == nil || !stream.CanReadAgain(b) {
		return nil, false
	}
	var out []waiting.Range
	off := 0
	counts := spanCounts(b)
	for i := range b.Spans {
		s := &b.Spans[i]
		text := b.Data[off : off+s.Bytes]
		if len(b.Records) > 0 {
			text = nil // a part of a split batch has no bytes of its own
		} else {
			off += s.Bytes
		}
		if s.From == s.To {
			continue
		}
		if !w.ranges.CanReadRanges(s.Part.ID) {
			return nil, false
		}
		records := int64(bytes.Count(text, newline))
		if len(b.Records) > 0 {
			records = counts[i]
		}
		if n := len(out); n > 0 && out[n-1].Part.ID == s.Part.ID && out[n-1].Range.To == s.From {
			out[n-1].Range.To = s.To
			out[n-1].Records += records
			out[n-1].Bytes += int64(s.Bytes)
			continue
		}
		out = append(out, waiting.Range{Part: *s.Part, Range: s.Range, Records: records,
			Bytes: int64(s.Bytes)})
	}
	if len(out) == 1 {
		out[0].Records = int64(b.Origins)
	}
	return out, len(out) > 0
}

var newline = []byte{'\n'}

// spanCounts returns the number of source records in each span (range of positions) of b. It
// returns nil if the data of b was not split into records.
func spanCounts(b *stream.Batch) []int64 {
	if len(b.Records) == 0 {
		return nil
	}
	counts := make([]int64, len(b.Spans))
	for i := range b.Records {
		r := &b.Records[i]
		if i == 0 || b.Records[i-1].Span != r.Span || b.Records[i-1].Origin != r.Origin {
			counts[r.Span]++
		}
	}
	return counts
}

// Note implements flow.WaitStore.
func (w *waits) Note(it flow.Item[*stream.Batch], wait flow.Wait) {
	if ranges, ok := w.rangesOf(it.Value); ok {
		w.store.Note(ranges, wait)
		wake(w.changed)
	}
}

// Take implements flow.WaitStore.
func (w *waits) Take(it flow.Item[*stream.Batch], wait flow.Wait) bool {
	ranges, ok := w.rangesOf(it.Value)
	if ok {
		w.store.Hold(ranges, wait)
		wake(w.changed)
	}
	return ok
}

// Held implements flow.WaitStore.
func (w *waits) Held() (n int, cost float64, bytes int64) {
	ranges, records, size := w.store.Held()
	return int(ranges), float64(records), size
}

// reopen opens the accounts (the progress in memory) of those partitions of the spans that have
// none, for example because this run has not read them. It must be called before their ranges are
// removed from the store: an account begins with the stored progress, which includes the waiting
// ranges only while the store has them.
func (w *waits) reopen(spans []stream.Span) {
	if w.store == nil {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	for i := range spans {
		s := &spans[i]
		if s.From != s.To && w.books.parts[s.Part.ID] == nil {
			_, _ = w.books.partition(s.Part) // settle reports an error
		}
	}
}

// settled removes b from the store of waiting batches, after b has settled.
func (w *waits) settled(b *stream.Batch) {
	if w.store == nil {
		return
	}
	counts := spanCounts(b)
	for i := range b.Spans {
		if s := &b.Spans[i]; s.From != s.To {
			records := int64(b.Origins)
			if counts != nil {
				records = counts[i]
			}
			w.store.Settled(s.Part.ID, s.Range, records)
		}
	}
}

// save writes the changes of the store. They then survive kill -9, but not a power loss.
func (w *waits) save() error {
	if w.store == nil {
		return nil
	}
	return w.failed(w.store.Save())
}

// sync makes the changes of the store durable. Ranges that wait are then durably stored, and count
// as settled in the books of the route.
func (w *waits) sync() error {
	if w.store == nil {
		return nil
	}
	handed, err := w.store.Sync()
	w.mu.Lock()
	defer w.mu.Unlock()
	for i := range handed {
		w.books.handOver(&handed[i].Part, handed[i].Range)
	}
	return w.failed(err)
}

func (w *waits) failed(err error) error {
	switch {
	case err == nil:
		return nil
	case w.store.Failed() != nil:
		return fmt.Errorf("waiting batches: %w", err)
	}
	return &retryableError{fmt.Errorf("waiting batches: %w", err)}
}

// stop makes Next return. Batches that still wait remain in the store for the next start.
func (w *waits) stop() {
	if w.store != nil {
		w.store.Stop()
	}
}

func (w *waits) close() error {
	if w == nil || w.store == nil {
		return nil
	}
	return errors.Join(w.store.Close(), w.dir.Close())
}

// Next implements flow.WaitStore. It waits for the next batch that is due, reads its data from the
// source and processes it.
func (w *waits) Next(ctx context.Context, suspect bool) (flow.Item[*stream.Batch], flow.History,
	error) {
	limits := stream.BatchLimits{Bytes: int(w.cfg.Batch.Bytes), Records: w.cfg.Batch.Records}
	for {
		ranges, history, err := w.store.Next(ctx, suspect, int64(limits.Records),
			int64(limits.Bytes))
		if err != nil {
			return flow.Item[*stream.Batch]{}, history, err
		}
		b, err := w.read(ctx, ranges, limits)
		if err == nil {
			err = w.process(ctx, b)
		}
		switch {
		case ctx.Err() != nil:
			w.store.Hold(ranges, flow.Wait{History: history})
			return flow.Item[*stream.Batch]{}, history, context.Cause(ctx)
		case err != nil:
			lost, err := w.postpone(ranges, history, err)
			if err == nil && lost {
				err = flow.ErrNoItem
			}
			if err != nil {
				return flow.Item[*stream.Batch]{}, history, err
			}
			continue
		case w.sender.nothingToSend(b):
			w.sender.settleUnsent(b)
			return flow.Item[*stream.Batch]{}, history, flow.ErrNoItem
		}
		return w.sender.item(b, nil), history, nil
	}
}

// read reads the data of waiting ranges again.
func (w *waits) read(ctx context.Context, ranges []waiting.Range,
	limits stream.BatchLimits) (*stream.Batch, error) {
	var records, size int64
	positions := make([]stream.Range, 0, len(ranges))
	for i := range ranges {
		records += ranges[i].Records
		size += ranges[i].Bytes
		positions = append(positions, ranges[i].Range)
	}
	limits.Bytes, limits.Records = max(limits.Bytes, int(size))+1, max(limits.Records,
		int(records))+1
	b := w.reader.pool.Get(limits)
	err := w.reader.budget.acquire(ctx, b)
	if err == nil {
		err = w.ranges.ReadRanges(ctx, b, ranges[0].Part, positions)
		b.Time = time.Now()
		w.reader.budget.correct(b)
	}
	if err != nil {
		b.Release()
		return nil, err
	}
	w.found(ranges)
	w.failures.recovered(part{name: "waiting"})
	// If, for example, rows were changed or deleted while the batch waited, it now has another
	// number of records than when it was first read. Correct the count of records read.
	if other := int64(b.Origins) - records; other != 0 {
		w.mu.Lock()
		w.books.counts.readRecords += other
		w.mu.Unlock()
	}
	return b, nil
}

// process passes a batch that was read again to the route's processors.
func (w *waits) process(ctx context.Context, b *stream.Batch) error {
	line := w.reader.line
	if line == nil {
		return w.letters.writeMarkedDead(ctx, b)
	}
	j := &job{batch: b, done: make(chan struct{})}
	select {
	case line.reread <- j:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	select {
	case <-j.done:
	case <-ctx.Done(): // a processor may still use the batch, so it is not released
		return context.Cause(ctx)
	}
	if j.err != nil {
		w.host.stop(j.err)
		return j.err
	}
	return nil
}

// postpone handles ranges of a waiting batch that could not be read. If their data is deleted,
// postpone removes them from the store, reports them as lost, and returns true for lost. Otherwise
// the ranges wait for another attempt to read them. Data counts as deleted if the source reports
// that (ErrRangeGone), or if the data was missing and the reader idle for the time missingFor.
func (w *waits) postpone(ranges []waiting.Range, history flow.History,
	cause error) (lost bool, err error) {
	gone := errors.Is(cause, stream.ErrRangeGone)
	w.lost.Lock()
	wait, since := w.missing.failed(&ranges[0], time.Now(), errors.Is(cause, stream.ErrRangeMissing))
	w.lost.Unlock()
	if since >= missingFor {
		gone = w.reader.idle() >= missingFor
	}
	if !gone {
		if times, due := w.failures.recordFailure(part{name: "waiting"}, firstLine(cause)); due {
			w.host.log.Warn("a waiting batch could not be read again; retrying",
				"partition", ranges[0].Part.Name, "times", times, "again_in", wait, "error", cause)
		}
		w.store.Hold(ranges, flow.Wait{After: wait, History: history})
		return false, nil
	}
	w.found(ranges)
	var records int64
	w.mu.Lock()
	for i := range ranges { // while the store has the ranges: see reopen
		_, _ = w.books.partition(&ranges[i].Part) // abandon reports an error
	}
	w.mu.Unlock()
	for i := range ranges {
		records += ranges[i].Records
		w.store.Settled(ranges[i].Part.ID, ranges[i].Range, ranges[i].Records)
	}
	w.host.Fault(fmt.Errorf("%d records of %q in %v are lost: their data was deleted while they "+
		"waited for a retry: %w", records, ranges[0].Part.Name, ranges[0].Range, cause))
	w.host.Count("waiting_lost", records)
	w.mu.Lock()
	defer w.mu.Unlock()
	return true, w.books.abandon(ranges)
}

// found removes the ranges of a batch from the missing ranges, because their data was found or
// counts as deleted. The key of a batch in missing is its first range.
func (w *waits) found(ranges []waiting.Range) {
	w.lost.Lock()
	defer w.lost.Unlock()
	delete(w.missing, keyOf(&ranges[0]))
}
