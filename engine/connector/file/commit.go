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
	// With the option fsync: interval, writeback is started when eagerBytes bytes are unsynced. The
	// disk then works while the sink writes more, and the next fsync has less to do.
	eagerBytes = 32 << 20

	// blockBytes is the alignment of writes: each write of a group, except the last one, ends at a
	// multiple of it. File systems with large pages (ext4, XFS) then allocate one page for the
	// write. Unaligned writes need several small pages and cost about a fifth more.
	blockBytes = 256 << 10
)

// runWriter writes ready deliveries until ctx ends or the lane is closed.
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

// writeReady writes the deliveries in group, into several files if rotation requires it. If broken
// is not nil, an earlier write or sync has failed, and writeReady first reopens the file. If
// writeReady returns an error, it is a ReopenError, which makes the engine open the sink again. All
// other errors become the outcomes of the deliveries.
func (l *lane) writeReady(group []*delivery, broken error) error {
	if len(group) == 0 {
		return nil
	}
	l.writes.Lock()
	defer l.writes.Unlock()
	l.mu.Lock()
	over := l.over
	l.mu.Unlock()
	if over != nil { // the lane has been detached: its file was truncated and must not grow again
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

// writeGroup writes a group of deliveries. With the option fsync: ack, it passes the group to the
// syncer, the goroutine that answers deliveries after a sync. With fsync: interval, writeGroup
// answers the deliveries itself.
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

// write appends a group to the file in aligned blocks, and sets the place of each delivery, that
// is, the file and its length after the delivery. It returns the new end of the file.
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
		clear(parts) // do not keep references to the batches
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

// reserve is called before a write to the range [from, end) of f. If the file grows fast (see
// ahead.want), it reserves disk space.
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

// release frees the space that is reserved after the first length bytes of f.
func release(f vfs.File, length int64) error {
	if err := f.Truncate(length); err != nil {
		return fmt.Errorf("release the space allocated after byte %d: %w", length, err)
	}
	return nil
}

// runSyncer syncs the file until ctx ends or the lane is closed. One fsync makes all deliveries
// durable that were written since the previous fsync.
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

// syncAhead is called between the regular syncs. With fsync: ack, it syncs and answers the written
// deliveries. With fsync: interval, it starts writeback if there are many unsynced bytes, and does
// not wait for its end. If the system cannot start writeback, syncAhead syncs instead. Writeback is
// better, because a sync blocks concurrent writes while the file system commits.
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

// eager reports whether there are enough unsynced bytes to start writeback. The caller holds l.mu.
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

// sync syncs all acknowledged bytes. If it fails, the bytes acknowledged since the last sync may be
// lost, and a later sync cannot repair this.
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

// lostError means that acknowledged bytes may be lost. It is possible only with fsync: interval.
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
