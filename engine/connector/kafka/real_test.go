package kafka_test

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/penstock-io/penstock/engine/connector/connectortest"
	"github.com/penstock-io/penstock/engine/connector/kafka"
	"github.com/penstock-io/penstock/engine/kit/expr"
	"github.com/penstock-io/penstock/stream/streamtest"
)

// TestReal runs scenarios against a real broker, and kills the broker in the last ones.
func TestReal(t *testing.T) {
	if os.Getenv("PENSTOCK_KAFKA") == "" {
		t.Skip("skipped: it starts a real broker; `make kafka-short` runs it")
	}
	properties := filepath.Join(t.TempDir(), "more.properties")
	if err := os.WriteFile(properties, []byte("group.min.session.timeout.ms=1000\n"),
		0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv("KAFKA_PROPERTIES", properties)
	server := connectortest.StartServer(t, "kafka", "java")
	for _, c := range []struct {
		name       string
		partitions int32
		run        func(*testing.T, *cluster)
	}{
		{"reads once", 3, readsOnce},
		{"hole after restart", 1, holeAfterRestart},
		{"hole after rebalance", 2, holeAfterRebalance},
		{"failed record is not skipped", 1, failedRecordIsNotSkipped},
		{"rebalance without duplicates", 6, rebalanceWithoutDuplicates},
		{"rebalance loses nothing", 6, rebalanceLosesNothing},
		{"start latest", 1, startLatest},
		{"transactions", 1, transactions},
		{"recreated topic", 1, recreatedTopic},
		{"hundreds of holes", 1, manyHoles},
		{"sink", 3, sinkOnReal},
		{"transactional copy", 4, func(t *testing.T, c *cluster) {
			c.createTopic("copied", 2)
			transactionalCopy(t, c, "copied", nil)
		}},
		{"crash in a transaction", 1, func(t *testing.T, c *cluster) {
			crashInTransaction(t, c, server)
		}},
		{"broker crash", 2, func(t *testing.T, c *cluster) { brokerCrash(t, c, server) }},
	} {
		t.Run(c.name, func(t *testing.T) {
			name := strings.ReplaceAll(c.name, " ", "-")
			cl := withClient(t, &cluster{t: t, topic: name, group: "g-" + name},
				[]string{server.URL})
			cl.createTopic(name, c.partitions)
			c.run(t, cl)
		})
	}
}

// manyHoles leaves 200 unsettled gaps and checks that the metadata of one commit describes all of
// them.
func manyHoles(t *testing.T, c *cluster) {
	const n, every = 4000, 20
	texts := c.produce(c.topic, "a", 1, n)
	got := newArrivals()
	got.set(func(text string) error {
		if number, err := strconv.Atoi(text[len(text)-5:]); err != nil || number%every == 0 {
			return errRefused
		}
		return nil
	})
	r := route{source: c.topics(), pipeline: "batch: { records: 1, linger: 0s }", workers: 4}
	first := c.start(got, r)
	until(t, "the others", func() bool { return got.distinct() == n-n/every })
	if err := first.stop(); err != nil {
		t.Fatal(err)
	}
	_, metadata := c.committed(c.group, c.topic, 0)
	if len(metadata) < n/every {
		t.Errorf("the metadata is %q", metadata)
	}
	got.set(nil)
	c.start(got, r)
	until(t, "the rest", func() bool { return got.distinct() == n })
	checkAll(t, got, texts)
	if n := got.repeats(); n != 0 {
		t.Errorf("%d records have arrived twice", n)
	}
}

func (c *cluster) createTopic(name string, partitions int32) {
	c.t.Helper()
	if _, err := c.admin.CreateTopic(c.t.Context(), partitions, 1, nil, name); err != nil {
		c.t.Fatal(err)
	}
}

// brokerCrash kills the broker during copies from topic to topic. It checks that nothing is lost,
// and that the transactional copy has each record once. If the broker loses the end of a
// transaction, the test starts over with new topics.
func brokerCrash(t *testing.T, c *cluster, server *connectortest.Server) {
	for n := range 5 {
		next := *c
		next.topic, next.group = fmt.Sprint(c.topic, n), fmt.Sprint(c.group, n)
		if next.copyThroughCrashes(server) {
			return
		}
	}
	t.Error("the broker has lost the end of a transaction 5 times")
}

// copyThroughCrashes runs the check of brokerCrash once. It returns false if the broker has lost
// the end of a transaction.
func (c *cluster) copyThroughCrashes(server *connectortest.Server) bool {
	t := c.t
	plain, exact := *c, *c
	plain.group, exact.group = c.group+"-plain", c.group+"-exact"
	copies := []string{c.topic + "-plain", c.topic + "-exact"}
	for _, name := range append(copies, c.topic) {
		c.createTopic(name, 2)
	}
	untransacted := strings.Replace(plain.copyInTransactions(copies[0], ""),
		", transactional: true", "", 1)
	var nodes []*node
	for _, config := range []string{untransacted, exact.copyInTransactions(copies[1], "")} {
		n, err := c.run(config, newArrivals(), route{})
		if err != nil {
			t.Fatal(err)
		}
		nodes = append(nodes, n)
	}
	var texts []string
	dropped := false // markers
	lost := false    // the end of a transaction
	wait := func(what string, ok func() bool) {
		begun := time.Now()
		until(t, what, func() bool {
			dropped = dropped || exact.hasDroppedMarkers(server)
			// the broker ends any other transaction within 20 s
			lost = lost || dropped && time.Since(begun) > 40*time.Second
			return lost || ok()
		})
	}
	for round := range 2 {
		texts = append(texts, c.produce(c.topic, fmt.Sprint("r", round), 2, 2000)...)
		for _, n := range nodes {
			wait("some records",
				func() bool { return n.counter("records_sent") > int64(round*2000) })
		}
		server.Kill(t)
		server.Start(t)
	}
	plain.copied(2, 4000)
	wait("all commits", func() bool { return exact.hasCommitted(2, 4000) })
	for _, n := range nodes {
		if err := n.stop(); err != nil {
			t.Error(err)
		}
	}
	got := newArrivals()
	for _, r := range c.consume(copies[0]) {
		got.add(string(r.Value))
	}
	checkAll(t, got, texts)
	t.Logf("%d of %d records were repeated in 2 crashes without transactions", got.repeats(),
		len(texts))
	if !lost {
		c.exactly(copies[1], texts)
	}
	return !lost
}

// hasDroppedMarkers reports whether the broker, since its start, has dropped markers that end a
// transaction of the group. A starting broker that does not know the leader of a partition yet
// assumes that the partition was deleted. Usually the broker still writes the markers once the
// leader is elected. But if it has already stored that the transaction is complete, it never writes
// them, and no client can end the transaction any more.
func (c *cluster) hasDroppedMarkers(server *connectortest.Server) bool {
	dropped := regexp.MustCompile("markers for penstock/" + c.group +
		"/[^ ]+, these partitions are likely deleted already and hence can be skipped")
	return dropped.Match(server.Log(c.t))
}

// crashInTransaction kills the broker and the owner of a partition during a transaction with a
// timeout of 10 minutes. It checks that the next owner resumes as soon as the broker serves again.
func crashInTransaction(t *testing.T, c *cluster, server *connectortest.Server) {
	c.createTopic("owned", 1)
	texts := c.produce(c.topic, "a", 1, 100)
	c.leaveTransactionOpen("penstock/"+c.group+"/"+c.topic+"/0", "owned", 50)
	server.Kill(t)
	server.Start(t)
	if _, err := c.run(c.copyInTransactions("owned", ""), newArrivals(), route{}); err != nil {
		t.Fatal(err)
	}
	c.copied(1, len(texts))
	c.exactly("owned", texts)
}

func sinkOnReal(t *testing.T, c *cluster) {
	w := newSink(t, c, func(o *kafka.SinkOptions) {
		o.Topic, o.Key,
			o.BatchBytes = expr.Text(c.topic), "message", 2<<20
	})
	var lines, want []string
	for i := range 200 {
		line := fmt.Sprintf("record %d", i)
		if i == 37 {
			line += strings.Repeat("x", 3<<19) // beyond the broker's message.max.bytes
		} else {
			want = append(want, line)
		}
		lines = append(lines, line)
	}
	refused := drive(t, w, streamtest.Lines(lines...))
	if len(refused) != 1 || !strings.HasPrefix(refused[0], "record 37x") {
		t.Errorf("refused %d records", len(refused))
	}
	got := valuesOf(c.consume(c.topic))
	slices.Sort(got)
	slices.Sort(want)
	if !slices.Equal(got, want) {
		t.Errorf("%d records have arrived, want %d once each", len(got), len(want))
	}
}
