package kafka_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

const small = "batch: { records: 10, linger: 0s }"

// runOnce runs an engine to the end of the topics, and returns the error of the run.
func (c *cluster) runOnce(got *arrivals, source string) error {
	c.t.Helper()
	return c.start(got, route{source: source, pipeline: small, once: true}).wait()
}

// TestStartLatest checks that a start at the end of the log is committed at once, so that a restart
// does not begin at a later end.
func TestStartLatest(t *testing.T) {
	startLatest(t, newCluster(t, kfake.SeedTopics(1, "orders")))
}

func startLatest(t *testing.T, c *cluster) {
	c.produce(c.topic, "old", 1, 20)
	got := newArrivals()
	if err := c.runOnce(got, c.topics()+", start: latest"); err != nil {
		t.Fatal(err)
	}
	if at, _ := c.committed(c.group, c.topic, 0); at != 20 {
		t.Fatalf("committed %d, want 20", at)
	}
	texts := c.produce(c.topic, "new", 1, 20)
	if err := c.runOnce(got, c.topics()+", start: latest"); err != nil {
		t.Fatal(err)
	}
	checkAll(t, got, texts)
}

// TestPattern checks that exactly the topics that match a pattern are read.
func TestPattern(t *testing.T) {
	c := newCluster(t, kfake.SeedTopics(2, "log.a", "log.b", "other"))
	texts := slices.Concat(c.produce("log.a", "a", 2, 30), c.produce("log.b", "b", 2, 30))
	c.produce("other", "x", 2, 30)
	got := newArrivals()
	if err := c.runOnce(got, `, topic_pattern: 'log\..*'`); err != nil {
		t.Fatal(err)
	}
	checkAll(t, got, texts)
}

// TestTransactions checks that records of aborted transactions are not read. The committed offset
// must also be after the control record at the end of the log. Otherwise the group would always lag
// by one record.
func TestTransactions(t *testing.T) {
	transactions(t, newCluster(t, kfake.SeedTopics(1, "orders")))
}

func transactions(t *testing.T, c *cluster) {
	client, err := kgo.NewClient(kgo.SeedBrokers(c.seeds()...), kgo.TransactionalID(c.group),
		kgo.DefaultProduceTopic(c.topic))
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	for i, end := range []kgo.TransactionEndTry{kgo.TryCommit, kgo.TryAbort} {
		if err := client.BeginTransaction(); err != nil {
			t.Fatal(err)
		}
		for k := range 5 {
			r := kgo.StringRecord(fmt.Sprintf("tx-%d-%d", i, k))
			if err := client.ProduceSync(t.Context(), r).FirstErr(); err != nil {
				t.Fatal(err)
			}
		}
		if err := client.EndTransaction(t.Context(), end); err != nil {
			t.Fatal(err)
		}
	}
	got := newArrivals()
	if err := c.runOnce(got, c.topics()); err != nil {
		t.Fatal(err)
	}
	checkAll(t, got, []string{"tx-0-0", "tx-0-1", "tx-0-2", "tx-0-3", "tx-0-4"})
	if at, _ := c.committed(c.group, c.topic, 0); at != 12 {
		t.Errorf("committed %d, want 12: two transactions of five records, each with its marker", at)
	}
}

// TestRecreatedTopic checks that the source reads a topic from the start if it is deleted and
// recreated while it is read.
func TestRecreatedTopic(t *testing.T) {
	recreatedTopic(t, newCluster(t, kfake.SeedTopics(1, "orders")))
}

func recreatedTopic(t *testing.T, c *cluster) {
	texts := c.produce(c.topic, "a", 1, 50)
	got := newArrivals()
	n := c.start(got, route{source: c.topics(), pipeline: small})
	until(t, "the first topic", func() bool { return got.distinct() == len(texts) })
	until(t, "its commit", func() bool { at, _ := c.committed(c.group, c.topic, 0); return at == 50 })
	c.recreate(c.topic, 1)
	texts = append(texts, c.produce(c.topic, "b", 1, 20)...)
	until(t, "the second topic", func() bool { return got.distinct() == len(texts) })
	checkAll(t, got, texts)
	_ = n
}

