package cli

import (
	"context"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/penstock-io/penstock/supervise"
)

const (
	maxQueued    = 1 << 20         // maximum bytes that wait for a blocked stderr
	flushTimeout = 2 * time.Second // maximum time to write the queue at the end of a command
)

// output is a writer that never waits. It queues writes to a stream that may block, such as a
// terminal after Ctrl-S. A write that does not fit into the queue is dropped completely. When there
// is room again, output first writes a line with the number of dropped writes. It is safe for
// concurrent use.
type output struct {
	w     io.Writer
	group *supervise.Group

	mu      sync.Mutex // guards the fields below; never held during a write to w
	queue   [][]byte
	bytes   int                // size of queue and of the running write
	dropped int                // number of dropped writes since the last report
	report  func(n int) []byte // returns the line about n dropped writes
	writing bool               // the goroutine is running
	idle    chan struct{}      // closed when the goroutine has written everything
}

func newOutput(w io.Writer) *output {
	return &output{w: w, group: supervise.NewGroup(context.Background()), report: func(n int) []byte {
		return fmt.Appendf(nil, "penstock: %d lines were dropped because stderr was blocked\n", n)
	}}
}

// reportBy sets the function that returns the line about dropped writes.
func (o *output) reportBy(report func(n int) []byte) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.report = report
}

// Write implements io.Writer. It copies p. It never waits and never returns an error.
func (o *output) Write(p []byte) (int, error) {
	o.offer(p)
	return len(p), nil
}

// offer queues p and reports whether it fits.
func (o *output) offer(p []byte) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.bytes > 0 && o.bytes+len(p) > maxQueued {
		o.dropped++
		return false
	}
	o.reportDropped()
	o.enqueue(append([]byte(nil), p...))
	return true
}

// reportDropped queues the line about dropped writes if there were any since the last report. The
// caller holds o.mu.
func (o *output) reportDropped() {
	if o.dropped > 0 {
		n := o.dropped
		o.dropped = 0
		o.enqueue(o.report(n))
	}
}

// enqueue appends p to the queue and starts the goroutine that writes it. The caller holds o.mu.
func (o *output) enqueue(p []byte) {
	o.queue = append(o.queue, p)
	o.bytes += len(p)
	if !o.writing {
		o.writing, o.idle = true, make(chan struct{})
		o.group.Go("stderr", o.write)
	}
}

// write writes the queue until it is empty.
func (o *output) write(context.Context) error {
	for {
		o.mu.Lock()
		if len(o.queue) == 0 {
			o.reportDropped()
		}
		if len(o.queue) == 0 {
			o.writing = false
			close(o.idle)
			o.mu.Unlock()
			return nil
		}
		p := o.queue[0]
		o.queue[0], o.queue = nil, o.queue[1:]
		o.mu.Unlock()
		_, _ = o.w.Write(p) // continue even if the reader is gone
		o.mu.Lock()
		o.bytes -= len(p)
		o.mu.Unlock()
	}
}

// blocked reports whether data is still queued.
func (o *output) blocked() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.writing
}

// flush waits until everything is written or the timeout has passed. It reports whether everything
// is written.
func (o *output) flush(timeout time.Duration) bool {
	o.mu.Lock()
	writing, idle := o.writing, o.idle
	o.mu.Unlock()
	if !writing {
		return true
	}
	timer := time.NewTimer(timeout)
	defer timer.Stop()
	select {
	case <-idle:
		return true
	case <-timer.C:
		return false
	}
}
