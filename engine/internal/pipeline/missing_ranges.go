package pipeline

import (
	"time"

	"github.com/penstock-io/penstock/backoff"
	"github.com/penstock-io/penstock/engine/internal/waiting"
	"github.com/penstock-io/penstock/stream"
)

const (
	// missingFor is the time after which data counts as deleted if no attempt to read it has found
	// it. An attempt with another error restarts this time. The reader must also have been idle for
	// this time.
	missingFor = 10 * time.Second
	// missingMost is the maximum number of missing ranges that are remembered. When it is reached,
	// all entries are deleted, so missingFor starts again for each range. This bounds the memory.
	missingMost = 1 << 16
)

// missingRanges are ranges of waiting batches that the source could not read again.
type missingRanges map[missingKey]*missing

type missingKey struct {
	part  string // id of the partition
	bytes stream.Range
}

type missing struct {
	since time.Time // first of the consecutive attempts that did not find the data; zero if none
	state backoff.State
}

func keyOf(r *waiting.Range) missingKey { return missingKey{r.Part.ID, r.Range} }

var missingBackoff = backoff.Exponential(250*time.Millisecond, 2, 30*time.Second).Equal()

// failed is called after a failed attempt to read r. notFound means that the source found no data
// at the positions of r. After any other error, it is unknown whether the data exists. failed
// returns the wait until the next attempt. since is the time for which all attempts have failed
// with notFound.
func (m *missingRanges) failed(r *waiting.Range, now time.Time,
	notFound bool) (wait, since time.Duration) {
	if *m == nil || len(*m) >= missingMost {
		*m = make(missingRanges)
	}
	e := (*m)[keyOf(r)]
	if e == nil {
		e = &missing{}
		(*m)[keyOf(r)] = e
	}
	wait, e.state, _ = missingBackoff.Next(e.state, nil)
	switch {
	case !notFound:
		e.since = time.Time{}
	case e.since.IsZero():
		e.since = now
	default:
		since = now.Sub(e.since)
	}
	return wait, since
}
