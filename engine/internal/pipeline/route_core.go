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

// core is shared by the parts of a route. It has the configuration, the host and the accounts.
type core struct {
	key      string // "pipeline/route"
	source   string // the component
	cfg      config.Route
	once     bool
	host     *host
	failures *failures
	observed *observers
	assigned *assignments // nil unless a broker assigns the source's partitions

	started  time.Time    // set under mu, before the route's goroutines start
	progress atomic.Int64 // time of the last settlement, in ns since started

	mu    sync.Mutex // guards the fields below; never held during calls to other components
	books *books
	guard deadletter.Guard
	order ordering
}

// observers are notified of the batches of a route.
type observers struct {
	tap      *tap.Route          // nil if the route cannot be tapped
	manifest *manifest.Route     // nil if there is none
	latency  prometheus.Observer // from reading to settling; nil if not measured
	// roundTrips measures attempts; nil if disabled.
	roundTrips prometheus.Observer
}

// tapped reports whether the route has a tap subscription.
func (o *observers) tapped() bool { return o != nil && o.tap.Active() }

// settled records a batch that has just settled.
func (o *observers) settled(b *stream.Batch, deadLettered bool) {
	if o != nil && o.manifest != nil {
		o.manifest.Settled(b, deadLettered)
	}
}

// sent measures the latency of a batch that was just delivered or dead-lettered. Dropped batches
// are not measured.
func (o *observers) sent(b *stream.Batch) {
	if o != nil && o.latency != nil && !b.Time.IsZero() {
		o.latency.Observe(time.Since(b.Time).Seconds())
	}
}

// read records a batch that was just read.
func (o *observers) read(b *stream.Batch) {
	if o != nil && o.manifest != nil {
		o.manifest.Read(b)
	}
}

// ordering selects the order keys of items.
type ordering uint8

const (
	unordered   ordering = iota // none
	byPartition                 // the ids of their partitions
	inOneLane                   // all batches have one key, because the only lane is ordered
)

// now returns the time since the route started.
func (c *core) now() time.Duration { return time.Since(c.started) }

// unsettled returns the number of records read and not yet settled.
func (c *core) unsettled() int64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.books.counts.unsettled()
}
