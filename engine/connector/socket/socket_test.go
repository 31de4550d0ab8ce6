package socket_test

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/penstock-io/penstock/engine"
	"github.com/penstock-io/penstock/engine/connector/all"
	"github.com/penstock-io/penstock/engine/connector/memory"
	"github.com/penstock-io/penstock/engine/connector/socket"
	"github.com/penstock-io/penstock/stream"
)

const patience = 30 * time.Second

// service is an engine that reads a socket into a channel.
type service struct {
	t     *testing.T
	e     *engine.Engine
	addr  net.Addr
	got   chan string
	ended chan error
	hold  chan struct{} // the receiver accepts records after it is closed
}

// run starts an engine with the source. options are in YAML.
func run(t *testing.T, options string) *service {
	t.Helper()
	s := &service{t: t, got: make(chan string, 1_000_000), ended: make(chan error, 1), hold: make(chan struct{})}
	var server *socket.Server
	source := socket.Source()
	create := source.New
	source.New = func(o any, h stream.Host) (any, error) {
		v, err := create(o, h)
		server, _ = v.(*socket.Server)
		return v, err
	}
	sink := memory.NewSink(memory.SinkOptions{Deliver: func(ctx context.Context, b *stream.Batch) error {
		select {
		case <-s.hold:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
		for _, i := range b.AppendKept(nil) {
			s.got <- string(b.Text(i))
		}
		return nil
	}})
	text := fmt.Sprintf("{state: %q, pipelines: {p: {source: {socket: {%s}}, sink: memory, batch: {linger: 1ms}, "+
		"flow: {timeout: 60s, abandon: 120s}}}}", t.TempDir(), options)
	cfg, err := engine.Parse([]byte(text), source, sink.Component())
	if err != nil {
		t.Fatal(err)
	}
	if s.e, err = engine.New(cfg, engine.Options{Log: slog.New(slog.NewTextHandler(t.Output(), nil))}); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	stopped := make(chan struct{})
	go func() {
		s.ended <- s.e.Run(ctx)
		close(stopped)
	}()
	t.Cleanup(func() { cancel(); <-stopped })
	select {
	case s.addr = <-server.Bound():
	case err := <-s.ended:
		t.Fatal(err)
	case <-time.After(patience):
		t.Fatal("the socket was not opened")
	}
	return s
}

// dial connects to the source.
func (s *service) dial() net.Conn {
	s.t.Helper()
	c, err := net.Dial(s.addr.Network(), s.addr.String())
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() { _ = c.Close() })
	return c
}

// take receives n records.
func (s *service) take(n int) (out []string) {
	s.t.Helper()
	for range n {
		select {
		case text := <-s.got:
			out = append(out, text)
		case <-time.After(patience):
			s.t.Fatalf("%d of %d records arrived: %.200q", len(out), n, out)
		}
	}
	return out
}

func (s *service) counter(name string) int64 {
	return s.e.Status().Sources[0].Counters[name]
}

func TestStreams(t *testing.T) {
	for _, network := range []string{"tcp", "unix"} {
		t.Run(network, func(t *testing.T) {
			address := "127.0.0.1:0"
			if network == "unix" {
				dir, err := os.MkdirTemp("", "socket") // the path of t.TempDir may be too long
				if err != nil {
					t.Fatal(err)
				}
				t.Cleanup(func() { _ = os.RemoveAll(dir) })
				address = filepath.Join(dir, "s")
			}
			s := run(t, fmt.Sprintf("network: %s, listen: %q, max_record: 100B", network, address))
			close(s.hold)
			a, b := s.dial(), s.dial()
			for i := range 5000 {
				if _, err := fmt.Fprintf(a, "a %d\n", i); err != nil {
					t.Fatal(err)
				}
			}
			if _, err := io.WriteString(b, "first\r\n\n"+strings.Repeat("x", 150)+"\nlast"); err != nil {
				t.Fatal(err)
			}
			if err := b.Close(); err != nil {
				t.Fatal(err)
			}
			got := s.take(5000 + 5)
			var own, other []string
			for _, text := range got {
				if strings.HasPrefix(text, "a ") {
					own = append(own, text)
				} else {
					other = append(other, text)
				}
			}
			if len(own) != 5000 || own[4999] != "a 4999" || !slices.IsSortedFunc(own, func(x, y string) int {
				return len(x) - len(y)
			}) {
				t.Errorf("%d records of one connection, or out of order", len(own))
			}
			if want := []string{"first", "", strings.Repeat("x", 100), strings.Repeat("x", 50),
				"last"}; !slices.Equal(other, want) {
				t.Errorf("arrived %q, want %q", other, want)
			}
		})
	}
}

func TestDatagrams(t *testing.T) {
	s := run(t, "network: udp, listen: '127.0.0.1:0'")
	close(s.hold)
	c := s.dial()
	for _, text := range []string{"one\n", "two\nlines", "three"} {
		if _, err := io.WriteString(c, text); err != nil {
			t.Fatal(err)
		}
	}
	if got := s.take(3); !slices.Equal(got, []string{"one", "two\nlines", "three"}) {
		t.Errorf("arrived %q", got)
	}
}

