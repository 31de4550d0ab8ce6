package kafka_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// copyWithDeadLetters returns the configuration of a transactional copy of JSON records, with dead
// letters in the topic "dead".
func (c *cluster) copyWithDeadLetters() string {
	text := c.copyInTransactions("out", "processors: [ { parse: { format: json } } ]\n    guard: { off: true }")
	return strings.Replace(text, "transactional: true",
		"transactional: true, key: 'id / 1', batch_bytes: 2000B, dead_letter_topic: dead", 1)
}

func header(r *kgo.Record, name string) string {
	for _, h := range r.Headers {
		if h.Key == name {
			return string(h.Value)
		}
	}
	return ""
}

// TestDeadLetterTopic checks that each record refused by a processor, the sink or the brokers is in
// the dead-letter topic once, with the reason. Records that are too large for that topic are there
// without their values.
func TestDeadLetterTopic(t *testing.T) {
	t.Parallel()
	c := newCluster(t, kfake.SeedTopics(1, "orders", "out", "dead"))
	large := `{"id": 4, "text": "` + strings.Repeat("x", 5000) + `"}`
	var sent []*kgo.Record
	for _, text := range []string{`{"id": 1}`, `{"id": `, `{"id": "two"}`, large, `{"id": 5}`} {
		sent = append(sent, &kgo.Record{Topic: "orders", Value: []byte(text)})
	}
	c.send(sent...)
	n, err := c.run(c.copyWithDeadLetters(), newArrivals(), route{})
	if err != nil {
		t.Fatal(err)
	}
	c.copied(1, len(sent))
	c.exactly("out", []string{`{"id": 1}`, `{"id": 5}`})
	n.counted(5)
	if s := n.engine.Status().Routes[0]; s.Dead != 3 || s.Delivered != 2 {
		t.Errorf("%d delivered and %d dead-lettered, want 2 and 3", s.Delivered, s.Dead)
	}
	if n := n.counter("dead_letters_sent"); n != 3 {
		t.Errorf("dead_letters_sent is %d, want 3", n)
	}
	letters := c.consumeCommitted("dead")
	slices.SortFunc(letters, func(a, b *kgo.Record) int {
		return strings.Compare(header(a, "penstock.offset"), header(b, "penstock.offset"))
	})
	want := []struct{ offset, value, reason, omitted string }{
		{"1", `{"id": `, "parse", ""},
		{"2", `{"id": "two"}`, "key:", ""},
		{"3", "", "MESSAGE_TOO_LARGE", fmt.Sprint(len(large))},
	}
	if len(letters) != len(want) {
		t.Fatalf("%d dead letters, want %d", len(letters), len(want))
	}
	for i, w := range want {
		r := letters[i]
		if string(r.Value) != w.value || header(r, "penstock.offset") != w.offset ||
			!strings.Contains(header(r, "penstock.reason"), w.reason) ||
			header(r, "penstock.omitted_bytes") != w.omitted ||
			header(r, "penstock.route") != "p/main" || header(r, "penstock.partition") != "orders/0" ||
			!strings.Contains(header(r, "penstock.id"), "@") {
			t.Errorf("dead letter %d: %q %v, want %v", i, r.Value, r.Headers, w)
		}
	}
}

