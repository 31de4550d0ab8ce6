package kafka_test

import (
	"fmt"
	"path/filepath"
	"slices"
	"testing"

	"github.com/twmb/franz-go/pkg/kfake"

	"github.com/penstock-io/penstock/engine/connector/connectortest"
	"github.com/penstock-io/penstock/stream/streamtest"
)

// TestExactlyOnce checks that every record arrives exactly once at a sink with a ledger for each
// partition. Meanwhile members come and go, sessions end, and commits to the broker fail.
func TestExactlyOnce(t *testing.T) {
	t.Parallel()
	c := newCluster(t, kfake.SeedTopics(4, "orders"))
	store := streamtest.NewStore()
	r := route{source: c.topics(), pipeline: "batch: { records: 7, linger: 0s }", store: store}
	var texts []string
	nodes := []*node{c.start(newArrivals(), r)}
	for round := range 4 {
		texts = append(texts, c.produce("orders", fmt.Sprint("r", round), 4, 200)...)
		joined := c.start(newArrivals(), r)
		nodes = append(nodes, joined)
		until(t, "the new member has partitions", func() bool { return joined.counter("partitions_assigned") > 0 })
		texts = append(texts, c.produce("orders", fmt.Sprint("s", round), 4, 200)...)
		if round%2 == 0 {
			c.loseSession(nodes...)
		} else if err := nodes[0].stop(); err != nil {
			t.Fatal(err)
		} else {
			nodes = nodes[1:]
		}
	}
	until(t, "all rows", func() bool { return len(store.Rows()) >= len(texts) })
	rows := store.Rows()
	slices.Sort(rows)
	slices.Sort(texts)
	if !slices.Equal(rows, texts) {
		t.Errorf("the store has %d rows, want %d, each once", len(rows), len(texts))
	}
	if m := store.Mistakes(); len(m) > 0 {
		t.Errorf("mistakes: %v", m)
	}
}

// TestExactlyOnceSQL checks that members of a group which share a table write each record once,
// although members come and go, and sessions end.
func TestExactlyOnceSQL(t *testing.T) {
	t.Parallel()
	c := newCluster(t, kfake.SeedTopics(4, "orders"))
	path := filepath.Join(t.TempDir(), "out.db")
	db := connectortest.OpenSQLite(t, path)
	connectortest.Execute(t, db, "PRAGMA journal_mode = WAL")
	connectortest.Execute(t, db, "CREATE TABLE orders (message TEXT)")
	config := fmt.Sprintf(`
state: /state
pipelines:
  p:
    source: { kafka: { brokers: %s, group: g, topics: [orders] } }
    sink: { sqlite: { path: %q, table: orders } }
    checkpoint: { sync: 100ms }
    batch: { records: 50, linger: 0s }
`, c.brokers(), path)
	start := func() *node {
		n, err := c.run(config, newArrivals(), route{})
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	var texts []string
	nodes := []*node{start()}
	for round := range 3 {
		texts = append(texts, c.produce("orders", fmt.Sprint("r", round), 4, 200)...)
		joined := start()
		nodes = append(nodes, joined)
		until(t, "the new member has partitions", func() bool {
			return joined.counter("partitions_assigned") > 0
		})
		texts = append(texts, c.produce("orders", fmt.Sprint("s", round), 4, 200)...)
		if round == 0 {
			c.loseSession(nodes...)
		} else if err := nodes[0].stop(); err != nil {
			t.Fatal(err)
		} else {
			nodes = nodes[1:]
		}
	}
	rows := func() []string {
		return connectortest.Column(t, db, "SELECT message FROM orders ORDER BY message")
	}
	until(t, "all rows", func() bool { return len(rows()) >= len(texts) })
	slices.Sort(texts)
	if got := rows(); !slices.Equal(got, texts) {
		t.Errorf("the table has %d rows, want %d, each once", len(got), len(texts))
	}
}

// TestRunningDeliveries checks that running deliveries are finished before partitions move, so that
// the new owner does not repeat them.
func TestRunningDeliveries(t *testing.T) {
	t.Parallel()
	c := newCluster(t, kfake.SeedTopics(2, "orders"))
	texts := c.produce("orders", "a", 2, 30)
	got := newArrivals()
	got.hold = make(chan struct{})
	r := route{source: c.topics(), pipeline: small, workers: 4}
	first := c.start(got, r)
	until(t, "deliveries", func() bool { return first.inFlight() > 0 })
	second := c.start(got, r)
	until(t, "the group knows the new member", func() bool { return second.counter("rebalances") > 0 })
	close(got.hold)
	until(t, "all records", func() bool { return got.distinct() == len(texts) })
	until(t, "a partition has moved", func() bool { return second.counter("partitions_assigned") == 1 })
	if n := got.repeats(); n != 0 {
		t.Errorf("%d records have arrived twice", n)
	}
	if n := first.counter("revoked_in_flight"); n != 0 {
		t.Errorf("%d positions were in flight after the revocation", n)
	}
}

// TestHungDeliveries checks that hung deliveries delay a revocation by no more than revoke_timeout.
// The counter revoked_in_flight counts them, and the new owner repeats them.
func TestHungDeliveries(t *testing.T) {
	t.Parallel()
	c := newCluster(t, kfake.SeedTopics(2, "orders"))
	texts := c.produce("orders", "a", 2, 30)
	hung, got := newArrivals(), newArrivals()
	hung.hold = make(chan struct{})
	r := route{source: c.topics() + ", revoke_timeout: 300ms", pipeline: small, workers: 40}
	first := c.start(hung, r)
	until(t, "deliveries of both partitions", func() bool {
		return hung.hasBegun("a-0-00000") && hung.hasBegun("a-1-00000")
	})
	second := c.start(got, r)
	until(t, "a partition has moved", func() bool { return second.counter("partitions_assigned") == 1 })
	if first.counter("revoked_in_flight") == 0 {
		t.Error("no position is counted as in flight after the revocation")
	}
	until(t, "its records", func() bool { return got.distinct() == len(texts)/2 })
	close(hung.hold)
	until(t, "the others", func() bool { return len(hung.missing(got.missing(texts))) == 0 })
}

func (a *arrivals) hasBegun(text string) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.begun[text]
}

// inFlight returns the number of in-flight records of the route.
func (n *node) inFlight() int64 {
	s := n.engine.Status()
	if len(s.Routes) == 0 {
		return 0
	}
	return s.Routes[0].InFlight
}
