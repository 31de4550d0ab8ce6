package intake

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"math"
	"slices"
	"sync"
	"time"

	"github.com/penstock-io/penstock/stream"
)

// Options configure an [Intake].
type Options struct {
	// Name is the partition's name, for logs and displays.
	Name string
	// MaxBytes is the memory limit: it bounds the sum of reserved bytes and bytes of unsettled
	// data, but one reservation may exceed it (see [Reservation.Grow]). Each record counts
	// [RecordOverhead] bytes in addition to its text. Zero means [DefaultMaxBytes].
	MaxBytes int64
	// Objects means that each record is a valid JSON object on one line. Its members become the
	// record's fields.
	Objects bool
	// Refuse makes Reserve and Submit fail with [ErrDraining] while all routes drain (deliver their
	// remaining data before a stop). If Refuse is not set, Reserve and Submit still work while
	// routes drain, and the routes end after the last producer has finished; see [Intake.Producer].
	Refuse bool
	// Remember is the time for which routes remember that an identified request was settled; see
	// [Reservation.Identify].
	Remember time.Duration
	// MaxRequests bounds the number of identified requests that a route remembers. If there are
	// more, the route forgets the oldest ones, unless they have unsettled data. Zero means 131,072.
	MaxRequests int
	// MaxSpans bounds the spans of a batch. Each identified request is a span. Zero means no limit.
	MaxSpans int
}

const (
	// DefaultMaxBytes is the default limit of an intake.
	DefaultMaxBytes = 64 << 20
	// RecordOverhead is the number of bytes that each record counts against the memory limit in
	// addition to its text.
	RecordOverhead = 16
	// MaxSubmission is the maximum size of one submission in bytes, because offsets into a batch
	// have 32 bits.
	MaxSubmission = math.MaxInt32 / 2

	partitionPrefix = "intake-"
	// recordsLost counts records that were received but not delivered when the source stopped.
	recordsLost = "records_lost"
)

var (
	// ErrTooLarge is returned for data that is larger than the memory limit or [MaxSubmission].
	ErrTooLarge = errors.New("the data exceeds the memory of the source")
	// ErrWithdrawn is returned by [Submission.Wait] for withdrawn data.
	ErrWithdrawn = errors.New("the data was withdrawn")
	// ErrUnsettled is returned by [Submission.Wait] if one route has withdrawn the data but another
	// route may still deliver it.
	ErrUnsettled = errors.New("not every route delivers the data")
	// ErrDraining is returned while all routes drain.
	ErrDraining = errors.New("the source is draining")
)

// Intake holds submissions until every route has settled them. It is a [stream.Source]. Its methods
// are safe for concurrent use.
type Intake struct {
	o    Options
	host stream.SourceHost
	part stream.Partition

	mu        sync.Mutex // guards the fields below
	gate      gate
	queue     []*Submission          // submissions that no route has read, in order of arrival
	log       []*Submission          // submissions that a route has read, but not all have settled
	end       int64                  // place after the last submission that was read
	mainEnd   int64                  // position in part after the last submission that was read
	working   map[string]*Submission // identified submissions in queue or log, by partition
	unwanted  int                    // submissions in log that are unwanted
	routes    map[string]*progress
	producers int
	ended     bool      // no producer follows
	stopped   bool      // the source stops: data that no sender waits for is lost
	checked   time.Time // when a waiting caller last called release
	changed   chan struct{}
	draining  chan struct{} // closed while all routes drain
}

// New returns an empty intake for the source with the given host.
func New(o Options, h stream.Host) (*Intake, error) {
	host, ok := h.(stream.SourceHost)
	if !ok {
		return nil, fmt.Errorf("host is a %T, want a stream.SourceHost", h)
	}
	if o.MaxBytes <= 0 {
		o.MaxBytes = DefaultMaxBytes
	}
	if o.MaxRequests <= 0 {
		o.MaxRequests = maxRequests
	}
	i := &Intake{
		o: o, host: host, gate: gate{max: o.MaxBytes},
		part:   stream.Partition{ID: partitionPrefix + rand.Text(), Name: o.Name},
		routes: make(map[string]*progress), working: make(map[string]*Submission),
		changed: make(chan struct{}), draining: make(chan struct{}),
	}
	h.Count(recordsLost, 0)
	h.Go("intake/rest", i.reportRest)
	return i, nil
}

