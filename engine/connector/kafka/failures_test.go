package kafka_test

import (
	"errors"
	"fmt"
	"io"
	nethttp "net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
)

var errRefused = errors.New("the receiver does not take this batch")

// stuck returns a function that refuses a record if its text is one of texts.
func stuck(texts ...string) func(string) error {
	return func(text string) error {
		for _, t := range texts {
			if t == text {
				return errRefused
			}
		}
		return nil
	}
}

func delivered(n *node) int64 {
	s := n.engine.Status()
	if len(s.Routes) == 0 {
		return 0
	}
	return s.Routes[0].Delivered
}

// throughHole returns the number of records in a partition in which record 150 is refused: 100,000
// follow it, or 2,000 if tests are short.
func throughHole() int {
	if testing.Short() {
		return 2_151
	}
	return 100_151
}

// TestHoleAfterRestart checks that a restart repeats only the batch that was refused, although
// 100,000 later batches were acknowledged.
func TestHoleAfterRestart(t *testing.T) {
	t.Parallel()
	holeAfterRestart(t, newCluster(t, kfake.SeedTopics(1, "orders")))
}

func holeAfterRestart(t *testing.T, c *cluster) {
	texts := c.produce(c.topic, "a", 1, throughHole())
	got := newArrivals()
	got.set(stuck("a-0-00150"))
	r := route{source: c.topics(), pipeline: "batch: { records: 1, linger: 0s }",
		workers: 4}
	first := c.start(got, r)
	got.await(t, "all others", len(texts)-1)
	if err := first.stop(); err != nil {
		t.Fatal(err)
	}
	at, metadata := c.committed(c.group, c.topic, 0)
	if at != 150 || !strings.HasPrefix(metadata, "penstock1.") {
		t.Fatalf("committed %d %q with a hole at 150", at, metadata)
	}
	got.set(nil)
	second := c.start(got, r)
	until(t, "the hole", func() bool { return got.distinct() == len(texts) })
	until(t, "the commit", func() bool { at, _ := c.committed(c.group, c.topic, 0); return at == int64(len(texts)) })
	if n := delivered(second); n != 1 {
		t.Errorf("the restart delivered %d records, want the batch of one", n)
	}
	if n := got.repeats(); n != 0 {
		t.Errorf("%d records have arrived twice", n)
	}
}

// TestHoleAfterRebalance checks that the new owner of a partition repeats only the batch that was
// refused, although 100,000 later batches were acknowledged.
func TestHoleAfterRebalance(t *testing.T) {
	t.Parallel()
	holeAfterRebalance(t, newCluster(t, kfake.SeedTopics(2, "orders")))
}

func holeAfterRebalance(t *testing.T, c *cluster) {
	texts := c.produce(c.topic, "a", 2, throughHole())
	got := newArrivals()
	got.set(stuck("a-0-00150", "a-1-00150"))
	r := route{source: c.topics(), pipeline: "batch: { records: 1, linger: 0s }",
		workers: 4}
	first := c.start(got, r)
	got.await(t, "all others", len(texts)-2)
	second := c.start(got, r)
	until(t, "a partition has moved", func() bool { return second.counter("partitions_assigned") >= 1 })
	got.set(nil)
	until(t, "the holes", func() bool { return got.distinct() == len(texts) })
	until(t, "the counter", func() bool { return delivered(second) >= 1 })
	if n := delivered(second); n != 1 {
		t.Errorf("the new owner delivered %d records, want the batch of one", n)
	}
	if n := got.repeats(); n != 0 {
		t.Errorf("%d records have arrived twice: %v", n, got.twice()[0])
	}
	_ = first
}

// TestFailedRecordIsNotSkipped checks that a restart does not skip a failed record. Vector commits
// the offsets of later records, and so skips the failed one (its issue 24215).
func TestFailedRecordIsNotSkipped(t *testing.T) {
	failedRecordIsNotSkipped(t, newCluster(t, kfake.SeedTopics(1, "orders")))
}