// TestUnknownTopicID checks that the route restarts with a new client if the brokers keep refusing
// the topic id of a client, although the topic exists. This is the state of a client that has
// fetched its metadata before a topic was recreated, and its positions afterwards.
func TestUnknownTopicID(t *testing.T) {
	t.Parallel()
	c := newCluster(t, kfake.SeedTopics(1, "orders"))
	texts := c.produce("orders", "a", 1, 50)
	var clients atomic.Int64
	c.ControlKey(int16(kmsg.JoinGroup), func(q kmsg.Request) (kmsg.Response, error, bool) {
		c.KeepControl()
		if q.(*kmsg.JoinGroupRequest).MemberID == "" {
			clients.Add(1)
		}
		return nil, nil, false
	})
	c.ControlKey(int16(kmsg.Fetch), func(q kmsg.Request) (kmsg.Response, error, bool) {
		c.KeepControl()
		if clients.Load() > 1 {
			return nil, nil, false
		}
		return refuseFetch(q, kerr.UnknownTopicID)
	})
	got := newArrivals()
	c.start(got, route{source: ", topics: [orders]", pipeline: small})
	until(t, "the records", func() bool { return got.distinct() == len(texts) })
	checkAll(t, got, texts)
}

// refuseFetch answers a fetch with an error for each partition.
func refuseFetch(q kmsg.Request, err *kerr.Error) (kmsg.Response, error, bool) {
	req, res := q.(*kmsg.FetchRequest), q.ResponseKind().(*kmsg.FetchResponse)
	for _, t := range req.Topics {
		rt := kmsg.NewFetchResponseTopic()
		rt.Topic, rt.TopicID = t.Topic, t.TopicID
		for _, p := range t.Partitions {
			rp := kmsg.NewFetchResponseTopicPartition()
			rp.Partition, rp.ErrorCode = p.Partition, err.Code
			rt.Partitions = append(rt.Partitions, rp)
		}
		res.Topics = append(res.Topics, rt)
	}
	return res, nil, len(req.Topics) > 0
}

func (c *cluster) recreate(topic string, partitions int32) {
	c.t.Helper()
	if _, err := c.admin.DeleteTopic(c.t.Context(), topic); err != nil {
		c.t.Fatal(err)
	}
	if _, err := c.admin.CreateTopic(c.t.Context(), partitions, 1, nil, topic); err != nil {
		c.t.Fatal(err)
	}
	c.client.PurgeTopicsFromClient(topic)
}

// commitAs stores an offset the way other software does.
func (c *cluster) commitAs(topic string, offset int64, metadata string) {
	c.t.Helper()
	list := make(kadm.Offsets)
	list.Add(kadm.Offset{Topic: topic, Partition: 0, At: offset, LeaderEpoch: -1, Metadata: metadata})
	if err := c.admin.CommitAllOffsets(c.t.Context(), "g", list); err != nil {
		c.t.Fatal(err)
	}
}

// TestStoredPositions checks that the source resumes at an offset that another tool has set for the
// group. If the group's offset does not fit the log, the source must not read the partition, and
// must report a remedy. With truncated: earliest, it reads from the start of the log instead.
func TestStoredPositions(t *testing.T) {
	for _, c := range []struct {
		name     string
		prepare  func(c *cluster)
		options  string
		want     []string // numbers of the records
		complain string
	}{
		{name: "reset by a tool", prepare: func(c *cluster) { c.commitAs("orders", 15, "") }, want: numbers(15, 20)},
		{
			name:     "metadata of another topic",
			prepare:  func(c *cluster) { c.commitAs("orders", 15, "penstock1.AAAAAAAA") },
			complain: `partition "orders/0" is not read: the group's offset 15 was stored for another topic of that name, or changed since`,
		},
		{
			name:     "beyond the end",
			prepare:  func(c *cluster) { c.commitAs("orders", 99, "") },
			complain: `partition "orders/0" is not read: the group's offset is 99, but the log ends at 20`,
		},
		{
			name: "beyond the end, earliest", options: ", truncated: earliest",
			prepare: func(c *cluster) { c.commitAs("orders", 99, "") }, want: numbers(0, 20),
		},
		{
			name: "deleted by retention",
			prepare: func(c *cluster) {
				c.commitAs("orders", 5, "")
				c.deleteBefore("orders", 12)
			},
			complain: `partition "orders/0" is not read: 7 offsets from 5 on were deleted before they were read`,
		},
		{
			name: "deleted by retention, earliest", options: ", truncated: earliest",
			prepare: func(c *cluster) {
				c.commitAs("orders", 5, "")
				c.deleteBefore("orders", 12)
			},
			want:     numbers(12, 20),
			complain: `partition "orders/0": 7 offsets from 5 on were deleted before they were read`,
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			cl := newCluster(t, kfake.SeedTopics(1, "orders"))
			cl.produce("orders", "a", 1, 20)
			c.prepare(cl)
			before, _ := cl.committed("g", "orders", 0)
			got := newArrivals()
			err := cl.runOnce(got, ", topics: [orders]"+c.options)
			checkAll(t, got, c.want)
			switch {
			case c.complain == "" && err != nil:
				t.Errorf("Run = %v", err)
			case c.complain != "" && (err == nil || !strings.Contains(err.Error(), c.complain)):
				t.Errorf("Run = %v, want %s", err, c.complain)
			}
			at, _ := cl.committed("g", "orders", 0)
			if len(c.want) == 0 && at != before {
				t.Errorf("the group's offset was changed from %d to %d", before, at)
			}
			if len(c.want) > 0 && at != 20 {
				t.Errorf("committed %d, want 20", at)
			}
		})
	}
}

