package otlp

import (
	"container/list"
	"context"
	"sync"
	"time"
)

// readLimit cancels reads that exceed a time limit. It is safe for concurrent use.
type readLimit struct {
	after time.Duration

	mu    sync.Mutex // guards the field below
	reads *list.List // of *read, oldest first
}

// read is the read of one message.
type read struct {
	begun  time.Time
	cancel context.CancelCauseFunc
}

func newReadLimit(after time.Duration) *readLimit {
	return &readLimit{after: after, reads: list.New()}
}

// begin starts the time limit of a read. The function cancel is called if the read exceeds the
// limit. The caller must call done after the read.
func (l *readLimit) begin(cancel context.CancelCauseFunc) (done func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	at := l.reads.PushBack(&read{begun: time.Now(), cancel: cancel})
	return func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.reads.Remove(at)
	}
}

// checksPerLimit is the number of checks within the time limit of a read.
const checksPerLimit = 10

// run cancels overdue reads until ctx is done.
func (l *readLimit) run(ctx context.Context) error {
	tick := time.NewTicker(l.after / checksPerLimit)
	defer tick.Stop()
	for {
		select {
		case now := <-tick.C:
			l.end(now)
		case <-ctx.Done():
			return nil
		}
	}
}

// end cancels the reads that have exceeded the time limit at the time now.
func (l *readLimit) end(now time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for {
		at := l.reads.Front()
		if at == nil {
			return
		}
		r := at.Value.(*read)
		if now.Sub(r.begun) < l.after {
			return
		}
		l.reads.Remove(at)
		r.cancel(errSlow)
	}
}
