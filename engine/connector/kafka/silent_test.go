package kafka_test

import (
	"context"
	"errors"
	"net"
	"testing"
	"time"

	"github.com/penstock-io/penstock/engine/connector/kafka"
	"github.com/penstock-io/penstock/stream"
	"github.com/penstock-io/penstock/stream/streamtest"
)

// TestSilentBroker checks that Open of source and sink returns soon after the end of its context,
// if a broker accepts connections and does not answer. So a stop of the route is not delayed.
func TestSilentBroker(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	accepted := make(chan net.Conn, 100)
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			accepted <- c
		}
	}()
	broker := []string{l.Addr().String()}
	for name, open := range map[string]func(context.Context) error{
		"sink": func(ctx context.Context) error {
			o := kafka.DefaultSinkOptions()
			o.Brokers, o.Topic = broker, "orders"
			s, err := kafka.NewSink(*o, streamtest.NewHost(t))
			if err != nil {
				return err
			}
			return errors.Join(s.Open(ctx, stream.SinkOptions{Lanes: func([]stream.Lane) {}}), s.Close())
		},
		"source": func(ctx context.Context) error {
			o := kafka.DefaultSourceOptions()
			o.Brokers, o.Topics, o.Group = broker, []string{"orders"}, "g"
			s, err := kafka.NewSource(*o, streamtest.NewHost(t))
			if err != nil {
				return err
			}
			_, err = s.Open(ctx, stream.OpenOptions{
				Route: streamtest.Route, Assignments: struct{ stream.Assignments }{},
			})
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			ctx, cancel := context.WithCancel(t.Context())
			ended := make(chan error, 1)
			go func() { ended <- open(ctx) }()
			defer (<-accepted).Close()
			cancel()
			select {
			case err := <-ended:
				if err == nil {
					t.Error("Open returned no error")
				}
			case <-time.After(5 * time.Second):
				t.Error("Open has not returned 5 s after the end of its context")
				<-ended
			}
		})
	}
}
