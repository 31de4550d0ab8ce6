package pipeline

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/penstock-io/penstock/engine/config"
	"github.com/penstock-io/penstock/engine/internal/deadletter"
	"github.com/penstock-io/penstock/engine/manifest"
)

// core is what the parts of a route share: its configuration, its host, and its accounts.
type core struct {
	key      string // "pipeline/route"
	source   string // the component
	cfg      config.Route
	once     bool
	host     *host
	failures *failures
	manifest *manifest.Route // nil if there is none
	assigned *assignments    // nil unless a broker assigns the source's partitions

	started  time.Time    // set under mu, before the route's goroutines start
	progress atomic.Int64 // when something last settled, in nanoseconds since started

	mu    sync.Mutex // guards what follows; never held while something else is called
	books *books
	guard deadletter.Guard
	order ordering
}

// ordering is which order keys items carry.
type ordering uint8

const (
	unordered   ordering = iota // none
	byPartition                 // the ids of their partitions
	inOneLane                   // one for all: there is one lane, an ordered one
)

// now is the time since the route started.
func (c *core) now() time.Duration { return time.Since(c.started) }

// unsettled returns how many records were read and are not settled.
func (c *core) unsettled() int64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.books.counts.unsettled()
}
