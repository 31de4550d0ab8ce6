// Package journald implements the source that reads the systemd journal. It runs the program
// journalctl.
//
// Each route has a journalctl process of its own. The process starts after the last entry that the
// route has settled (delivered, dead-lettered or dropped). The position of an entry contains its
// cursor, the journal's identifier of the entry. When journalctl ends, it is started again after
// the last entry that was read.
package journald

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/penstock-io/penstock/backoff"
	"github.com/penstock-io/penstock/engine/kit/child"
	"github.com/penstock-io/penstock/engine/kit/intake"
	"github.com/penstock-io/penstock/retry"
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
}

// New returns a source. It does not start journalctl.
func New(o Options, h stream.Host) (*Journal, error) {
	if err := o.Validate(); err != nil {
		return nil, err
	}
	for _, name := range []string{"entries_skipped", "restarts"} {
		h.Count(name, 0)
	}
	return &Journal{o: o, host: h, part: stream.Partition{ID: "journal", Name: "journal"}}, nil
}

// ahead is the maximum number of entries that are read before a batch needs them.
const ahead = 64

// Open implements stream.Source. It starts journalctl.
func (j *Journal) Open(ctx context.Context, o stream.OpenOptions) (stream.Reader, error) {
	r := &reader{
		j: j, linger: o.Linger, once: o.Once,
		entries: make(chan entry, ahead), ended: make(chan struct{}),
	}
	mark, _ := o.Resume(j.part.ID)
	r.at, r.above = mark.Watermark, slices.Clone(mark.Above)
	r.group = supervise.NewNamedGroup(context.WithoutCancel(ctx), "journald")
	r.group.Go("journald/follow", func(ctx context.Context) error {
		defer close(r.ended)
		r.failed = r.follow(ctx, r.at, o.Once)
		return nil
	})
	return r, nil
}

// reader reads for one route.
type reader struct {
	j       *Journal
	linger  time.Duration
	once    bool // finite run: batches end by size only
	group   *supervise.Group
	entries chan entry
	ended   chan struct{} // closed after the last entry
	failed  error         // the failure, if any; set before ended is closed

	at      stream.Position // position of the last entry in a batch
	above   []stream.Range  // settled ranges after at
	pending []entry         // received from entries, but not in a batch that Read has returned
	objects intake.Objects
}

var restartBackoff = backoff.Exponential(child.FirstWait, 2, child.LastWait).Equal()

// follow reads the entries after at, and restarts journalctl when it ends, until ctx is done. If
// once is set, it runs journalctl only once, up to the current end of the journal, and returns the
// error of this run.
func (r *reader) follow(ctx context.Context, at stream.Position, once bool) error {
	var failed backoff.State
	for {
		before := at
		err := r.read(ctx, &at, once)
		if once || ctx.Err() != nil {
			return err
		}
		if at != before {
			failed = backoff.State{}
		}
		var pause time.Duration
		pause, failed, _ = restartBackoff.Next(failed, nil)
		r.j.host.Count("restarts", 1)
		if start, ok := errors.AsType[*child.StartError](err); ok {
			r.j.host.Fault(start)
		} else {
			r.j.host.Log().Warn("journalctl ended; restarting it", "in", pause, "error", err)
		}
		if retry.Sleep(ctx, pause) != nil {
			return nil
		}
	}
}

// read reads the entries after the position at. Unless once is set, it then waits for new entries.
//
// Usually, read runs journalctl twice. It runs it only once if once is set, or if reading begins
// at the end of the journal. While journalctl waits for new entries (--follow), it prints only
// entries of the current boot, since systemd 250. The first run, without --follow, also prints
// the entries of earlier boots.
func (r *reader) read(ctx context.Context, at *stream.Position, once bool) error {
	if once || !r.j.o.startsAtEnd(at.Key) {
		if err := r.run(ctx, at, false); err != nil || once {
			return err
		}
	}
	return r.run(ctx, at, true)
}

// run runs journalctl, and passes the entries after the position at to the reader. After each
// entry, it sets at to the position of this entry. With follow, journalctl waits for new entries.
func (r *reader) run(ctx context.Context, at *stream.Position, follow bool) error {
	o := &r.j.o
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
		for cursor := at.Key; ; {
			line, err := r.line(in)
			if errors.Is(err, io.EOF) {
				return nil
			}
			if err != nil {
				return err
			}
			if line == nil {
				continue
			}
			e, err := parse(line, *at)
			if err != nil {
				r.skip(err)
				continue
			}
			if e.at.Key == cursor {
				continue // it was read before
			}
			select {
			case r.entries <- e:
				*at = e.at
			case <-ctx.Done():
				return context.Cause(ctx)
			}
		}
	})
}

// line returns the next line of the output. For a line that is empty or too long, it returns nil.
func (r *reader) line(in *bufio.Reader) ([]byte, error) {
	var line []byte
	long := false
	for {
		part, err := in.ReadSlice('\n')
		if long = long || len(line)+len(part) > int(r.j.o.MaxRecord); !long {
			line = append(line, part...)
		}
		if errors.Is(err, bufio.ErrBufferFull) {
			continue
		}
		if err != nil {
			return nil, err // the next run reads an incomplete line again
		}
		break
	}
	if long {
		r.skip(fmt.Errorf("it is longer than max_record (%v)", r.j.o.MaxRecord))
		return nil, nil
	}
	if len(line) <= 1 {
		return nil, nil
	}
	return line, nil
}

// skip counts an entry that is not delivered, and reports the reason.
func (r *reader) skip(reason error) {
	r.j.host.Count("entries_skipped", 1)
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
			if used++; b.Full() {
				return finish()
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

// take adds an entry to the batch, unless the entry is settled. full means that the batch must end
// before this entry, and that the entry belongs to the next batch.
func (r *reader) take(b *stream.Batch, e *entry) (full bool) {
	for len(r.above) > 0 && r.above[0].To.Compare(e.at) < 0 {
		if len(b.Spans) > 0 {
			return true
		}
		r.at, r.above = later(r.at, r.above[0].To), r.above[1:]
	}
	if len(r.above) > 0 && r.above[0].From.Compare(e.at) < 0 {
		if len(b.Spans) > 0 {
			return true
		}
		r.at = e.at
		return false
	}
	if len(b.Spans) == 0 {
		b.Spans = append(b.Spans, stream.Span{Part: &r.j.part, Range: stream.Range{From: r.at}})
	}
	start := len(b.Data)
	b.Data = append(append(b.Data, e.record...), '\n')
	b.Records = append(b.Records, stream.Record{
		Off: uint32(start), Len: uint32(len(e.record)), Origin: e.at,
	})
	b.Origins++
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
