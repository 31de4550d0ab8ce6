package readers_test

import (
	"context"
	"errors"
	"io"
	"math"
	"testing"
	"testing/synctest"
	"time"

	"github.com/penstock-io/penstock/engine/kit/readers"
	"github.com/penstock-io/penstock/stream"
)

// TestCollect checks when a batch ends: records arrive every 30 ms, the linger is 100 ms.
func TestCollect(t *testing.T) {
	errBroken := errors.New("broken")
	for _, c := range []struct {
		name    string
		linger  time.Duration
		timeout time.Duration // of the context
		fullAt  int           // records of a full batch
		failAt  int           // records after which fill fails
		fail    error
		records int
		took    time.Duration
		want    error
	}{
		{"linger", 100 * time.Millisecond, time.Hour, 99, 99, nil, 4, 130 * time.Millisecond, nil},
		{"no linger", 0, time.Hour, 99, 99, nil, 1, 30 * time.Millisecond, nil},
		{"full", 100 * time.Millisecond, time.Hour, 2, 99, nil, 2, 60 * time.Millisecond, nil},
		{"end", 100 * time.Millisecond, time.Hour, 99, 2, io.EOF, 2, 60 * time.Millisecond, io.EOF},
		{"failed at once", time.Hour, time.Hour, 99, 0, errBroken, 0, 0, errBroken},
		{"canceled", time.Hour, 70 * time.Millisecond, 99, 99, nil, 2, 70 * time.Millisecond,
			context.DeadlineExceeded},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithTimeout(t.Context(), c.timeout)
				defer cancel()
				begun := time.Now()
				b := stream.NewBatch(stream.BatchLimits{})
				var cursor readers.Cursor
				err := readers.Collect(ctx, b, c.linger, func() (bool, <-chan struct{}, error) {
					changed := make(chan struct{})
					time.AfterFunc(30*time.Millisecond, func() { close(changed) })
					n := int(time.Since(begun) / (30 * time.Millisecond))
					if n > 0 {
						cursor.Cover(b, new(stream.Partition), int64(n))
					}
					if n >= c.failAt {
						return false, changed, c.fail
					}
					return n >= c.fullAt, changed, nil
				})
				if !errors.Is(err, c.want) || cursor.At != int64(c.records) ||
					time.Since(begun) != c.took {
					t.Errorf("%v, %d records after %v; want %v, %d after %v", err, cursor.At,
						time.Since(begun), c.want, c.records, c.took)
				}
			})
		})
	}
}

// TestCursor checks where batches end after a restart.
func TestCursor(t *testing.T) {
	var cuts readers.Cuts
	for _, at := range []int64{10, 30, 30, 20, 50} {
		cuts.Add(at)
	}
	settled := stream.Range{From: stream.Position{Num: 40}, To: stream.Position{Num: 45}}
	c := readers.Cursor{Above: []stream.Range{settled}}
	for _, want := range []int64{10, 30, 40, 50, math.MaxInt64} {
		if c.IsSettled() {
			c.Skip()
		}
		got := c.Border(cuts)
		if got != want {
			t.Errorf("after %d a batch ends at %d, want %d", c.At, got, want)
		}
		c.At = got
	}
	if cuts.Trim(30); cuts.Has(30) || !cuts.Has(50) {
		t.Errorf("the cuts above 30 are %v", cuts)
	}
}
