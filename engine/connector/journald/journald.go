// Package journald implements the source that reads the systemd journal. It runs the program
// journalctl.
//
// Each route has a journalctl process of its own, which prints the entries after the route's
// watermark. Up to the watermark, the route has settled all entries (delivered, dead-lettered or
// dropped them). The position of an entry contains its cursor, the journal's identifier of the
// entry. If journalctl ends while it should wait for new entries, the route fails, and its next run
// starts journalctl again.
package journald

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"sync"
	"time"

	"github.com/penstock-io/penstock/engine/kit/child"
	"github.com/penstock-io/penstock/engine/kit/intake"
	"github.com/penstock-io/penstock/stream"
	"github.com/penstock-io/penstock/supervise"
)

// Source returns the component journald.
func Source() stream.Component {
	return stream.NewComponent(stream.SourceRole, "journald", DefaultOptions, New)
}

// Journal is the source.
type Journal struct {
	o    Options
	host stream.Host
	part stream.Partition

	mu      sync.Mutex       // guards the map skipped
	skipped map[string]skips // by route
}

// skips counts the entries that a route has skipped. A key is the cursor of an entry that the route
// has read. Its value is the number of entries skipped between this entry and the next one read. A
// later run of journalctl prints some of the skipped entries again, and these must not count twice.
// Only the current reader of the route uses skips.
type skips map[string]int

// maxSkips is the maximum size of skips. Beyond it, entries may be counted again.
const maxSkips = 10_000

// New returns a source. It does not start journalctl.
func New(o Options, h stream.Host) (*Journal, error) {
	if err := o.Validate(); err != nil {
		return nil, err
	}
	return &Journal{
		o: o, host: h, part: stream.Partition{ID: "journal", Name: "journal"},
		skipped: make(map[string]skips),
	}, nil
}

// ahead is the maximum number of entries that are read before a batch needs them.
const ahead = 64

// Open implements stream.Source. It starts journalctl.
func (j *Journal) Open(ctx context.Context, o stream.OpenOptions) (stream.Reader, error) {
	r := &reader{
		j: j, linger: o.Linger, once: o.Once, count: o.Count, skipped: j.skippedBy(o.Route),
		entries: make(chan entry, ahead), ended: make(chan struct{}),
	}
	if r.count == nil {
		r.count = j.host.Count
	}
	r.count("entries_skipped", 0)
	mark, _ := o.Resume(j.part.ID)
	r.at, r.above = mark.Watermark, slices.Clone(mark.Above)
	r.group = supervise.NewNamedGroup(context.WithoutCancel(ctx), "journald")
	at := r.at // r.at belongs to Read from now on
	if j.o.startsAtEnd(at.Key) && len(r.above) > 0 {
		at = r.above[0].From // the end at which an earlier run started
	}
	r.group.Go("journald/follow", func(ctx context.Context) error {
		defer close(r.ended)
		r.failed = r.read(ctx, &at)
		return nil
	})
	return r, nil
}

// skippedBy returns the counts of the entries that the route has skipped.
func (j *Journal) skippedBy(route string) skips {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.skipped[route] == nil {
		j.skipped[route] = make(skips)
	}
	return j.skipped[route]
}

// reader reads for one route.
type reader struct {
	j       *Journal
	linger  time.Duration
	once    bool // finite run: batches end by size only
	count   func(string, int64)
	skipped skips
	group   *supervise.Group
	entries chan entry
	ended   chan struct{} // closed after the last entry
	failed  error         // the failure, if any; set before ended is closed

	at      stream.Position // position of the last entry in a batch
	above   []stream.Range  // settled ranges after at
	pending []entry         // received from entries, but not in a batch that Read has returned
	objects intake.Objects
}

