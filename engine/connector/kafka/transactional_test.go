package kafka_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"github.com/twmb/franz-go/pkg/kversion"

	"github.com/penstock-io/penstock/engine/connector/connectortest/partitions"
	"github.com/penstock-io/penstock/engine/connector/kafka"
	"github.com/penstock-io/penstock/stream"
	"github.com/penstock-io/penstock/stream/streamtest"
)

// TestTransactionalLedger checks that the offsets of a group fulfill the contract of a ledger with
// several owners.
func TestTransactionalLedger(t *testing.T) {
	t.Parallel()
	partitions.Ledger(t, func(t *testing.T) partitions.Receiver {
		c := newCluster(t, kfake.SeedTopics(260, "orders"), kfake.SeedTopics(1, "out"))
		cluster := "kfake"
		if m, err := c.admin.Metadata(t.Context()); err == nil {
			cluster = m.Cluster
		}
		release := make(chan struct{})
		return partitions.Receiver{
			New: func(h stream.Host) (partitions.Sink, error) {
				so, o := kafka.DefaultSourceOptions(), kafka.DefaultSinkOptions()
				so.Brokers, so.Topics, so.Group = c.seeds(), []string{"orders"}, "g"
				o.Brokers, o.Topic, o.Format, o.Transactional = c.seeds(), "out", "raw", true
				source, err := kafka.NewSource(*so, streamtest.NewHost(t))
				if err != nil {
					return nil, err
				}
				sink, err := kafka.NewSink(*o, h)
				if err != nil {
					return nil, err
				}
				bound, err := sink.BindSource(source, "p/main")
				if err != nil {
					return nil, err
				}
				return bound.(partitions.Sink), nil
			},
			Received: func(testing.TB) []string { return valuesOf(c.consumeCommitted("out")) },
			Block: func(testing.TB) func() {
				c.ControlKey(int16(kmsg.TxnOffsetCommit),
					func(kmsg.Request) (kmsg.Response, error, bool) {
						c.SleepControl(func() { <-release })
						return nil, nil, false
					})
				return func() { close(release) }
			},
			Part: func(id string) stream.Partition {
				num := 250 + max(0, slices.Index([]string{"x", "y", "z", "lost"}, id))
				_, _ = fmt.Sscanf(id, "p%d", &num)
				return stream.Partition{ID: fmt.Sprintf("%s/orders/%d", cluster, num),
					Name: fmt.Sprintf("orders/%d", num)}
			},
			PartitionsOnly: true,
			Evicts:         patience,
		}
	})
}

// consumeCommitted returns the records of a topic's committed transactions, in order within each
// partition.
func (c *cluster) consumeCommitted(topic string) (out []*kgo.Record) {
	c.t.Helper()
	ends, err := c.admin.ListCommittedOffsets(c.t.Context(), topic)
	if err != nil {
		c.t.Fatal(err)
	}
	client, err := kgo.NewClient(kgo.SeedBrokers(c.seeds()...), kgo.ConsumeTopics(topic),
		kgo.FetchIsolationLevel(kgo.ReadCommitted()), kgo.KeepControlRecords())
	if err != nil {
		c.t.Fatal(err)
	}
	defer client.Close()
	at := make(map[int32]int64)
	until(c.t, "the end of the log", func() bool {
		got := client.PollFetches(c.t.Context())
		if err := got.Err(); err != nil {
			c.t.Fatal(err)
		}
		got.EachRecord(func(r *kgo.Record) {
			at[r.Partition] = r.Offset + 1
			if !r.Attrs.IsControl() {
				out = append(out, r)
			}
		})
		ended := true
		ends.Each(func(o kadm.ListedOffset) { ended = ended && at[o.Partition] >= o.Offset })
		return ended
	})
	slices.SortStableFunc(out,
		func(a, b *kgo.Record) int { return int(a.Partition - b.Partition) })
	return out
}

// copyInTransactions returns the configuration of a transactional copy from the cluster's topic to
// another one.
func (c *cluster) copyInTransactions(topic, more string) string {
	return fmt.Sprintf(`
state: /state
pipelines:
  p:
    source: { kafka: { brokers: %s, group: %s, session_timeout: 2s%s } }
    sink: { kafka: { brokers: %[1]s, topic: %[4]s, format: raw, transactional: true } }
    checkpoint: { sync: 100ms }
    batch: { records: 20, linger: 0s }
    %s
`, c.brokers(), c.group, c.topics(), topic, more)
}