func failedRecordIsNotSkipped(t *testing.T, c *cluster) {
	texts := c.produce(c.topic, "a", 1, 50)
	got := newArrivals()
	got.set(stuck("a-0-00003"))
	r := route{source: c.topics(), pipeline: "batch: { records: 1, linger: 0s }", workers: 4}
	for range 3 { // restarts while the record fails
		n := c.start(got, r)
		until(t, "the others", func() bool { return got.distinct() == len(texts)-1 })
		if err := n.stop(); err != nil {
			t.Fatal(err)
		}
		if at, _ := c.committed(c.group, c.topic, 0); at > 3 {
			t.Fatalf("committed %d, and record 3 was never accepted", at)
		}
	}
	got.set(nil)
	c.start(got, r)
	until(t, "the failed record", func() bool { return got.distinct() == len(texts) })
	checkAll(t, got, texts)
	if n := got.repeats(); n != 0 {
		t.Errorf("%d records have arrived twice", n)
	}
}

// TestUnauthorizedRecordsAreNotLost checks that records arrive later if the receiver first responds
// with 401 or 403. Vector drops such records even with acknowledgements enabled (its issue 24543).
func TestUnauthorizedRecordsAreNotLost(t *testing.T) {
	for _, status := range []int{401, 403} {
		t.Run(fmt.Sprint(status), func(t *testing.T) {
			c := newCluster(t, kfake.SeedTopics(1, "orders"))
			texts := c.produce("orders", "a", 1, 100)
			var refuse atomic.Bool
			var asked atomic.Int64
			refuse.Store(true)
			got := newArrivals()
			server := httptest.NewServer(nethttp.HandlerFunc(func(w nethttp.ResponseWriter, q *nethttp.Request) {
				asked.Add(1)
				if refuse.Load() {
					w.WriteHeader(status)
					return
				}
				body, err := io.ReadAll(q.Body)
				if err != nil {
					t.Error(err)
				}
				for line := range strings.Lines(string(body)) {
					got.add(strings.TrimSuffix(line, "\n"))
				}
			}))
			defer server.Close()
			r := route{source: ", topics: [orders]", http: server.URL, pipeline: "batch: { records: 10, linger: 0s }"}
			first := c.start(got, r)
			until(t, "refusals", func() bool { return asked.Load() > 0 })
			if err := first.stop(); err != nil {
				t.Log(err)
			}
			if at, _ := c.committed("g", "orders", 0); at > 0 {
				t.Fatalf("committed %d, and nothing was accepted", at)
			}
			refuse.Store(false)
			c.start(got, r)
			until(t, "all records", func() bool { return got.distinct() == len(texts) })
			checkAll(t, got, texts)
		})
	}
}

// TestRebalanceWithoutDuplicates checks that no record is repeated while three members come and go.
// Vector repeats records at each rebalance (its issue 12084).
func TestRebalanceWithoutDuplicates(t *testing.T) {
	t.Parallel()
	rebalanceWithoutDuplicates(t, newCluster(t, kfake.SeedTopics(6, "orders")))
}

func rebalanceWithoutDuplicates(t *testing.T, c *cluster) {
	got := newArrivals()
	texts := rebalance(t, c, got, "batch: { records: 20, linger: 0s }")
	checkAll(t, got, texts)
	if n := got.repeats(); n != 0 {
		t.Errorf("%d records have arrived twice, such as %s", n, got.twice()[0])
	}
}

// TestRebalanceLosesNothing checks that no record is lost while deliveries fail at random and
// members come and go. Redpanda Connect loses records at a cooperative rebalance if batches are
// acknowledged out of order (its issue 4010).
func TestRebalanceLosesNothing(t *testing.T) {
	t.Parallel()
	rebalanceLosesNothing(t, newCluster(t, kfake.SeedTopics(6, "orders")))
}