// read reads the entries after the position *at, until ctx is done or journalctl fails. In a finite
// run of the route, it ends at the current end of the journal.
//
// Usually, read runs journalctl twice. Since systemd 250, journalctl with --follow prints only
// entries of the current boot, and then waits for new ones. So the first run, without --follow,
// prints the entries that exist, also those of earlier boots. The second run has --follow. A finite
// run of the route needs only the first.
//
// With `start: latest` and without a stored position, an additional run comes first. It prints the
// last entry of the journal. The position of this entry is stored, but the entry is not delivered.
// So if the route fails before it has settled any entry, its next run resumes at this position. If
// this run prints no entry, or one that is skipped, there is no position to store.
//
// If the first run fails after new entries, read returns the error, and the route's next run
// resumes after these entries. If journalctl exits with an error status before any new entry, it
// probably cannot read the next entry. The second run then skips the rest of the earlier boots, and
// the possible loss is reported.
func (r *reader) read(ctx context.Context, at *stream.Position) error {
	var missed error
	if r.j.o.startsAtEnd(at.Key) {
		err := r.run(ctx, at, false, nil)
		if exit, ok := errors.AsType[*child.ExitError](err); err != nil && (!ok || exit.Code <= 0) {
			return err
		}
	}
	if r.once || !r.j.o.startsAtEnd(at.Key) {
		before := *at
		err := r.run(ctx, at, false, nil)
		exit, ok := errors.AsType[*child.ExitError](err)
		failed := err != nil && (!ok || exit.Code <= 0 || *at != before)
		if r.once || ctx.Err() != nil || failed {
			return err
		}
		missed = err
	}
	before := *at
	err := r.run(ctx, at, true, missed)
	exit, failed := errors.AsType[*child.ExitError](err)
	switch {
	case err == nil:
		err = fmt.Errorf("%s: %w", r.j.o.Command[0], child.ErrEnded)
	case failed && exit.Code > 0 && *at == before:
		err = fmt.Errorf("no further entry was printed; if `journalctl --verify` reports a "+
			"damaged file, move it out of the journal: %w", err)
	}
	return err
}

// run runs journalctl, and passes the entries after *at to the reader. After each entry, it sets
// *at to the position of this entry. With follow, journalctl waits for new entries. missed is the
// error of an earlier run that may have missed entries, or nil. run reports missed as soon as
// journalctl prints an entry. If journalctl fails before that, it probably fails for the same
// reason as in the earlier run, and run returns only the new error.
func (r *reader) run(ctx context.Context, at *stream.Position, follow bool, missed error) error {
	o := &r.j.o
	last := !follow && o.startsAtEnd(at.Key) // journalctl prints only the last entry
	spec := child.Spec{
		Command:   slices.Concat(o.Command, o.arguments(at.Key, follow)),
		Env:       o.Env,
		Log:       r.j.host.Log(),
		Attrs:     []any{"program", o.Command[0]},
		Terminate: true,
		Grace:     time.Second,
	}
	return child.Run(ctx, spec, func(ctx context.Context, p *child.Process) error {
		_ = p.CloseInput() // journalctl gets no input
		in := bufio.NewReaderSize(p, 64<<10)
		skipped := 0 // entries after at
		for cursor := at.Key; ; {
			line, reason, err := r.line(in)
			if errors.Is(err, io.EOF) {
				return nil
			}
			if err != nil {
				return err
			}
			if len(line) <= 1 && reason == nil {
				continue
			}
			var e entry
			if reason == nil {
				e, reason = parse(line, *at)
			}
			if reason != nil {
				if skipped++; !last {
					r.skip(at.Key, skipped, reason)
				}
				continue
			}
			if last {
				e.record = nil // only its position is needed
			}
			if missed != nil {
				r.j.host.Fault(fmt.Errorf("entries of earlier boots may be missing: %w", missed))
				missed = nil
			}
			if e.at.Key == cursor {
				continue // it was read before
			}
			select {
			case r.entries <- e:
				*at, skipped = e.at, 0
			case <-ctx.Done():
				return context.Cause(ctx)
			}
		}
	})
}

// line returns the next line of the output. reason is nil, or the reason why the line is skipped.
func (r *reader) line(in *bufio.Reader) (line []byte, reason, err error) {
	for {
		part, err := in.ReadSlice('\n')
		if reason == nil && len(line)+len(part) > int(r.j.o.MaxRecord) {
			reason = fmt.Errorf("it is longer than max_record (%v)", r.j.o.MaxRecord)
		}
		if reason == nil {
			line = append(line, part...)
		}
		if !errors.Is(err, bufio.ErrBufferFull) {
			return line, reason, err // the next run reads an incomplete line again
		}
	}
}

