package endtoend

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/penstock-io/penstock/engine/connector/connectortest"
)

// speedRecords is the number of records read by each side of a pair, of 150 bytes each.
const speedRecords = 2_000_000

// topics is a real broker with a filled topic "in".
type topics struct {
	b      *testing.B
	url    string
	admin  *kadm.Client
	config string
	runs   int
}

func startTopics(b *testing.B) *topics {
	b.Helper()
	url := os.Getenv("PENSTOCK_KAFKA_BROKER")
	if url == "" {
		url = connectortest.StartServer(b, "kafka", "java").URL
	}
	client := kafkaClient(b, []string{url})
	s := &topics{b: b, url: url, admin: kadm.NewClient(client)}
	s.config = filepath.Join(b.TempDir(), "penstock.yaml")
	s.create("in")
	value := make([]byte, 150)
	for part := 0; part < speedRecords; part += 10_000 {
		var batch []*kgo.Record
		for n := part; n < part+10_000; n++ {
			record := &kgo.Record{Topic: "in", Partition: int32(n % kafkaPartitions)}
			record.Value = fmt.Appendf(value[:0:0], "%010d %0139d", n, n)
			batch = append(batch, record)
		}
		if err := client.ProduceSync(b.Context(), batch...).FirstErr(); err != nil {
			b.Fatal(err)
		}
	}
	return s
}

// create makes an empty topic. It returns when the broker's metadata contains the topic, which may
// be some time after the creation.
func (s *topics) create(name string) {
	s.b.Helper()
	_, _ = s.admin.DeleteTopics(s.b.Context(), name)
	made := false
	for begin := time.Now(); ; <-time.After(10 * time.Millisecond) {
		var err error
		if !made {
			_, err = s.admin.CreateTopic(s.b.Context(), kafkaPartitions, 1, nil, name)
			made = err == nil
		} else {
			var ends kadm.ListedOffsets
			if ends, err = s.admin.ListEndOffsets(s.b.Context(), name); err == nil {
				err = ends.Error()
			}
			if err == nil {
				return
			}
		}
		if time.Since(begin) > 30*time.Second {
			s.b.Fatal(err)
		}
	}
}

// group returns a new group.
func (s *topics) group() string {
	s.runs++
	return fmt.Sprintf("speed-%d-%d", os.Getpid(), s.runs)
}

// penstock reads the topic into a sink.
func (s *topics) penstock(sink string) time.Duration {
	write(s.b, s.config, fmt.Sprintf(`
state: ./state
pipelines:
  speed:
    source: { kafka: { brokers: [%q], topics: [in], group: %s } }
    sink: %s
`, s.url, s.group(), sink))
	return copied(s.b, s.config, speedRecords)
}

// bare reads the topic with the client library alone, and copies it to a topic if that is named.
func (s *topics) bare(target string) time.Duration {
	s.b.Helper()
	return runBare(s.b, "kafka", s.url, s.group(), target)
}

// BenchmarkKafkaDrop reads a topic of a real broker and drops its records. The speed is relative to
// a bare consumer of the same client library, and its median should be at least 0.7. The times are
// those of whole processes, which join a consumer group and leave it.
func BenchmarkKafkaDrop(b *testing.B) {
	s := startTopics(b)
	pairs(b, "of-a-bare-consumer",
		func() time.Duration { return s.bare("") },
		func() time.Duration { return s.penstock("drop") })
}

// BenchmarkKafkaCopy copies a topic of a real broker. The speed is relative to a bare loop that
// consumes and produces with the same client library. Its median should be at least 0.6.
func BenchmarkKafkaCopy(b *testing.B) { benchmarkCopy(b, false) }

// BenchmarkKafkaTransactions copies a topic of a real broker in transactions. The speed is relative
// to a bare loop that consumes and produces without transactions.
func BenchmarkKafkaTransactions(b *testing.B) { benchmarkCopy(b, true) }

func benchmarkCopy(b *testing.B, transactional bool) {
	s := startTopics(b)
	sink := fmt.Sprintf("{ kafka: { brokers: [%q], topic: out, format: raw, transactional: %v } }",
		s.url, transactional)
	pairs(b, "of-consume-and-produce",
		func() time.Duration { s.create("out"); return s.bare("out") },
		func() time.Duration { s.create("out"); return s.penstock(sink) })
}
