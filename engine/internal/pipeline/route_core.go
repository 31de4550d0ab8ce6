package pipeline

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/penstock-io/penstock/engine/config"
	"github.com/penstock-io/penstock/engine/internal/deadletter"
	"github.com/penstock-io/penstock/engine/internal/tap"
	"github.com/penstock-io/penstock/engine/manifest"
	"github.com/penstock-io/penstock/stream"
)

// core is the part of a route that its reader, processors, sender and saver share: the
// configuration, the host, and the books (the counts and the progress of the route).
type core struct {
	key      string // "pipeline/route"
	source   string // name of the source's component
	cfg      config.Route
	once     bool
	host     *host
	failures *failures
	observed *observers
	assigned *assignments // nil unless a broker assigns the source's partitions

	started  time.Time    // set under mu, before the route's goroutines start
	progress atomic.Int64 // when a batch last settled, or the route was idle; in ns since started

	mu    sync.Mutex // guards the fields below; never held during calls to other components
	books *books
	guard deadletter.Guard
	order ordering
}

// observers observe the batches of a route for sampling and metrics.
type observers struct {
	tap        *tap.Route
	manifest   *manifest.Route     // nil if there is none
	latency    prometheus.Observer // from reading to settling
	roundTrips prometheus.Observer // of attempts
}

// tapped reports whether a client samples records of the route.
func (o *observers) tapped() bool { return o.tap.Active() }

// settled notes in the manifest that a batch was delivered, dropped or, if deadLettered is set,
// dead-lettered.
func (o *observers) settled(b *stream.Batch, deadLettered bool) {
	if o.manifest != nil {
		o.manifest.Settled(b, deadLettered)
	}
}

// sent observes the time from reading to the outcome of a batch that was delivered or
// dead-lettered. It is not called for batches that settle without being sent.
func (o *observers) sent(b *stream.Batch) {
	if !b.Time.IsZero() {
		o.latency.Observe(time.Since(b.Time).Seconds())
	}
}

// read notes that a batch was read.
func (o *observers) read(b *stream.Batch) {
	if o.manifest != nil {
		o.manifest.Read(b)
	}
}

// ordering selects the keys of a batch. The sender delivers batches with a common key in read
// order.
type ordering uint8

const (
	unordered   ordering = iota // none
	byPartition                 // the ids of the batch's partitions
	inOneLane                   // one key for all batches, because the only lane is ordered
)

// now returns the time since the route started.
func (c *core) now() time.Duration { return time.Since(c.started) }

// unsettled returns the number of records read and not yet settled.
func (c *core) unsettled() int64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.books.counts.unsettled()
}