func numbers(from, to int) (out []string) {
	for i := from; i < to; i++ {
		out = append(out, fmt.Sprintf("a-0-%05d", i))
	}
	return out
}

func (c *cluster) deleteBefore(topic string, offset int64) {
	c.t.Helper()
	list := make(kadm.Offsets)
	list.AddOffset(topic, 0, offset, -1)
	res, err := c.admin.DeleteRecords(c.t.Context(), list)
	if err == nil {
		err = res.Error()
	}
	if err != nil {
		c.t.Fatal(err)
	}
}

// TestDeletedWhileRead checks that the source stops and reports a partition if retention deletes
// records before they are read.
func TestDeletedWhileRead(t *testing.T) {
	t.Parallel()
	c := newCluster(t, kfake.SeedTopics(1, "orders"))
	got := newArrivals()
	c.produce("orders", "a", 1, 10)
	n := c.start(got, route{source: ", topics: [orders]", pipeline: small})
	until(t, "the records", func() bool { return got.distinct() == 10 })
	c.ControlKey(int16(kmsg.Fetch), func(q kmsg.Request) (kmsg.Response, error, bool) {
		c.KeepControl()
		return refuseFetch(q, kerr.OffsetOutOfRange)
	})
	until(t, "the stop", func() bool { return n.counter("partitions_stopped") > 0 })
}

// TestMetadataTooLarge checks that the source shortens the metadata for a broker with a lower
// limit, and that the commit succeeds.
func TestMetadataTooLarge(t *testing.T) {
	c := newCluster(t, kfake.SeedTopics(1, "orders"))
	texts := c.produce("orders", "a", 1, 2000)
	c.ControlKey(int16(kmsg.OffsetCommit), func(q kmsg.Request) (kmsg.Response, error, bool) {
		c.KeepControl()
		req, res := q.(*kmsg.OffsetCommitRequest), q.ResponseKind().(*kmsg.OffsetCommitResponse)
		large := false
		for _, t := range req.Topics {
			rt := kmsg.NewOffsetCommitResponseTopic()
			rt.Topic, rt.TopicID = t.Topic, t.TopicID
			for _, p := range t.Partitions {
				rp := kmsg.NewOffsetCommitResponseTopicPartition()
				rp.Partition = p.Partition
				if p.Metadata != nil && len(*p.Metadata) > 200 {
					rp.ErrorCode, large = kerr.OffsetMetadataTooLarge.Code, true
				}
				rt.Partitions = append(rt.Partitions, rp)
			}
			res.Topics = append(res.Topics, rt)
		}
		return res, nil, large
	})
	got := newArrivals()
	got.set(func(text string) error { // every 20th batch of one record is stuck
		if strings.HasSuffix(text, "0") {
			return errRefused
		}
		return nil
	})
	r := route{source: ", topics: [orders]", pipeline: "batch: { records: 1, linger: 0s }", workers: 4}
	n := c.start(got, r)
	until(t, "the others", func() bool { return got.distinct() == len(texts)*9/10 })
	until(t, "a shorter commit", func() bool {
		_, metadata := c.committed("g", "orders", 0)
		return metadata != "" && n.counter("commit_ranges_cut") > 0
	})
	if err := n.stop(); err != nil {
		t.Fatal(err)
	}
	got.set(nil)
	c.start(got, r)
	until(t, "the rest", func() bool { return got.distinct() == len(texts) })
	checkAll(t, got, texts)
}

