package kafka

import (
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/penstock-io/penstock/stream"
	"github.com/penstock-io/penstock/stream/streamtest"
)

// TestHealth checks the times at which the source reports a failure.
func TestHealth(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := DefaultSourceOptions()
		o.Brokers = []string{"a:9092", "b:9092"}
		s := &GroupSource{o: *o, readers: make(map[string]*reader)}
		r := &reader{s: s, health: &health{last: time.Now()}}
		s.readers["p/main"] = r
		check := func(when string, want ...string) {
			t.Helper()
			err := s.Failure()
			if (err != nil) != (len(want) > 0) {
				t.Fatalf("%s: %v", when, err)
			}
			for _, text := range want {
				if !strings.Contains(err.Error(), text) {
					t.Errorf("%s: %v, want %q", when, err, text)
				}
			}
		}
		refused := errors.New("connection refused")
		read := func(err error) { r.health.OnBrokerRead(kgo.BrokerMetadata{}, 0, 0, 0, 0, err) }
		time.Sleep(silentAfter - 1)
		read(errors.New("connection reset"))
		check("before a minute")
		time.Sleep(time.Nanosecond)
		check("after a minute", "no broker of a:9092, b:9092 has responded for 1m0s")
		r.health.OnBrokerConnect(kgo.BrokerMetadata{}, 0, nil, refused)
		check("after a failed connection", "has responded for 1m0s", "connection refused")
		r.health.OnBrokerConnect(kgo.BrokerMetadata{}, 0, nil, nil)
		check("connected without a response", "has responded for 1m0s")
		read(nil)
		check("after a response")
		time.Sleep(2 * silentAfter)
		check("later", "has responded for 2m0s")
		r.closing = true
		check("closed")
		r.closing, s.o.SessionTimeout = false, 5*time.Minute
		check("a long session")
	})
}

// TestHealthOfClient checks that a response to the client of a reader ends the failure.
func TestHealthOfClient(t *testing.T) {
	fake, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.SeedTopics(1, "orders"))
	if err != nil {
		t.Fatal(err)
	}
	defer fake.Close()
	o := DefaultSourceOptions()
	o.Brokers, o.Topics, o.Group = fake.ListenAddrs(), []string{"orders"}, "g"
	s, err := NewSource(*o, streamtest.NewHost(t))
	if err != nil {
		t.Fatal(err)
	}
	r := newReader(s, stream.OpenOptions{}, o.Group)
	options, err := s.clientOptions(r)
	if err != nil {
		t.Fatal(err)
	}
	r.health.last = time.Now().Add(-2 * silentAfter)
	client, err := kgo.NewClient(options...)
	if err != nil {
		t.Fatal(err)
	}
	defer client.CloseAllowingRebalance()
	if err := client.Ping(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := r.health.failure(o.Brokers, silentAfter); err != nil {
		t.Errorf("after a response: %v", err)
	}
}
