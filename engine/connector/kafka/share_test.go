package kafka_test

import (
	"context"
	"testing"

	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
)

// TestShareGroupsAcceptUnsettledRecords checks the reason for ADR 44: in a share group, the client
// library acknowledges all records of a poll at the next poll, even if their locks were renewed. If
// this test fails, the library has changed, and the source can get an option for share groups.
func TestShareGroupsAcceptUnsettledRecords(t *testing.T) {
	t.Parallel()
	c := newCluster(t, kfake.SeedTopics(1, "orders"))
	c.SetGroupConfigs("share", map[string]string{"share.auto.offset.reset": "earliest"})
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	join := func() *kgo.Client {
		client, err := kgo.NewClient(kgo.SeedBrokers(c.seeds()...), kgo.ShareGroup("share"),
			kgo.ConsumeTopics("orders"))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(client.Close)
		return client
	}
	poll := func(client *kgo.Client, want string) *kgo.Record {
		t.Helper()
		for {
			got := client.PollFetches(ctx)
			if records := got.Records(); len(records) == 1 && string(records[0].Value) == want {
				return records[0]
			} else if len(records) > 0 || ctx.Err() != nil {
				t.Fatalf("got %d records, %v, want %q", len(records), got.Err(), want)
			}
		}
	}
	client := join()
	c.send(&kgo.Record{Topic: "orders", Value: []byte("unsettled")})
	poll(client, "unsettled").Ack(kgo.AckRenew)
	c.send(&kgo.Record{Topic: "orders", Value: []byte("next")})
	poll(client, "next")
	if err := client.FlushAcks(ctx); err != nil {
		t.Fatal(err)
	}
	client.Close() // gives the records of the last poll back
	poll(join(), "next")
}