// TestNewPartitions checks that partitions added to a topic at run time are read, too.
func TestNewPartitions(t *testing.T) {
	c := newCluster(t, kfake.SeedTopics(1, "orders"))
	texts := c.produce("orders", "a", 1, 10)
	got := newArrivals()
	first := c.start(got, route{source: ", topics: [orders]", pipeline: small})
	until(t, "the first partition", func() bool { return got.distinct() == len(texts) })
	if _, err := c.admin.CreatePartitions(t.Context(), 2, "orders"); err != nil {
		t.Fatal(err)
	}
	if err := first.stop(); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	c.client.ForceMetadataRefresh()
	for ctx.Err() == nil {
		m, err := c.admin.Metadata(ctx, "orders")
		if err == nil && len(m.Topics["orders"].Partitions) == 3 {
			break
		}
	}
	c.client.PurgeTopicsFromClient("orders")
	c.send(&kgo.Record{Topic: "orders", Partition: 2, Value: []byte("third")})
	if err := c.runOnce(got, ", topics: [orders]"); err != nil {
		t.Fatal(err)
	}
	checkAll(t, got, append(texts, "third"))
}

// TestLatestOfNewPartitions checks that `start: latest` does not skip records of partitions and
// topics that are created while the source runs. The source finds them only later.
func TestLatestOfNewPartitions(t *testing.T) {
	t.Parallel()
	c := newCluster(t, kfake.SeedTopics(1, "log.a"))
	c.produce("log.a", "old", 1, 10)
	got := newArrivals()
	c.start(got, route{source: `, topic_pattern: 'log\..*', start: latest`, pipeline: small})
	until(t, "the start", func() bool {
		at, _ := c.committed("g", "log.a", 0)
		return at == 10
	})
	if _, err := c.admin.CreatePartitions(t.Context(), 1, "log.a"); err != nil {
		t.Fatal(err)
	}
	if _, err := c.admin.CreateTopic(t.Context(), 1, 1, nil, "log.b"); err != nil {
		t.Fatal(err)
	}
	other := withClient(t, &cluster{t: t}, c.seeds())
	other.send(&kgo.Record{Topic: "log.a", Partition: 1, Value: []byte("partition")},
		&kgo.Record{Topic: "log.b", Value: []byte("topic")})
	refused := false
	c.ControlKey(int16(kmsg.Fetch), func(q kmsg.Request) (kmsg.Response, error, bool) {
		c.KeepControl()
		if refused {
			return nil, nil, false
		}
		res, err, ok := refuseFetch(q, kerr.NotLeaderForPartition) // the client refreshes its metadata
		refused = ok
		return res, err, ok
	})
	until(t, "new assignments", func() bool {
		a, _ := c.committed("g", "log.a", 1)
		b, _ := c.committed("g", "log.b", 0)
		return a >= 0 && b >= 0
	})
	c.send(&kgo.Record{Topic: "log.a", Value: []byte("last")})
	all := []string{"partition", "topic", "last"} // partitions are not in order of each other
	until(t, "all records", func() bool { return len(got.missing(all)) == 0 })
	checkAll(t, got, all)
}

// TestLatestOfRecreatedTopic checks that `start: latest` does not skip records of a topic that is
// recreated while the source runs. The route restarts when the source notices this.
func TestLatestOfRecreatedTopic(t *testing.T) {
	t.Parallel()
	c := newCluster(t, kfake.SeedTopics(1, "orders"))
	c.produce("orders", "old", 1, 10)
	got := newArrivals()
	c.start(got, route{source: `, topics: [orders], start: latest`, pipeline: small})
	until(t, "the start", func() bool {
		at, _ := c.committed("g", "orders", 0)
		return at == 10
	})
	c.recreate("orders", 1)
	texts := c.produce("orders", "new", 1, 20)
	until(t, "a new position", func() bool {
		at, _ := c.committed("g", "orders", 0)
		return at == 20
	})
	c.send(&kgo.Record{Topic: "orders", Value: []byte("last")})
	until(t, "the last record", func() bool { return len(got.missing([]string{"last"})) == 0 })
	checkAll(t, got, append(texts, "last"))
}
