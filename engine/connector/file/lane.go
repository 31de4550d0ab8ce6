package file

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"sync"
	"time"

	"github.com/penstock-io/penstock/engine/kit/inorder"
	"github.com/penstock-io/penstock/stream"
	"github.com/penstock-io/penstock/vfs"
)

var limits = stream.Limits{InFlight: inFlight, Ordered: true}

// syncEvery is the interval of syncs with fsync: interval. It is also the interval of checks
// whether the file still has its name.
const syncEvery = time.Second

var errStopped = errors.New("the sink was stopped")

// delivery is a call of Deliver in progress. Its states are ready to write, written, and answered.
type delivery struct {
	data []byte
	at   place      // end of this delivery in the file; set by the writer
	done chan error // buffer of 1
}

// lane is the only worker of the sink.
type lane struct {
	sink       *Sink
	dir        vfs.Dir
	name       string // in dir
	ack        bool   // answer only after a sync
	wakeWriter chan struct{}
	wakeSyncer chan struct{}
	scratch    sync.Pool     // *[]byte: memory to encode pieces, which have no payload
	closed     chan struct{} // closed by close
	syncing    chan struct{} // token of the goroutine that may sync, close or replace file

	writes sync.Mutex // held while a group is written; taken before syncing and mu
	parts  [][]byte   // used only by the writer: the arguments of one write call
	ahead  ahead      // used only by the writer

	mu       sync.Mutex // guards the fields below; never held during I/O
	order    inorder.Order[*delivery]
	ready    []*delivery // deliveries to write, in order
	written  []*delivery // deliveries to sync, in order; only with ack
	file     vfs.File
	id       place
	length   int64 // length of the file after the last write
	synced   int64 // bytes known to be durable
	begun    int64 // bytes for which writeback was started
	settled  int64 // bytes acknowledged; after a failure, the file is truncated to this length
	writing  bool  // a write is in progress
	reserved bool  // space after the end is reserved and must be released
	broken   error // why the file must be reopened before the next write
	over     error // why Deliver calls are refused
}

func newLane(s *Sink, name string, f vfs.File, at place) *lane {
	l := &lane{
		sink: s, dir: s.dir, name: name, ack: s.o.Fsync == SyncAck,
		file: f, id: at, length: at.length, synced: at.length, settled: at.length,
		wakeWriter: make(chan struct{}, 1), wakeSyncer: make(chan struct{}, 1),
		syncing: make(chan struct{}, 1), closed: make(chan struct{}),
	}
	l.scratch.New = func() any { return new([]byte) }
	return l
}

// Deliver implements stream.Worker.
func (l *lane) Deliver(ctx context.Context, a stream.Attempt) (stream.Report, error) {
	scratch := l.scratch.Get().(*[]byte)
	defer l.scratch.Put(scratch)
	d := &delivery{data: l.bytesOf(a.Value, scratch), done: make(chan error, 1)}
	if err := l.enter(a, d); err != nil {
		return stream.Report{}, err
	}
	var err error
	select {
	case err = <-d.done:
	case <-ctx.Done():
		l.failCanceled(a, context.Cause(ctx))
		err = <-d.done // returns when the write has finished, because it uses the batch
	}
	if err != nil {
		return stream.Report{}, err
	}
	return stream.Report{ResumeToken: d.at.String()}, nil
}

// bytesOf returns the bytes to write for b. This is the payload if there is one. With format: raw,
// it is the batch's own bytes if the batch is unchanged. Otherwise, bytesOf encodes the records
// into scratch. The last byte is a line end.
func (l *lane) bytesOf(b *stream.Batch, scratch *[]byte) []byte {
	data := b.Payload
	if len(data) == 0 {
		if whole, ok := b.Whole(); ok && l.sink.o.Format == Raw {
			data = whole
		} else {
			*scratch, _ = l.sink.Encode((*scratch)[:0], b)
			data = *scratch
		}
	}
	if n := len(data); n > 0 && data[n-1] != '\n' { // the source's records have no line end
		*scratch = append(append((*scratch)[:0], data...), '\n')
		data = *scratch
	}
	return data
}