// TestPushesBack checks that a full source stops reading, and loses no data of a stream.
func TestPushesBack(t *testing.T) {
	s := run(t, "listen: '127.0.0.1:0', memory: 8MiB")
	c := s.dial()
	line := strings.Repeat("x", 1023) + "\n"
	const records = 40 << 10 // 40 MiB
	written := make(chan error, 1)
	go func() {
		for range records / 64 {
			if _, err := io.WriteString(c, strings.Repeat(line, 64)); err != nil {
				written <- err
				return
			}
		}
		written <- nil
	}()
	select {
	case err := <-written:
		t.Fatalf("all was written, with %v, though nothing was delivered", err)
	case <-time.After(300 * time.Millisecond): // there is no event for a blocked write
	}
	close(s.hold)
	if err := <-written; err != nil {
		t.Fatal(err)
	}
	s.take(records)
}

// TestDropsAreCounted checks that each lost datagram is counted. The source drops datagrams while
// its memory is full, and the system drops them while the buffer of the socket is full.
func TestDropsAreCounted(t *testing.T) {
	s := run(t, "network: udp, listen: '127.0.0.1:0', memory: 8MiB")
	c := s.dial()
	text := strings.Repeat("x", 8000)
	const sent = 4000 // 32 MB
	for range sent {
		if _, err := io.WriteString(c, text); err != nil {
			t.Fatal(err)
		}
	}
	close(s.hold)
	tick, late := time.NewTicker(10*time.Millisecond), time.NewTimer(patience)
	defer tick.Stop()
	defer late.Stop()
	for int64(len(s.got))+s.counter("datagrams_dropped") < sent {
		select {
		case <-tick.C:
		case <-late.C:
			t.Fatalf("%d arrived and %d were counted as dropped, of %d", len(s.got),
				s.counter("datagrams_dropped"), sent)
		}
	}
	if s.counter("datagrams_dropped") == 0 {
		t.Error("nothing was dropped: the test shows nothing")
	}
}

// TestDrain checks that a drain delivers complete records of open connections.
func TestDrain(t *testing.T) {
	s := run(t, "listen: '127.0.0.1:0'")
	close(s.hold)
	c := s.dial()
	if _, err := io.WriteString(c, "one\ntwo\nhal"); err != nil {
		t.Fatal(err)
	}
	s.take(2)
	s.e.Drain()
	if err := <-s.ended; err != nil {
		t.Error(err)
	}
	_ = c.SetReadDeadline(time.Now().Add(patience))
	if _, err := c.Read(make([]byte, 1)); err == nil || os.IsTimeout(err) {
		t.Errorf("the connection is still open: %v", err)
	}
}

// TestDrainReceived checks that a drain also delivers the records that the system had received, but
// that the source could not read yet because it was full.
func TestDrainReceived(t *testing.T) {
	s := run(t, "listen: '127.0.0.1:0', memory: 8MiB")
	c := s.dial()
	const size = 1 << 10
	block := strings.Repeat(strings.Repeat("x", size-1)+"\n", 64)
	written := 0 // bytes that the system has taken from the sender
	_ = c.SetWriteDeadline(time.Now().Add(300 * time.Millisecond))
	for {
		n, err := io.WriteString(c, block)
		if written += n; os.IsTimeout(err) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	s.e.Drain()
	close(s.hold)
	if err := <-s.ended; err != nil {
		t.Error(err)
	}
	if want := written / size; len(s.got) != want {
		t.Errorf("%d records arrived, and the sender has sent %d", len(s.got), want)
	}
}

func TestBadOptions(t *testing.T) {
	for options, want := range map[string]string{
		"listen: x":                                             "is not HOST:PORT",
		"listen: '0.0.0.0:1'":                                   "tls.client_ca, or insecure: true",
		"network: udp, listen: ':514'":                          "UDP has no tokens",
		"network: unix, listen: relative":                       "want an absolute path",
		"network: sctp, listen: '127.0.0.1:1'":                  `there is no "sctp"`,
		"network: udp, listen: '127.0.0.1:1', tls: {cert: x}":   "needs network tcp",
		"listen: '127.0.0.1:1', delimiter: tab":                 `there is no "tab"`,
		"listen: '127.0.0.1:1', idle_timeout: 0s":               "want 1s or more",
		"listen: '127.0.0.1:1', connections: 0":                 "want 1 to",
		"listen: '127.0.0.1:1', memory: 1KiB":                   "want 8MiB or more",
		"listen: '127.0.0.1:1', tls: {cert: /none, key: /none}": "no such file",
	} {
		_, err := engine.Parse([]byte("pipelines: {p: {source: {socket: {"+options+
			"}}, sink: drop}}"), all.Components()...)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s:\n%v\nwant %q", options, err, want)
		}
	}
}
