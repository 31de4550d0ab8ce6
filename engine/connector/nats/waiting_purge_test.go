package nats_test

import (
	"errors"
	"testing"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/penstock-io/penstock/vfs/vfstest"
)

// TestPartOfWaitingRangeIsPurged checks a batch that waits for a retry. Meanwhile, a purge deletes a
// part of its messages. The loss must be counted.
func TestPartOfWaitingRangeIsPurged(t *testing.T) {
	t.Parallel()
	c := newCluster(t, nil)
	s := c.create(nil)
	r := route{
		state:    vfstest.New(),
		pipeline: "batch: { records: 10, linger: 100ms }, retry: { backoff: fixed, base: 3s }",
	}
	got := newArrivals()
	got.refuses = func(string) error { return errors.New("not yet") }
	c.publish("a", 10)
	n := c.start(got, r)
	until(t, "the wait", func() bool { return n.engine.Status().Routes[0].Waiting == 10 })
	if err := s.Purge(t.Context(), jetstream.WithPurgeSequence(6)); err != nil {
		t.Fatal(err)
	}
	got.set(func(a *arrivals) { a.refuses = nil })
	until(t, "the rest", func() bool { return got.distinct() == 5 })
	until(t, "the loss is counted", func() bool { return n.counter("lost_upstream") == 5 })
	if err := n.stop(); err != nil {
		t.Errorf("the run ended with %v", err)
	}
}

// TestLossBeforeWaitIsCountedOnce checks a batch that follows messages which were deleted before
// they were read. If the batch then waits for a retry, its range contains the deleted sequences.
// They must not be counted again.
func TestLossBeforeWaitIsCountedOnce(t *testing.T) {
	t.Parallel()
	c := newCluster(t, nil)
	s := c.create(nil)
	r := route{state: vfstest.New(), source: ", truncated: earliest",
		pipeline: "batch: { records: 10, linger: 100ms }, retry: { backoff: fixed, base: 3s }"}
	got := newArrivals()
	c.publish("a", 5)
	first := r
	first.once = true
	if err := c.start(got, first).wait(); err != nil {
		t.Fatal(err)
	}
	c.publish("b", 15)
	if err := s.Purge(t.Context(), jetstream.WithPurgeSequence(16)); err != nil {
		t.Fatal(err)
	}
	got.set(func(a *arrivals) { a.refuses = func(string) error { return errors.New("not yet") } })
	n := c.start(got, r)
	until(t, "the wait", func() bool { return n.engine.Status().Routes[0].Waiting == 5 })
	got.set(func(a *arrivals) { a.refuses = nil })
	until(t, "the rest", func() bool { return got.distinct() == 10 })
	if lost := n.counter("lost_upstream"); lost != 10 {
		t.Errorf("%d sequences lost, want 10", lost)
	}
	if err := n.stop(); err != nil {
		t.Errorf("the run ended with %v", err)
	}
}
