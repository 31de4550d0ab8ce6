package endtoend

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"syscall"
	"testing"
	"time"

	natsgo "github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/twmb/franz-go/pkg/kgo"
)

// barePrograms are minimal programs that only move records with a client library. Benchmarks
// compare runs of penstock with runs of them. Their arguments are the address of the server, a
// consumer group and a target.
var barePrograms = map[string]func(ctx context.Context, address, group, target string) error{
	"kafka":         bareKafka,
	"kafka-member":  bareKafkaMember,
	"nats-log":      bareNATSLog,
	"nats-consumer": bareNATSConsumer,
	"http":          bareHTTP,
	"tcp":           bareTCP,
}

// runBare runs a bare program in a separate process, like penstock, and returns its time.
func runBare(b *testing.B, name, address, group, target string) time.Duration {
	b.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = bareEnv(name, address, group, target)
	start := time.Now()
	if out, err := cmd.CombinedOutput(); err != nil {
		b.Fatalf("%s: %v\n%s", name, err, out)
	}
	return time.Since(start)
}

// bareEnv returns the environment in which this test binary runs a bare program.
func bareEnv(name, address, group, target string) []string {
	return append(os.Environ(), "PENSTOCK_BARE_PROGRAM="+name, "PENSTOCK_BARE_ADDRESS="+address,
		"PENSTOCK_BARE_GROUP="+group, "PENSTOCK_BARE_TARGET="+target)
}

// bareProgram is the main function of the process of a bare program. It returns the exit code.
func bareProgram(name string) int {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	run := barePrograms[name]
	err := run(ctx, os.Getenv("PENSTOCK_BARE_ADDRESS"), os.Getenv("PENSTOCK_BARE_GROUP"),
		os.Getenv("PENSTOCK_BARE_TARGET"))
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

// bareKafka reads the topic "in" in a consumer group, and produces to the topic target if that is
// not empty.
func bareKafka(ctx context.Context, address, group, target string) error {
	client, err := kgo.NewClient(kgo.SeedBrokers(address), kgo.ConsumeTopics("in"),
		kgo.ConsumerGroup(group), kgo.DisableAutoCommit(),
		kgo.FetchIsolationLevel(kgo.ReadCommitted()),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	if err != nil {
		return err
	}
	defer client.Close()
	var failed error
	for n := 0; n < speedRecords; {
		got := client.PollFetches(ctx)
		if err := got.Err(); err != nil {
			return err
		}
		n += got.NumRecords()
		if target == "" {
			continue
		}
		got.EachRecord(func(r *kgo.Record) {
			client.Produce(ctx, &kgo.Record{Topic: target, Value: r.Value},
				func(_ *kgo.Record, err error) {
					if err != nil {
						failed = err // the library calls one promise at a time
					}
				})
		})
	}
	if err := client.Flush(ctx); err != nil {
		return err
	}
	if failed != nil {
		return failed
	}
	return client.CommitUncommittedOffsets(ctx)
}

// bareKafkaMember reads the topic "in" in a group until SIGTERM. It commits once a second.
func bareKafkaMember(ctx context.Context, address, group, _ string) error {
	ctx, stop := signal.NotifyContext(ctx, syscall.SIGTERM)
	defer stop()
	client, err := kgo.NewClient(kgo.SeedBrokers(address), kgo.ConsumeTopics("in"),
		kgo.ConsumerGroup(group), kgo.AutoCommitInterval(time.Second),
		kgo.Balancers(kgo.CooperativeStickyBalancer()),
		kgo.FetchIsolationLevel(kgo.ReadCommitted()),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	if err != nil {
		return err
	}
	defer client.Close()
	for ctx.Err() == nil {
		if err := client.PollFetches(ctx).Err(); err != nil && ctx.Err() == nil {
			return err
		}
	}
	return nil
}

// bareNATSLog reads the stream "in" by sequence, without acknowledgements.
func bareNATSLog(ctx context.Context, address, _, _ string) error {
	return withJetStream(address, func(js jetstream.JetStream) error {
		c, err := js.OrderedConsumer(ctx, "in", jetstream.OrderedConsumerConfig{})
		if err != nil {
			return err
		}
		return eachMessage(c, func(jetstream.Msg) error { return nil })
	})
}

// bareNATSConsumer reads the stream "in" by a durable consumer and acknowledges each message.
func bareNATSConsumer(ctx context.Context, address, group, _ string) error {
	return withJetStream(address, func(js jetstream.JetStream) error {
		c, err := js.CreateConsumer(ctx, "in", jetstream.ConsumerConfig{
			Durable: group, AckPolicy: jetstream.AckExplicitPolicy, MaxAckPending: 20_000,
		})
		if err != nil {
			return err
		}
		return eachMessage(c, func(m jetstream.Msg) error { return m.Ack() })
	})
}

func withJetStream(address string, use func(jetstream.JetStream) error) error {
	conn, err := natsgo.Connect(address)
	if err != nil {
		return err
	}
	defer conn.Close()
	js, err := jetstream.New(conn)
	if err != nil {
		return err
	}
	if err := use(js); err != nil {
		return err
	}
	return conn.Flush()
}

// eachMessage calls use with each message of the stream.
func eachMessage(c jetstream.Consumer, use func(jetstream.Msg) error) error {
	list, err := c.Messages(jetstream.PullMaxMessages(1000))
	if err != nil {
		return err
	}
	defer list.Stop()
	for n := range natsSpeedMessages {
		m, err := list.Next(jetstream.NextMaxWait(time.Minute))
		if err == nil {
			err = use(m)
		}
		if err != nil {
			return fmt.Errorf("message %d: %w", n, err)
		}
	}
	return nil
}