// TestDeadLettersOnce checks that each dead letter is in the topic once, although members come and
// go, sessions end, and responses to the requests that end transactions are lost.
func TestDeadLettersOnce(t *testing.T) {
	t.Parallel()
	c := newCluster(t, kfake.SeedTopics(4, "orders"), kfake.SeedTopics(1, "out", "dead"))
	start := func() *node {
		n, err := c.run(c.copyWithDeadLetters(), newArrivals(), route{})
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	ends := 0
	c.ControlKey(int16(kmsg.EndTxn), func(kmsg.Request) (kmsg.Response, error, bool) {
		c.KeepControl()
		if ends++; ends%7 == 0 {
			return nil, errors.New("the connection is cut"), ends%2 == 0
		}
		return nil, nil, false
	})
	var good, bad []string
	produce := func() {
		var records []*kgo.Record
		for p := range int32(4) {
			for i := range 100 {
				id := len(good) + len(bad)
				text := fmt.Sprintf(`{"id": %d}`, id)
				switch i % 10 {
				case 3:
					text = fmt.Sprintf(`{"id": %d`, id)
				case 7:
					text = fmt.Sprintf(`{"id": "%d"}`, id)
				}
				if i%10 == 3 || i%10 == 7 {
					bad = append(bad, text)
				} else {
					good = append(good, text)
				}
				records = append(records,
					&kgo.Record{Topic: "orders", Partition: p, Value: []byte(text)})
			}
		}
		c.send(records...)
	}
	nodes := []*node{start()}
	for round := range 4 {
		produce()
		joined := start()
		nodes = append(nodes, joined)
		until(t, "the new member has partitions",
			func() bool { return joined.counter("partitions_assigned") > 0 })
		produce()
		if round%2 == 0 {
			c.loseSession(nodes...)
			continue
		}
		if err := nodes[0].stop(); err != nil {
			t.Fatal(err)
		}
		nodes = nodes[1:]
	}
	c.copied(4, (len(good)+len(bad))/4)
	c.exactly("out", good)
	c.exactly("dead", bad)
}

// TestDeadLetterTopicFails checks that nothing is lost if the brokers refuse a dead letter several
// times.
func TestDeadLetterTopicFails(t *testing.T) {
	t.Parallel()
	c := newCluster(t, kfake.SeedTopics(1, "orders", "out", "dead"))
	var refused atomic.Int64
	c.ControlKey(int16(kmsg.Produce), func(q kmsg.Request) (kmsg.Response, error, bool) {
		c.KeepControl()
		req := q.(*kmsg.ProduceRequest)
		dead := func(t kmsg.ProduceRequestTopic) bool { return isTopic(c, &t, "dead") }
		if !slices.ContainsFunc(req.Topics, dead) || refused.Load() == 4 {
			return nil, nil, false
		}
		refused.Add(1)
		res := req.ResponseKind().(*kmsg.ProduceResponse)
		for _, from := range req.Topics {
			topic := kmsg.NewProduceResponseTopic()
			topic.Topic, topic.TopicID = from.Topic, from.TopicID
			for _, p := range from.Partitions {
				part := kmsg.NewProduceResponseTopicPartition()
				part.Partition, part.ErrorCode = p.Partition, kerr.PolicyViolation.Code
				topic.Partitions = append(topic.Partitions, part)
			}
			res.Topics = append(res.Topics, topic)
		}
		return res, nil, true
	})
	c.send(&kgo.Record{Topic: "orders", Value: []byte(`{"id": "bad"}`)},
		&kgo.Record{Topic: "orders", Value: []byte(`{"id": 1}`)})
	if _, err := c.run(c.copyWithDeadLetters(), newArrivals(), route{}); err != nil {
		t.Fatal(err)
	}
	c.copied(1, 2)
	if n := refused.Load(); n != 4 {
		t.Errorf("%d refusals, want 4", n)
	}
	c.exactly("out", []string{`{"id": 1}`})
	if letters := c.consumeCommitted("dead"); len(letters) != 1 {
		t.Errorf("%d dead letters, want 1", len(letters))
	}
}

// isTopic reports whether a part of a request concerns a topic, given by name or id.
func isTopic(c *cluster, t *kmsg.ProduceRequestTopic, name string) bool {
	if t.Topic != "" {
		return t.Topic == name
	}
	return c.TopicInfo(name).TopicID == t.TopicID
}

// TestRefusedDeadLetterTopics checks that an unusable dead-letter topic is refused.
func TestRefusedDeadLetterTopics(t *testing.T) {
	c := newCluster(t)
	for _, one := range []struct{ name, source, sink, want string }{
		{"not transactional", "topics: [in]", "dead_letter_topic: dead",
			"kafka.dead_letter_topic: needs transactional: true; without it, dead letters are in " +
				"files, see dead_letters"},
		{"topic of the sink", "topics: [in]", "transactional: true, dead_letter_topic: t",
			`kafka.dead_letter_topic: "t" is the topic of the sink; name another topic`},
		{"topic of the source", "topics: [in]", "transactional: true, dead_letter_topic: in",
			`dead_letter_topic: "in" is a topic of the source, so that dead letters would be read ` +
				`again; name another topic`},
		{"pattern of the source", "topic_pattern: 'orders.*'",
			"transactional: true, dead_letter_topic: orders-dead",
			`dead_letter_topic: "orders-dead" is a topic of the source`},
		{"no name", "topics: [in]", "transactional: true, dead_letter_topic: 'a b'",
			`kafka.dead_letter_topic: "a b" holds ' '; names have letters, digits, '.', '_' and '-'`},
	} {
		t.Run(one.name, func(t *testing.T) {
			_, err := c.run(fmt.Sprintf(`
state: /state
pipelines:
  p:
    source: { kafka: { brokers: ['a:1'], group: g, %s } }
    sink: { kafka: { brokers: ['a:1'], topic: t, %s } }
`, one.source, one.sink), newArrivals(), route{})
			if err == nil || !strings.Contains(err.Error(), one.want) {
				t.Errorf("got  %v\nwant %s", err, one.want)
			}
		})
	}
}