// exactly fails the test unless a reader of committed records finds each text once in a topic.
func (c *cluster) exactly(topic string, texts []string) {
	c.t.Helper()
	got := valuesOf(c.consumeCommitted(topic))
	want := slices.Sorted(slices.Values(texts))
	slices.Sort(got)
	if !slices.Equal(got, want) {
		c.t.Errorf("readers of committed records find %d records, %d of them different; "+
			"want %d, each once", len(got), len(slices.Compact(got)), len(want))
	}
}

// copied waits until the group has committed an offset of at least each in every partition.
func (c *cluster) copied(partitions, each int) {
	c.t.Helper()
	until(c.t, "all commits", func() bool { return c.hasCommitted(partitions, each) })
}

func (c *cluster) hasCommitted(partitions, each int) bool {
	for p := range int32(partitions) {
		if at, _ := c.committed(c.group, c.topic, p); at < int64(each) {
			return false
		}
	}
	return true
}

// TestTransactionalCopy checks that a topic is copied exactly once while members come and go and
// sessions end.
func TestTransactionalCopy(t *testing.T) {
	t.Parallel()
	c := newCluster(t, kfake.SeedTopics(4, "orders"), kfake.SeedTopics(2, "out"))
	transactionalCopy(t, c, "out", c.loseSession)
}

func transactionalCopy(t *testing.T, c *cluster, topic string, lose func(...*node)) {
	start := func() *node {
		n, err := c.run(c.copyInTransactions(topic, ""), newArrivals(), route{})
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	var texts []string
	nodes := []*node{start()}
	for round := range 4 {
		texts = append(texts, c.produce(c.topic, fmt.Sprint("r", round), 4, 200)...)
		joined := start()
		nodes = append(nodes, joined)
		until(t, "the new member has partitions",
			func() bool { return joined.counter("partitions_assigned") > 0 })
		texts = append(texts, c.produce(c.topic, fmt.Sprint("s", round), 4, 200)...)
		if round%2 == 0 && lose != nil {
			lose(nodes...)
		} else if err := nodes[0].stop(); err != nil {
			t.Fatal(err)
		} else {
			nodes = nodes[1:]
		}
	}
	c.copied(4, len(texts)/4)
	c.exactly(topic, texts)
}

// TestTransactionalRefusals checks that a refused record aborts its transaction and is
// dead-lettered, and that all others arrive once.
func TestTransactionalRefusals(t *testing.T) {
	t.Parallel()
	c := newCluster(t, kfake.SeedTopics(1, "orders"), kfake.SeedTopics(1, "out"))
	texts := c.produce("orders", "a", 1, 100)
	c.send(&kgo.Record{Topic: "orders", Value: []byte(strings.Repeat("x", 5000))})
	texts = append(texts, c.produce("orders", "b", 1, 100)...)
	config := strings.Replace(c.copyInTransactions("out", ""), "transactional: true",
		"transactional: true, batch_bytes: 2000B", 1)
	n, err := c.run(config, newArrivals(), route{})
	if err != nil {
		t.Fatal(err)
	}
	c.copied(1, 201)
	c.exactly("out", texts)
	n.counted(201)
	if s := n.engine.Status().Routes[0]; s.Dead != 1 || s.Delivered != 200 {
		t.Errorf("%d delivered and %d dead-lettered, want 200 and 1", s.Delivered, s.Dead)
	}
	if n := n.counter("transactions_aborted"); n == 0 {
		t.Error("no transaction was aborted")
	}
}

// TestTransactionOfNothing checks that batches without kept records commit their offsets.
func TestTransactionOfNothing(t *testing.T) {
	t.Parallel()
	c := newCluster(t, kfake.SeedTopics(2, "orders"), kfake.SeedTopics(1, "out"))
	texts := c.produce("orders", "drop", 2, 100)
	kept := c.produce("orders", "keep", 2, 10)
	config := c.copyInTransactions("out", "processors: [ { where: 'message >= \"keep\"' } ]")
	if _, err := c.run(config, newArrivals(), route{}); err != nil {
		t.Fatal(err)
	}
	c.copied(2, (len(texts)+len(kept))/2)
	c.exactly("out", kept)
}

// TestTransactionInDoubt loses the response to the end of a transaction. The sink must then read
// from the group's offset whether the transaction was committed.
func TestTransactionInDoubt(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name    string
		arrives bool // the request reaches the brokers
	}{{"not committed", false}, {"committed", true}} {
		t.Run(c.name, func(t *testing.T) {
			cl := newCluster(t, kfake.SeedTopics(1, "orders"), kfake.SeedTopics(1, "out"))
			cut := 0
			cl.ControlKey(int16(kmsg.EndTxn), func(kmsg.Request) (kmsg.Response, error, bool) {
				cl.KeepControl()
				if cut++; cut%2 == 1 && cut < 10 {
					return nil, fmt.Errorf("the connection is cut"), !c.arrives
				}
				return nil, nil, false
			})
			texts := cl.produce("orders", "a", 1, 500)
			if _, err := cl.run(cl.copyInTransactions("out", ""), newArrivals(),
				route{}); err != nil {
				t.Fatal(err)
			}
			cl.copied(1, len(texts))
			cl.exactly("out", texts)
		})
	}
}

