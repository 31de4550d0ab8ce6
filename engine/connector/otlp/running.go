package otlp

import (
	"context"
	"errors"
	"sync"
)

// runningRequests are the requests that the source has not answered yet. The contexts of gRPC do
// not depend on that of the source, so end cancels them when the source stops. It is safe for
// concurrent use.
type runningRequests struct {
	mu      sync.Mutex // guards the fields below
	cancels map[*context.CancelCauseFunc]struct{}
	ended   bool
}

var errStopped = errors.New("the source has stopped")

// begin returns a context for a request. The caller must call done after the request.
func (r *runningRequests) begin(ctx context.Context) (running context.Context, done func()) {
	running, cancel := context.WithCancelCause(ctx)
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.ended {
		cancel(errStopped)
	}
	if r.cancels == nil {
		r.cancels = make(map[*context.CancelCauseFunc]struct{})
	}
	r.cancels[&cancel] = struct{}{}
	return running, func() {
		cancel(nil)
		r.mu.Lock()
		defer r.mu.Unlock()
		delete(r.cancels, &cancel)
	}
}

// end cancels the contexts of all requests, also of those that begin later.
func (r *runningRequests) end() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.ended = true
	for cancel := range r.cancels {
		(*cancel)(errStopped)
	}
}