func rebalanceLosesNothing(t *testing.T, c *cluster) {
	got := newArrivals()
	var n atomic.Int64
	got.set(func(string) error {
		if n.Add(1)%97 == 0 {
			return errRefused
		}
		return nil
	})
	texts := rebalance(t, c, got, "batch: { records: 7, linger: 0s }, retry: { backoff: fixed, base: 20ms }")
	checkAll(t, got, texts)
}

// rebalance produces records while members join and leave a group of 6 partitions. It returns when
// all records have arrived.
func rebalance(t *testing.T, c *cluster, got *arrivals, pipeline string) (texts []string) {
	r := route{source: c.topics(), pipeline: pipeline, workers: 4}
	nodes := []*node{c.start(got, r)}
	for round := range 4 {
		texts = append(texts, c.produce(c.topic, fmt.Sprintf("r%d", round), 6, 300)...)
		nodes = append(nodes, c.start(got, r))
		joined := nodes[len(nodes)-1]
		until(t, "the new member has partitions", func() bool { return joined.counter("partitions_assigned") > 0 })
		texts = append(texts, c.produce(c.topic, fmt.Sprintf("s%d", round), 6, 300)...)
		if round%2 == 1 {
			if err := nodes[0].stop(); err != nil {
				t.Fatal(err)
			}
			nodes = nodes[1:]
		}
	}
	until(t, "all records", func() bool { return got.distinct() >= len(texts) })
	until(t, "all commits", func() bool {
		for p := range int32(6) {
			if at, _ := c.committed(c.group, c.topic, p); at != int64(len(texts)/6) {
				return false
			}
		}
		return true
	})
	return texts
}

// TestMemoryIsBounded checks that the heap grows by at most 40 MiB while 64 MiB wait in the topic
// and the receiver accepts nothing. Another tool with adaptive concurrency runs out of memory in
// such a burst.
func TestMemoryIsBounded(t *testing.T) {
	c := newCluster(t, kfake.SeedTopics(4, "orders"))
	value := []byte(strings.Repeat("x", 16<<10))
	for range 16 {
		var records []*kgo.Record
		for i := range 256 {
			records = append(records, &kgo.Record{Topic: "orders", Partition: int32(i % 4), Value: value})
		}
		c.send(records...)
	}
	before := heap()
	got := newArrivals()
	got.hold = make(chan struct{})
	n := c.start(got,
		route{source: ", topics: [orders], memory: 2MiB", pipeline: "batch: { records: 16 }, memory: 8MiB"})
	until(t, "the pipeline is full", func() bool { return n.engine.Status().Routes[0].ReadRecords > 0 })
	held := settledHeap(t)
	if grown := held - before; grown > 40<<20 {
		t.Errorf("the heap has grown by %d MiB while nothing was delivered", grown>>20)
	}
	close(got.hold)
	until(t, "all records", func() bool { return delivered(n) == 16*256 })
}

func heap() int64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// settledHeap returns the heap size when it no longer grows.
func settledHeap(t *testing.T) int64 {
	last := heap()
	for range 100 {
		<-time.After(50 * time.Millisecond)
		now := heap()
		if now-last < 1<<20 {
			return now
		}
		last = now
	}
	t.Error("the heap grows on")
	return last
}

// TestSessionLost checks that a member expelled by the broker rejoins and loses nothing.
func TestSessionLost(t *testing.T) {
	t.Parallel()
	c := newCluster(t, kfake.SeedTopics(2, "orders"))
	texts := c.produce("orders", "a", 2, 500)
	got := newArrivals()
	n := c.start(got, route{source: ", topics: [orders]", pipeline: "batch: { records: 50, linger: 0s }"})
	until(t, "the first records", func() bool { return got.distinct() == len(texts) })
	c.loseSession(n)
	texts = append(texts, c.produce("orders", "b", 2, 500)...)
	until(t, "the records after the loss", func() bool { return got.distinct() == len(texts) })
	checkAll(t, got, texts)
}
