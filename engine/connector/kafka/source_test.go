package kafka_test

import (
	"testing"

	"github.com/twmb/franz-go/pkg/kfake"
)

// TestReadsOnce checks that a finite run reads all records and commits the ends of the logs. A
// second run finds nothing.
func TestReadsOnce(t *testing.T) {
	readsOnce(t, newCluster(t, kfake.SeedTopics(3, "orders")))
}

func readsOnce(t *testing.T, c *cluster) {
	texts := c.produce(c.topic, "a", 3, 200)
	got := newArrivals()
	for range 2 {
		if err := c.start(got, route{source: c.topics(), once: true}).wait(); err != nil {
			t.Fatal(err)
		}
		checkAll(t, got, texts)
		if n := got.repeats(); n != 0 {
			t.Errorf("%d records have arrived twice", n)
		}
	}
	for p := range int32(3) {
		if at, metadata := c.committed(c.group, c.topic, p); at != 200 {
			t.Errorf("partition %d: committed %d %q, want 200", p, at, metadata)
		}
	}
}

// TestStaticMember checks that a process with `instance` gets its partitions back if it restarts
// within the session timeout. No other member takes them over.
func TestStaticMember(t *testing.T) {
	t.Parallel()
	c := newCluster(t, kfake.SeedTopics(2, "orders"))
	texts := c.produce("orders", "a", 2, 50)
	got := newArrivals()
	static := route{source: c.topics() + ", instance: a", pipeline: small}
	first := c.start(got, static)
	until(t, "all records", func() bool { return got.distinct() == len(texts) })
	other := c.start(got, route{source: c.topics() + ", instance: b", pipeline: small})
	until(t, "the other has a partition", func() bool { return other.counter("partitions_assigned") == 1 })
	if err := first.stop(); err != nil {
		t.Fatal(err)
	}
	second := c.start(got, static)
	until(t, "the partition is back", func() bool { return second.counter("partitions_assigned") == 1 })
	texts = append(texts, c.produce("orders", "b", 2, 50)...)
	until(t, "the new records", func() bool { return got.distinct() == len(texts) })
	if n := other.counter("partitions_assigned"); n != 1 || other.counter("partitions_revoked") != 0 {
		t.Errorf("the other member was assigned %d partitions, want its own", n)
	}
	if n := got.repeats(); n != 0 {
		t.Errorf("%d records have arrived twice", n)
	}
}
