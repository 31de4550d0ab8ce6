package kafka_test

import (
	"context"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"

	"github.com/penstock-io/penstock/engine/connector/kafka"
	"github.com/penstock-io/penstock/stream"
	"github.com/penstock-io/penstock/stream/streamtest"
)

// silenceable is a listener whose connections drop everything that is written to them while silent
// is set.
type silenceable struct {
	net.Listener
	silent *atomic.Bool
}

func (l silenceable) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	return silenceableConn{c, l.silent}, err
}

type silenceableConn struct {
	net.Conn
	silent *atomic.Bool
}

func (c silenceableConn) Write(b []byte) (int, error) {
	if c.silent.Load() {
		return len(b), nil
	}
	return c.Conn.Write(b)
}

// newSilenceable starts a cluster that no longer responds once silent is set. Its connections stay
// open.
func newSilenceable(t *testing.T, silent *atomic.Bool) *cluster {
	return newCluster(t, kfake.SeedTopics(1, "orders"),
		kfake.ListenFn(func(network, address string) (net.Listener, error) {
			l, err := net.Listen(network, address)
			return silenceable{l, silent}, err
		}))
}

// TestStopWhileSilent checks that a route stops soon although the brokers no longer respond.
func TestStopWhileSilent(t *testing.T) {
	t.Parallel()
	var silent atomic.Bool
	c := newSilenceable(t, &silent)
	texts := c.produce("orders", "a", 1, 100)
	got := newArrivals()
	n := c.start(got, route{source: c.topics()})
	until(t, "the commit", func() bool {
		at, _ := c.committed(c.group, "orders", 0)
		return at == int64(len(texts))
	})
	silent.Store(true)
	began := time.Now()
	if err := n.stop(); err != nil {
		t.Error(err)
	}
	if took := time.Since(began); took > 9*time.Second {
		t.Errorf("it took %v to stop, want about 5s", took)
	}
}

// noAssignments fails if the engine's side of a group is needed.
type noAssignments struct{ stream.Assignments }

// TestCanceledWhileConnecting checks that source and sink end an attempt to open a connection when
// its context ends, although the brokers do not respond.
func TestCanceledWhileConnecting(t *testing.T) {
	t.Parallel()
	var silent atomic.Bool
	c := newSilenceable(t, &silent)
	silent.Store(true)
	for name, open := range map[string]func(context.Context, *testing.T) error{
		"source": func(ctx context.Context, t *testing.T) error {
			o := kafka.DefaultSourceOptions()
			o.Brokers, o.Topics, o.Group = c.seeds(), []string{"orders"}, "g"
			s, err := kafka.NewSource(*o, streamtest.NewHost(t))
			if err != nil {
				return err
			}
			_, err = s.Open(ctx, stream.OpenOptions{Assignments: noAssignments{}})
			return err
		},
		"sink": func(ctx context.Context, t *testing.T) error {
			o := kafka.DefaultSinkOptions()
			o.Brokers, o.Topic = c.seeds(), "orders"
			s, err := kafka.NewSink(*o, streamtest.NewHost(t))
			if err != nil {
				return err
			}
			return s.Open(ctx, stream.SinkOptions{})
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
			defer cancel()
			began := time.Now()
			if err := open(ctx, t); err == nil {
				t.Error("it has opened")
			}
			if took := time.Since(began); took > 4*time.Second {
				t.Errorf("it took %v", took)
			}
		})
	}
}
