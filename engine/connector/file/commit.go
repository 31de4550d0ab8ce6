package file

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/penstock-io/penstock/stream"
	"github.com/penstock-io/penstock/vfs"
)

const (
	// eagerBytes of which the disk knows nothing yet are given to it at once with fsync: interval too,
	// beside the writes, so that it has worked all the while when the end asks for everything.
	eagerBytes = 32 << 20

	// blockBytes is how much one call writes, up to a multiple of it: a file system that keeps large
	// pages (ext4, XFS) then allots one for the call. At odd places it takes several small ones, which
	// cost a fifth more.
	blockBytes = 256 << 10
)

// runWriter writes what is ready until ctx ends.
func (l *lane) runWriter(ctx context.Context) error {
	for {
		select {
		case <-ctx.Done():
			l.end(context.Cause(ctx))
			return nil
		case <-l.gone:
			return nil
		case <-l.wakeWriter:
			l.mu.Lock()
			group, broken := l.ready, l.broken
			l.ready = nil
			l.mu.Unlock()
			if err := l.writeReady(group, broken); err != nil {
				return err
			}
		}
	}
}

// writeReady writes what is ready, into as many files as it takes. The error is a ReopenError; any
// other one is the answer to the group.
func (l *lane) writeReady(group []*delivery, broken error) error {
	if len(group) == 0 {
		return nil
	}
	l.writes.Lock()
	defer l.writes.Unlock()
	var err error
	if broken != nil {
		err = l.reopen()
	}
	if err == nil {
		err = l.checkLength()
	}
	for len(group) > 0 && err == nil {
		n := l.fits(group)
		if n == 0 {
			err = l.rotate()
			continue
		}
		if err = l.writeGroup(group[:n]); err == nil {
			group = group[n:]
		}
	}
	if err != nil {
		l.fail(fmt.Errorf("write file %q: %w", l.sink.o.Path, err), group)
	}
	if reopen, ok := errors.AsType[*stream.ReopenError](err); ok {
		return reopen
	}
	return nil
}

// writeGroup writes a group and hands it on: to the syncer, or, without ack, to those who wait.
func (l *lane) writeGroup(group []*delivery) error {
	end, err := l.write(group)
	if err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case l.broken != nil || l.over != nil: // an fsync failed meanwhile, or the sink has ended
		answer(group, errors.Join(l.broken, l.over))
	case l.ack:
		l.length = end
		l.written = append(l.written, group...)
		wake(l.wakeSyncer)
	default:
		l.length, l.settled = end, end
		answer(group, nil)
		if l.eager() {
			wake(l.wakeSyncer)
		}
	}
	return nil
}

// write appends the group block by block, sets where each delivery ends, and returns where the last
// does.
func (l *lane) write(group []*delivery) (end int64, err error) {
	l.mu.Lock()
	f, from, id := l.file, l.length, l.id
	l.writing = f != nil
	l.mu.Unlock()
	if f == nil {
		return 0, errStopped
	}
	defer l.wrote()
	end = from
	for _, d := range group {
		end += int64(len(d.data))
		d.at = id.at(end)
	}
	l.reserve(f, from, end)
	parts := l.parts[:0]
	defer func() {
		clear(parts) // the batches are not the writer's to keep
		l.parts = parts[:0]
	}()
	at := from // where the next byte stands in the file
	for _, d := range group {
		for data := d.data; len(data) > 0; {
			room := blockBytes - int(at%blockBytes)
			n := min(room, len(data))
			parts = append(parts, data[:n])
			at += int64(n)
			if n == room || at == end {
				if err := vfs.WriteParts(f, parts); err != nil {
					return end, err
				}
				clear(parts)
				parts = parts[:0]
			}
			data = data[n:]
		}
	}
	l.sink.host.Count("bytes_written", end-from)
	return end, nil
}

func (l *lane) wrote() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.writing = false
}

// reserve asks for room before bytes from to end of f are written.
func (l *lane) reserve(f vfs.File, from, end int64) {
	at, length := l.ahead.want(time.Now(), from, end)
	if length == 0 {
		return
	}
	ok := vfs.Reserve(f, at, length)
	l.ahead.got(at, length, ok)
	if ok {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.reserved = true
	}
}

