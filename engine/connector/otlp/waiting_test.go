package otlp_test

import (
	"context"
	"net"
	"strings"
	"sync/atomic"
	"testing"

	collector "go.opentelemetry.io/proto/otlp/collector/logs/v1"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// countingConn counts the bytes that are written to a connection.
type countingConn struct {
	net.Conn
	written *atomic.Int64
}

// Write implements net.Conn.
func (c countingConn) Write(p []byte) (int, error) {
	n, err := c.Conn.Write(p)
	c.written.Add(int64(n))
	return n, err
}

// TestWaitingRequests checks that a request that waits for memory holds only a small part of its
// message, even if the client sent much data before.
func TestWaitingRequests(t *testing.T) {
	const memory, clients = 8 << 20, 10
	s := run(t, "memory: 8MiB, deadline: 2s", false)
	var written atomic.Int64
	dial := func(ctx context.Context, address string) (net.Conn, error) {
		c, err := new(net.Dialer).DialContext(ctx, "tcp", address)
		return countingConn{c, &written}, err
	}
	client := collector.NewLogsServiceClient(s.connect(t, grpc.WithContextDialer(dial)))
	large := request(strings.Repeat("x", 3<<20)) // the record is refused: it is over max_record
	for range clients {
		if _, err := client.Export(within(t), large); err != nil {
			t.Fatal(err)
		}
	}
	room, err := s.server.Reserve(within(t), memory)
	if err != nil {
		t.Fatal(err)
	}
	defer room.Release()
	before := written.Load()
	codesSeen := make(chan codes.Code, clients)
	for range clients {
		go func() {
			_, err := client.Export(within(t), large)
			codesSeen <- status.Code(err)
		}()
	}
	for range clients {
		if code := <-codesSeen; code != codes.ResourceExhausted {
			t.Errorf("answered %v, want ResourceExhausted", code)
		}
	}
	const window = 128 << 10
	if sent, most := written.Load()-before, int64(clients*2*window); sent > most {
		t.Errorf("%d waiting requests have sent %d bytes, want at most %d", clients, sent, most)
	}
}

// TestStop checks that a request that waits for its delivery is answered when the source stops.
func TestStop(t *testing.T) {
	s := run(t, "", true)
	answered := exportWaiting(t, s, s.client(t))
	s.stop()
	err := <-answered
	if status.Code(err) != codes.Unavailable || retryInfo(err) == 0 ||
		!strings.Contains(err.Error(), "the outcome is unknown") {
		t.Errorf("answered %v, want Unavailable with RetryInfo", err)
	}
}

// TestNoMessage checks the status of a call that ends without a message.
func TestNoMessage(t *testing.T) {
	s := run(t, "", false)
	call, err := s.connect(t).NewStream(within(t), &grpc.StreamDesc{ClientStreams: true},
		collector.LogsService_Export_FullMethodName)
	if err != nil {
		t.Fatal(err)
	}
	if err := call.CloseSend(); err != nil {
		t.Fatal(err)
	}
	err = call.RecvMsg(&collector.ExportLogsServiceResponse{})
	if status.Code(err) != codes.InvalidArgument || !strings.Contains(err.Error(), "no message") {
		t.Errorf("answered %v, want InvalidArgument", err)
	}
}