// TestOpenTransactionOfDeadOwner checks a partition with a dead owner, which has left a transaction
// open. The transaction contains an offset of the group. The next owner must end the transaction,
// instead of waiting for its timeout of 10 minutes.
func TestOpenTransactionOfDeadOwner(t *testing.T) {
	t.Parallel()
	c := newCluster(t, kfake.SeedTopics(1, "orders"), kfake.SeedTopics(1, "out"))
	texts := c.produce("orders", "a", 1, 100)
	c.leaveTransactionOpen("penstock/g/orders/0", "out", 50)
	if _, err := c.run(c.copyInTransactions("out", ""), newArrivals(), route{}); err != nil {
		t.Fatal(err)
	}
	c.copied(1, len(texts))
	c.exactly("out", texts)
}

// leaveTransactionOpen writes a record and an offset of the group in a transaction, and does not
// end it.
func (c *cluster) leaveTransactionOpen(id, topic string, offset int64) {
	c.t.Helper()
	before890 := kversion.V3_7_0()
	client, err := kgo.NewClient(kgo.SeedBrokers(c.seeds()...), kgo.TransactionalID(id),
		kgo.TransactionTimeout(10*time.Minute), kgo.DefaultProduceTopic(topic),
		kgo.MaxVersions(before890))
	if err != nil {
		c.t.Fatal(err)
	}
	defer client.Close()
	if err := client.BeginTransaction(); err != nil {
		c.t.Fatal(err)
	}
	record := kgo.StringRecord("of an open transaction")
	if err := client.ProduceSync(c.t.Context(), record).FirstErr(); err != nil {
		c.t.Fatal(err)
	}
	producer, epoch, err := client.ProducerID(c.t.Context())
	if err != nil {
		c.t.Fatal(err)
	}
	add := kmsg.NewPtrAddOffsetsToTxnRequest()
	add.TransactionalID, add.ProducerID, add.ProducerEpoch, add.Group = id, producer, epoch, c.group
	added, err := add.RequestWith(c.t.Context(), client)
	if err == nil {
		err = kerr.ErrorForCode(added.ErrorCode)
	}
	if err != nil {
		c.t.Fatal(err)
	}
	at := kmsg.NewTxnOffsetCommitRequestTopicPartition()
	at.Offset = offset
	of := kmsg.NewTxnOffsetCommitRequestTopic()
	of.Topic, of.Partitions = c.topic, append(of.Partitions, at)
	q := kmsg.NewPtrTxnOffsetCommitRequest()
	q.TransactionalID, q.ProducerID, q.ProducerEpoch, q.Group = id, producer, epoch, c.group
	q.Topics = append(q.Topics, of)
	res, err := q.RequestWith(c.t.Context(), client)
	if err == nil {
		err = kerr.ErrorForCode(res.Topics[0].Partitions[0].ErrorCode)
	}
	if err != nil {
		c.t.Fatal(err)
	}
}

// TestRefusedTransactions checks that a sink that cannot be transactional with its source is
// refused.
func TestRefusedTransactions(t *testing.T) {
	c := newCluster(t)
	for _, one := range []struct{ source, sink, want string }{
		{"stdin", "a:1", "needs source kafka: its offsets are part of the transaction"},
		{"{ kafka: { brokers: ['b:1'], group: g, topics: [t] } }", "a:1",
			"needs source and sink in one cluster"},
	} {
		_, err := c.run(fmt.Sprintf(`
state: /state
pipelines: { p: { source: %s, sink: { kafka: { brokers: ['%s'], topic: t, transactional: true } } } }
`, one.source, one.sink), newArrivals(), route{})
		if err == nil || !strings.Contains(err.Error(), one.want) {
			t.Errorf("got  %v\nwant %s", err, one.want)
		}
	}
}
