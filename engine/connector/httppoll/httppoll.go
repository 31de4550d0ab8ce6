// Package httppoll implements the source that polls an HTTP API.
//
// The API must return a sequence of pages with the oldest records first, and append new records at
// the end. A position has the token of its page, such as a path or a cursor. It also has a number,
// which counts the records up to the position and, in some modes, the changes from one page to the
// next (see place). Positions are all that the source needs to continue after a restart. Each route
// requests the pages separately.
package httppoll

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	nethttp "net/http"
	"slices"
	"sync"
	"time"

	"github.com/penstock-io/penstock/backoff"
	"github.com/penstock-io/penstock/engine/kit/readers"
	"github.com/penstock-io/penstock/stream"
)

// Source returns the component http_poll.
func Source() stream.Component {
	return stream.NewComponent(stream.SourceRole, "http_poll", DefaultOptions, New)
}

// New returns the source. It does not connect.
func New(o Options, h stream.Host) (stream.Source, error) {
	if err := o.Validate(); err != nil {
		return nil, err
	}
	sum := sha256.Sum256([]byte(cmp.Or(o.Name, o.target.String())))
	part := stream.Partition{ID: "http_poll-" + hex.EncodeToString(sum[:16]), Name: o.shown()}
	return &source{o: &o, host: h, part: part, readers: make(map[*reader]bool)}, nil
}

type source struct {
	o    *Options
	host stream.Host
	part stream.Partition
	base nethttp.RoundTripper // nil if the network is used

	mu      sync.Mutex // guards readers
	readers map[*reader]bool
}

// Shared implements stream.SharedSource. The positions mean the same to every process.
func (s *source) Shared() error { return nil }

// Open implements stream.Source. It sends no request.
func (s *source) Open(_ context.Context, o stream.OpenOptions) (stream.Reader, error) {
	c, err := newClient(s.o, s.host, s.base)
	if err != nil {
		return nil, err
	}
	r := &reader{
		s: s, once: o.Once, counter: readers.Counter(s.host, &o, counters), client: c, started: time.Now(),
		page: place{mode: s.o.mode()},
		pace: pace{
			adaptive: backoff.Adaptive{Min: s.o.Interval.Min, Max: s.o.Interval.Max},
			retry:    backoff.Exponential(s.o.Retry.Min, 2, s.o.Retry.Max).Full(),
		},
	}
	if m, known := o.Resume(s.part.ID); known {
		r.above = slices.Clone(m.Above)
		if err := r.moveTo(m.Watermark); err != nil {
			return nil, fmt.Errorf("http_poll %s: %w", s.part.Name, err)
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.readers[r] = true
	return r, nil
}

// Failure implements stream.RetryingSource.
func (s *source) Failure() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	for r := range s.readers {
		if err := r.health.failure(); err != nil {
			return err
		}
	}
	return nil
}

// The names of the counters.
const (
	polls           = "polls"
	pollsUnchanged  = "polls_unchanged"
	pollsFailed     = "polls_failed"
	pollsThrottled  = "polls_throttled"
	recordsRepeated = "records_repeated"
	recordsMissing  = "records_missing"
	recordsNoID     = "records_without_id"
)

var counters = []string{polls, pollsUnchanged, pollsFailed, pollsThrottled, recordsRepeated,
	recordsMissing, recordsNoID}