// skip counts an entry that is not delivered, and reports the reason. The parameter after is the
// cursor of the last entry that was read, and n counts the entries skipped since then. If the route
// has counted the entry before, skip does nothing.
func (r *reader) skip(after string, n int, reason error) {
	if n <= r.skipped[after] {
		return
	}
	if len(r.skipped) >= maxSkips {
		clear(r.skipped)
	}
	r.skipped[after] = n
	r.count("entries_skipped", 1)
	r.j.host.Fault(fmt.Errorf("an entry of the journal is skipped: %w", reason))
}

// Read implements stream.Reader.
func (r *reader) Read(ctx context.Context, b *stream.Batch) error {
	at, above := r.at, r.above
	used := 0 // number of pending entries in b
	drop := func() error {
		r.at, r.above = at, above
		return context.Cause(ctx)
	}
	finish := func() error {
		r.pending = slices.Delete(r.pending, 0, used)
		r.objects.Add(b)
		return nil
	}
	var timeout <-chan time.Time
	for {
		for used < len(r.pending) {
			if ctx.Err() != nil {
				return drop()
			}
			if full := r.take(b, &r.pending[used]); full {
				return finish()
			}
			onlyPosition := r.pending[used].record == nil
			if used++; onlyPosition || b.Full() {
				return finish() // a position is stored at once, unless the sink has a ledger
			}
		}
		if len(b.Spans) > 0 && timeout == nil && !r.once {
			if r.linger <= 0 && len(r.entries) == 0 {
				return finish()
			}
			timer := time.NewTimer(r.linger)
			defer timer.Stop()
			timeout = timer.C
		}
		select {
		case e := <-r.entries:
			r.pending = append(r.pending, e)
			continue
		case <-timeout:
			return finish()
		case <-ctx.Done():
			return drop()
		case <-r.ended:
		}
		select {
		case e := <-r.entries: // entries received before the end
			r.pending = append(r.pending, e)
		default:
			_ = finish()
			if r.failed != nil {
				return r.failed
			}
			return io.EOF
		}
	}
}

// take adds an entry to the batch, unless it was settled earlier (delivered, dead-lettered or
// dropped). full means that the batch must end before this entry, and that the entry belongs to the
// next batch.
func (r *reader) take(b *stream.Batch, e *entry) (full bool) {
	for len(r.above) > 0 && r.above[0].From.Compare(e.at) < 0 {
		settled := r.above[0]
		switch {
		case len(b.Spans) > 0:
			return true
		case r.at.Compare(settled.From) < 0:
			if !r.j.o.startsAtEnd(r.at.Key) {
				r.j.host.Fault(errors.New("entries that were read but not delivered before a " +
					"restart were not printed again: they are no longer in the journal, or the " +
					"options exclude them now"))
			}
			gap := stream.Range{From: r.at, To: settled.From}
			b.Spans = append(b.Spans, stream.Span{Part: &r.j.part, Range: gap})
			r.at = settled.From
			return true
		case e.at.Compare(settled.To) <= 0:
			r.at = e.at
			return false
		}
		r.at, r.above = later(r.at, settled.To), r.above[1:]
	}
	if len(b.Spans) == 0 {
		b.Spans = append(b.Spans, stream.Span{Part: &r.j.part, Range: stream.Range{From: r.at}})
	}
	if start := len(b.Data); e.record != nil {
		b.Data = append(append(b.Data, e.record...), '\n')
		b.Records = append(b.Records, stream.Record{
			Off: uint32(start), Len: uint32(len(e.record)), Origin: e.at,
		})
		b.Origins++
	}
	span := &b.Spans[0]
	span.To, span.Bytes = e.at, len(b.Data)
	r.at = e.at
	return false
}

// later returns the later of two positions.
func later(a, b stream.Position) stream.Position {
	if a.Compare(b) < 0 {
		return b
	}
	return a
}

// Commit implements stream.Reader. The journal keeps no positions.
func (r *reader) Commit(context.Context, []stream.Mark) error { return nil }

// Close implements stream.Reader. It stops journalctl.
func (r *reader) Close() error {
	r.group.Stop(errClosed)
	return r.group.Wait()
}

var errClosed = errors.New("the reader is closed")