// enter adds d to the deliveries to write if all earlier attempts of its run have been added.
// Otherwise, d is added when the last of these arrives. A run is a sequence of attempts that a
// failure ends (see [stream.Attempt].Run).
func (l *lane) enter(a stream.Attempt, d *delivery) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.over != nil {
		return l.over
	}
	before := len(l.ready)
	err := l.order.Arrive(a.Run, a.Index, d, func(d *delivery) { l.ready = append(l.ready, d) })
	if len(l.ready) > before {
		wake(l.wakeWriter)
	}
	if err != nil {
		return fmt.Errorf("file %q: %w", l.sink.o.Path, err)
	}
	return nil
}

func wake(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// failCanceled is called when the context of a Deliver call has ended. If the batch of this call
// still waits for earlier batches, failCanceled fails all waiting deliveries, because later batches
// cannot be written without this batch. The engine delivers them again.
func (l *lane) failCanceled(a stream.Attempt, cause error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.order.Waits(a.Run, a.Index) {
		l.order.Fail(cause, func(d *delivery) { d.done <- cause })
	}
}

// fail makes all unanswered deliveries of the lane fail with err, and also the deliveries in the
// given groups. The writer will reopen the file before the next write.
func (l *lane) fail(err error, groups ...[]*delivery) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.broken == nil {
		l.broken = err
	}
	l.failLocked(err)
	for _, g := range groups {
		answer(g, err)
	}
}

func (l *lane) failLocked(err error) {
	l.order.Fail(err, func(d *delivery) { d.done <- err })
	answer(l.ready, err)
	answer(l.written, err)
	l.ready, l.written = nil, nil
}

func answer(group []*delivery, err error) {
	for _, d := range group {
		d.done <- err
	}
}

// end makes the current and all later calls of Deliver fail.
func (l *lane) end(err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.over == nil {
		l.over = fmt.Errorf("file %q: %w", l.sink.o.Path, err)
	}
	l.failLocked(l.over)
}

// close syncs and closes the file.
func (l *lane) close() error {
	err := l.sync()
	l.end(errStopped)
	l.syncing <- struct{}{}
	defer func() { <-l.syncing }()
	l.mu.Lock()
	f, length, reserved := l.file, l.length, l.reserved && !l.writing
	l.file, l.reserved = nil, false
	l.mu.Unlock()
	if f == nil {
		return err
	}
	close(l.closed)
	if err == nil && reserved {
		err = release(f, length)
	}
	return errors.Join(err, f.Close())
}

// reopen opens the file again after a failure, and truncates it to the acknowledged length.
func (l *lane) reopen() error {
	l.syncing <- struct{}{}
	defer func() { <-l.syncing }()
	l.mu.Lock()
	old, at, reserved := l.file, l.id.at(l.settled), l.reserved
	l.file, l.reserved = nil, false
	l.mu.Unlock()
	if old != nil {
		// without ack, this is the last sync that can detect a lost write
		err := l.syncTo(old, at.length)
		// the error was reported before; bytes after the acknowledged length are truncated below
		_ = old.Close()
		if err != nil {
			return err
		}
	}
	f, err := l.dir.OpenFile(l.name, os.O_RDWR, 0)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, vfs.ErrNotRegular) {
		err = &wrongFileError{errMoved.Error()}
	}
	if err == nil {
		err = resume(f, at, false)
		if err == nil && reserved { // the disk may be full: free the reserved space
			err = release(f, at.length)
		}
		if err != nil {
			err = errors.Join(err, f.Close())
		}
	}
	if wrong, ok := errors.AsType[*wrongFileError](err); ok {
		return &stream.ReopenError{ResumeToken: at.String(), Err: l.failure(wrong)}
	}
	if err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.file, l.length, l.broken = f, at.length, nil
	l.ahead.moved()
	l.synced, l.begun = min(l.synced, at.length), 0
	return nil
}