// reportRest waits until the source stops. Then it logs and counts the lost records. These are the
// records that some route has not settled (delivered, dead-lettered or dropped), for example
// because the route has failed. If a sender waits for a record, the record does not count as lost:
// the sender gets no confirmation, still has the record, and can send it again.
func (i *Intake) reportRest(ctx context.Context) error {
	<-ctx.Done()
	i.mu.Lock()
	i.stopped = true
	var bytes, records int64
	for _, s := range slices.Concat(i.log, i.queue) {
		if !s.awaited {
			bytes, records = bytes+int64(s.records.Size()), records+int64(s.records.Len())
		}
	}
	i.mu.Unlock()
	i.host.Count(recordsLost, records)
	if records > 0 {
		const text = "%s: %d records (%d bytes) were received but not delivered by every route: " +
			"they are lost"
		i.host.Fault(fmt.Errorf(text, i.o.Name, records, bytes))
	}
	return nil
}

// KeepsRequests implements [stream.RequestSource]. own is the id of the intake's own partition (not
// of an identified request), which is unique to this process. keep is the time for which routes
// remember requests.
func (i *Intake) KeepsRequests() (own string, keep time.Duration) { return i.part.ID, i.o.Remember }

// Held returns the sum of reserved bytes and bytes of unsettled data.
func (i *Intake) Held() int64 {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.gate.held
}

// Unread returns the size and number of the submissions that no route has read.
func (i *Intake) Unread() (bytes int64, submissions int) {
	i.mu.Lock()
	defer i.mu.Unlock()
	for _, s := range i.queue {
		bytes += s.cost
	}
	return bytes, len(i.queue)
}

// Draining returns a channel that is closed while all routes drain.
func (i *Intake) Draining() <-chan struct{} {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.draining
}

// IsDraining reports whether all routes drain.
func (i *Intake) IsDraining() bool {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.allDraining()
}

// Accepting waits as long as all routes drain, and then returns nil. If ctx has ended, it returns
// the cause of ctx.
func (i *Intake) Accepting(ctx context.Context) error {
	for {
		i.mu.Lock()
		draining, changed := i.allDraining(), i.changed
		i.mu.Unlock()
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if !draining {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
		}
	}
}

// allDraining reports whether all routes drain. The caller holds i.mu.
func (i *Intake) allDraining() bool {
	select {
	case <-i.draining:
		return true
	default:
		return false
	}
}

// Producer registers a goroutine that submits data. If all routes drain and Options.Refuse is not
// set, the routes end only after all registered goroutines have called done. The goroutine must
// watch the channel of Draining, and call done after its last submission. done may be called twice.
func (i *Intake) Producer() (done func()) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.producers++
	return sync.OnceFunc(func() {
		i.mu.Lock()
		defer i.mu.Unlock()
		i.producers--
		i.notify()
	})
}

// End declares that no more data will be submitted. Routes end when they have read all data.
func (i *Intake) End() {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.ended = true
	i.notify()
}

// notify wakes the readers. The caller holds i.mu.
func (i *Intake) notify() {
	close(i.changed)
	i.changed = make(chan struct{})
}

// checkDraining updates the channel that Draining returns. If all routes drain, it closes the
// channel. If a route no longer drains, it replaces the closed channel by an open one. The caller
// holds i.mu.
func (i *Intake) checkDraining() {
	all := len(i.routes) > 0
	for _, p := range i.routes {
		all = all && p.draining
	}
	switch was := i.allDraining(); {
	case all && !was:
		close(i.draining)
		if i.o.Refuse {
			i.gate.refuse(ErrDraining)
		}
	case !all && was:
		i.draining = make(chan struct{})
	}
	i.notify()
}

// isRefusing reports whether new data is refused because all routes drain. The caller holds i.mu.
func (i *Intake) isRefusing() bool { return i.o.Refuse && i.allDraining() }