// release gives back the room behind the end of f. What stands there was not answered.
func release(f vfs.File, length int64) error {
	if err := f.Truncate(length); err != nil {
		return fmt.Errorf("give back the room reserved behind byte %d: %w", length, err)
	}
	return nil
}

// runSyncer makes durable what was written, in one fsync for all that was written meanwhile, until
// ctx ends.
func (l *lane) runSyncer(ctx context.Context) error {
	tick := time.NewTicker(syncEvery)
	defer tick.Stop()
	for {
		var err error
		select {
		case <-ctx.Done():
			l.end(context.Cause(ctx))
			return nil
		case <-l.gone:
			return nil
		case <-l.wakeSyncer:
			err = l.syncAhead()
		case <-tick.C:
			if err = l.checkName(); err == nil {
				err = l.syncNow()
			}
		}
		if err != nil {
			return err
		}
	}
}

func (l *lane) syncNow() error {
	if l.ack {
		l.syncGroup()
		return nil
	}
	return l.sync()
}

// syncAhead syncs with ack, for whoever waits. Without, it has the disk begin with what it does not
// know yet, and waits for none of it: a sync beside the writes holds them up while the file system
// commits. Where the system can begin nothing, it syncs.
func (l *lane) syncAhead() error {
	if l.ack {
		return l.syncNow()
	}
	l.syncing <- struct{}{}
	l.mu.Lock()
	f, from, to, due := l.file, max(l.begun, l.synced), l.settled, l.eager()
	if due {
		l.begun = to
	}
	l.mu.Unlock()
	enough := !due || f == nil || vfs.WriteBack(f, from, to)
	<-l.syncing
	if enough {
		return nil
	}
	return l.syncNow()
}

// eager says that the disk may begin. The caller holds l.mu.
func (l *lane) eager() bool { return l.settled-max(l.begun, l.synced) >= eagerBytes }

// syncGroup makes durable what was written and answers for it.
func (l *lane) syncGroup() {
	l.syncing <- struct{}{}
	defer func() { <-l.syncing }()
	l.mu.Lock()
	group, f := l.written, l.file
	l.written = nil
	l.mu.Unlock()
	if len(group) == 0 {
		return
	}
	l.sink.host.Count("syncs", 1)
	if err := f.Sync(); err != nil {
		l.fail(fmt.Errorf("sync file %q: %w", l.sink.o.Path, err), group)
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.synced = group[len(group)-1].at.length
	l.settled = l.synced
	answer(group, nil)
}

// sync makes durable what was answered. After an error nothing is known of what was written since
// the last one, and it was answered: no later call can mend that.
func (l *lane) sync() error {
	l.syncing <- struct{}{}
	defer func() { <-l.syncing }()
	l.mu.Lock()
	f, upTo, over := l.file, l.settled, l.over
	l.mu.Unlock()
	if lost, ok := errors.AsType[*lostError](over); ok {
		return lost
	}
	return l.syncTo(f, upTo)
}

// syncTo makes the file durable up to where it was answered. The caller has the token of l.syncing.
func (l *lane) syncTo(f vfs.File, upTo int64) error {
	l.mu.Lock()
	from := l.synced
	l.mu.Unlock()
	if from >= upTo {
		return nil
	}
	if f == nil {
		return fmt.Errorf("sync file %q: it could not be opened again", l.sink.o.Path)
	}
	l.sink.host.Count("syncs", 1)
	if err := f.Sync(); err != nil {
		lost := &lostError{path: l.sink.o.Path, from: from, to: upTo, err: err}
		l.end(lost)
		return lost
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.synced = max(l.synced, upTo)
	return nil
}

// lostError says that acked bytes may be gone: only with fsync: interval.
type lostError struct {
	path     string
	from, to int64
	err      error
}

func (e *lostError) Error() string {
	return fmt.Sprintf("sync file %q: %v; the disk may hold bytes %d to %d, which were delivered, or not: look at the disk and at the "+
		"file's end before the next start (fsync: ack would have delivered them again)", e.path, e.err, e.from, e.to)
}

func (e *lostError) Unwrap() error { return e.err }
