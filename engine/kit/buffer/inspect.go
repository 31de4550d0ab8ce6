package buffer

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"time"

	"github.com/penstock-io/penstock/stream"
	"github.com/penstock-io/penstock/vfs"
)

// Inspect opens the buffer of a source for a command, such as `penstock buffer skip`. stateDir is
// the source's state directory. The source must not be running. Inspect implements the function
// OpenBuffer of stream.BufferingOptions.
func Inspect(
	ctx context.Context, ack string, o Options, stateDir string,
) (stream.OpenBuffer, error) {
	if ack != Buffered {
		return nil, stream.ErrNoBuffer
	}
	state, err := vfs.OS().OpenDir(stateDir)
	if err != nil {
		return nil, err
	}
	dir, i := cmp.Or(o.Dir, filepath.Join(stateDir, storeDir)), &inspection{state: state}
	if i.skips, err = allSkips(o, state); err == nil {
		i.recorded, err = readLast(state)
	}
	if err == nil && o.NATS.URL == "" && i.recorded == 0 { // the server would create the directory
		var found vfs.Dir
		if found, err = vfs.OS().OpenDir(dir); err == nil {
			err = found.Close()
		}
	}
	if err == nil {
		i.store, err = OpenStore(ctx, dir, o, slog.New(slog.DiscardHandler))
	}
	if err != nil {
		return nil, errors.Join(err, state.Close())
	}
	return i, nil
}

// inspection implements [stream.OpenBuffer], with which commands list and skip envelopes.
type inspection struct {
	state    vfs.Dir
	store    Store
	skips    []span
	recorded uint64 // the last envelope that was acknowledged
}

// Bounds implements stream.OpenBuffer: it returns the numbers of the first and the last envelope.
// If the store has lost its last envelopes, they count as well.
func (i *inspection) Bounds(ctx context.Context) (first, last uint64, err error) {
	first, last, _, err = i.store.State(ctx)
	if i.recorded > last {
		first, last = max(first, 1), i.recorded
	}
	return first, last, err
}

// Envelope implements stream.OpenBuffer.
func (i *inspection) Envelope(ctx context.Context, number uint64) (stream.Envelope, error) {
	_, skipped := skipOf(i.skips, number)
	out := stream.Envelope{Number: number, Skipped: skipped}
	text, err := i.store.Get(ctx, number)
	if errors.Is(err, ErrMissing) {
		out.Corrupt = err.Error()
		return out, nil
	}
	if err != nil {
		return out, err
	}
	out.Bytes = len(text)
	e, err := decodeAs(text, number)
	if err == nil {
		err = i.checkChain(ctx, e)
	}
	if err != nil {
		out.Corrupt = err.Error()
		return out, nil
	}
	out.Stored, out.Keys = time.Unix(0, e.stored), len(e.keys)
	for at := 0; at < len(e.data); {
		end := e.next(at)
		out.Records = append(out.Records, e.data[at:end-1])
		at = end
	}
	return out, nil
}

// checkChain returns an error if e contains a wrong checksum of the preceding envelope. It returns
// no error if it cannot compare: that envelope is missing, corrupt or unreadable, or e contains 0
// instead of a checksum.
func (i *inspection) checkChain(ctx context.Context, e *envelope) error {
	if e.number == 1 {
		return nil
	}
	before, err := load(ctx, i.store, e.number-1)
	if err != nil || before.sum == e.previous || e.previous == 0 {
		return nil // it was deleted, or it is reported as corrupt itself
	}
	return chainError(e, before)
}

// Skip implements stream.OpenBuffer. If the store has lost its last envelopes, all of these must be
// skipped together. Their numbers are then used for new envelopes.
func (i *inspection) Skip(ctx context.Context, first, last uint64) error {
	if first == 0 || last < first {
		return fmt.Errorf("there are no envelopes from %d to %d", first, last)
	}
	_, stored, _, err := i.store.State(ctx)
	if err != nil {
		return err
	}
	if last > stored {
		if last != i.recorded {
			const text = "the store ends at envelope %d: give all of %d-%d up"
			return fmt.Errorf(text, stored, stored+1, i.recorded)
		}
		if err := i.shorten(stored); err != nil || first > stored {
			return err
		}
		last = stored
	}
	s := span{first, last}
	i.skips = append(i.skips, s)
	return addSkip(i.state, s, time.Now())
}

// shorten lowers the recorded number of the last acknowledged envelope to stored, the number of the
// last envelope in the store. An operator has given up the lost envelopes after it, so the next
// start must not report them.
func (i *inspection) shorten(stored uint64) error {
	r, err := openLast(i.state)
	if err != nil {
		return err
	}
	i.recorded = stored
	return errors.Join(r.write(stored), r.file.Sync(), r.close())
}

// Close implements stream.OpenBuffer.
func (i *inspection) Close() error { return errors.Join(i.store.Close(), i.state.Close()) }

// allSkips returns the ranges of envelopes to skip: those from the options and those from skipFile.
func allSkips(o Options, state vfs.Dir) ([]span, error) {
	recorded, err := readSkips(state)
	if err != nil {
		return nil, err
	}
	var spans []span
	for _, d := range recorded {
		spans = append(spans, d.span)
	}
	option, err := o.skipped()
	if option != (span{}) {
		spans = append(spans, option)
	}
	return spans, err
}
