package kafka

import (
	"context"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/penstock-io/penstock/stream"
)

// TestCommitThatIsNotSent checks a commit for which the client library sends no request, because it
// has no record of a partition in the transaction. The sink must not count it as a commit, and the
// engine must take the partition again.
func TestCommitThatIsNotSent(t *testing.T) {
	t.Parallel()
	c, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.SeedTopics(1, "out"))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	p := &transactions{part: stream.Partition{Name: "orders/0"}}
	p.producer, err = kgo.NewClient(kgo.SeedBrokers(c.ListenAddrs()...), oldTransactions(),
		kgo.TransactionalID("t"), kgo.WithHooks(p), kgo.DefaultProduceTopic("out"))
	if err != nil {
		t.Fatal(err)
	}
	defer p.producer.Close()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for _, produced := range []bool{true, false} {
		if err := p.producer.BeginTransaction(); err != nil {
			t.Fatal(err)
		}
		if produced {
			one := kgo.StringRecord("one")
			if err := p.producer.ProduceSync(ctx, one).FirstErr(); err != nil {
				t.Fatal(err)
			}
		}
		if err := p.commit(ctx, progress{}); isFencing(err) == produced {
			t.Errorf("a record was produced: %v; commit returned %v", produced, err)
		}
	}
}
