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
	// eagerBytes is the number of unsynced bytes, with fsync: interval, after which writeback is
	// started. The disk then works during the writes, and the final fsync has less to do.
	eagerBytes = 32 << 20

	// blockBytes is the alignment of writes. A call writes up to a multiple of it, so that file
	// systems with large pages (ext4, XFS) allocate one page for the call. Unaligned writes need
	// several small pages and cost about a fifth more.
	blockBytes = 256 << 10
)

// runWriter writes ready deliveries until ctx ends.
func (l *lane) runWriter(ctx context.Context) error {
	for {
		select {
		case <-ctx.Done():
			l.end(context.Cause(ctx))
			return nil
		case <-l.closed:
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

// writeReady writes group into as many files as needed. The only error that it returns is a
// ReopenError. All other errors are the outcome of the deliveries in the group.
func (l *lane) writeReady(group []*delivery, broken error) error {
	if len(group) == 0 {
		return nil
	}
	l.writes.Lock()
	defer l.writes.Unlock()
	l.mu.Lock()
	over := l.over
	l.mu.Unlock()
	if over != nil { // the lane was detached meanwhile: its file is cut and must not grow again
		answer(group, over)
		return nil
	}
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

// writeGroup writes a group and passes it to the syncer. Without ack, it answers the group itself.
func (l *lane) writeGroup(group []*delivery) error {
	end, err := l.write(group)
	if err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case l.broken != nil || l.over != nil: // an fsync failed meanwhile, or the sink was stopped
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

// write appends the group block by block, sets the place of each delivery, and returns the new end
// of the file.
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
		clear(parts) // do not retain the batches
		l.parts = parts[:0]
	}()
	at := from // file offset of the next byte
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

// reserve reserves space before the bytes from to end of f are written.
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

// release frees the space reserved behind the end of f. Bytes there were not acknowledged.
func release(f vfs.File, length int64) error {
	if err := f.Truncate(length); err != nil {
		return fmt.Errorf("release the space allocated after byte %d: %w", length, err)
	}
	return nil
}

// runSyncer syncs written deliveries until ctx ends. One fsync covers all deliveries written since
// the previous one.
func (l *lane) runSyncer(ctx context.Context) error {
	tick := time.NewTicker(syncEvery)
	defer tick.Stop()
	for {
		var err error
		select {
		case <-ctx.Done():
			l.end(context.Cause(ctx))
			return nil
		case <-l.closed:
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

// syncAhead syncs for waiting deliveries if ack is set. Otherwise it starts writeback of the
// unsynced bytes and does not wait for it, because a sync would block concurrent writes during the
// file system's commit. If the system cannot start writeback, syncAhead syncs.
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

// eager reports whether enough bytes are unsynced to start writeback. The caller holds l.mu.
func (l *lane) eager() bool { return l.settled-max(l.begun, l.synced) >= eagerBytes }

// syncGroup syncs the written deliveries and answers them.
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

// sync syncs all acknowledged bytes. After an error the state of the bytes since the last sync is
// unknown, although they were acknowledged; a later sync cannot repair that.
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

// syncTo syncs the acknowledged bytes of f up to upTo. The caller holds the token of l.syncing.
func (l *lane) syncTo(f vfs.File, upTo int64) error {
	l.mu.Lock()
	from := l.synced
	l.mu.Unlock()
	if from >= upTo {
		return nil
	}
	if f == nil {
		return fmt.Errorf("sync file %q: it could not be reopened", l.sink.o.Path)
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

// lostError means that acknowledged bytes may be lost. It occurs only with fsync: interval.
type lostError struct {
	path     string
	from, to int64
	err      error
}

func (e *lostError) Error() string {
	return fmt.Sprintf("sync file %q: %v; bytes %d to %d count as delivered, but may not be on "+
		"the disk: check the disk and the end of the file before the next start (fsync: ack "+
		"would have delivered them again)", e.path,
		e.err, e.from, e.to)
}

func (e *lostError) Unwrap() error { return e.err }
