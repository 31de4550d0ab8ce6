package push_test

import (
	"bytes"
	"context"
	"io"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/penstock-io/penstock/engine/kit/buffer"
	"github.com/penstock-io/penstock/engine/kit/intake"
	"github.com/penstock-io/penstock/engine/kit/listen"
	"github.com/penstock-io/penstock/engine/kit/push"
	"github.com/penstock-io/penstock/stream"
	"github.com/penstock-io/penstock/stream/streamtest"
)

const patience = 20 * time.Second

// lineFramer cuts a connection's data into lines.
type lineFramer struct{ *intake.Cutter }

// Frame implements listen.Framer.
func (f lineFramer) Frame(n int) (intake.Records, error) { return f.Cut(n), nil }

// Rest implements listen.Framer.
func (f lineFramer) Rest() intake.Records { return f.End() }

func newSocket(t *testing.T, o *push.SocketOptions, h stream.Host) *push.Socket {
	t.Helper()
	s, err := push.NewSocket(o, 1<<10, intake.Options{Name: "test"}, h)
	if err != nil {
		t.Fatal(err)
	}
	s.Framer = func(string) listen.Framer {
		return lineFramer{intake.NewCutter(1<<10, intake.Delimiter(intake.ByNewline), 0)}
	}
	s.Record = func(out *intake.Records, datagram []byte, _ string) {
		out.Add(bytes.TrimSuffix(datagram, []byte{'\n'}))
	}
	return s
}

// socketPath returns a path for a Unix socket. That of t.TempDir may be too long.
func socketPath(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "push")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return filepath.Join(dir, "s")
}

// TestSocket receives records over each kind of socket and checks that Run returns when its context
// ends, also while a connection is open.
func TestSocket(t *testing.T) {
	for _, network := range []string{"tcp", "udp", "unix", "unixgram"} {
		t.Run(network, func(t *testing.T) {
			o := socketOptions()
			if o.Network = network; strings.HasPrefix(network, "unix") {
				o.Listen = socketPath(t)
			}
			h := streamtest.NewHost(t)
			s := newSocket(t, o, h)
			ctx, cancel := context.WithCancel(t.Context())
			ended := make(chan error, 1)
			go func() { ended <- s.Run(ctx) }()
			var addr net.Addr
			select {
			case addr = <-s.Bound():
			case err := <-ended:
				t.Fatal(err)
			}
			c, err := net.Dial(addr.Network(), addr.String())
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
			for _, text := range []string{"one\n", "two\n"} {
				if _, err := c.Write([]byte(text)); err != nil {
					t.Fatal(err)
				}
			}
			got := readAll(t, s, 2)
			if !slices.Equal(got, []string{"one", "two"}) {
				t.Errorf("records %q", got)
			}
			cancel()
			select {
			case err := <-ended:
				if err != nil {
					t.Errorf("Run: %v", err)
				}
			case <-time.After(patience):
				t.Fatal("Run does not return")
			}
		})
	}
}

// readAll reads n records from a source.
func readAll(t *testing.T, s stream.Source, n int) (records []string) {
	t.Helper()
	reader, err := s.Open(t.Context(), stream.OpenOptions{
		Route:  streamtest.Route,
		Resume: func(string) (stream.Mark, bool) { return stream.Mark{}, false },
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	for len(records) < n {
		b := stream.NewBatch(stream.BatchLimits{Bytes: 1 << 10, Records: 10})
		if err := reader.Read(ctx, b); err != nil {
			t.Fatalf("%v after %d of %d records", err, len(records), n)
		}
		b.Split()
		for i := range b.Records {
			records = append(records, string(b.Text(i)))
		}
	}
	return records
}

// TestReplacedConnections checks clients that each send a record at once, while only one connection
// is allowed. A new connection may take the place of an idle one, but not of one whose record has
// arrived and has not been read yet.
func TestReplacedConnections(t *testing.T) {
	o := socketOptions()
	o.Connections = 1
	s := newSocket(t, o, streamtest.NewHost(t))
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- s.Run(ctx) }()
	addr := <-s.Bound()
	dial := func() net.Conn {
		c, err := net.Dial(addr.Network(), addr.String())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = c.Close() })
		return c
	}
	idle := dial()
	const clients = 100
	for range clients {
		c := dial()
		if _, err := c.Write([]byte("record\n")); err != nil {
			t.Fatal(err)
		}
		_ = c.Close() // its data still arrives
	}
	readAll(t, s, clients)
	_ = idle.SetReadDeadline(time.Now().Add(patience))
	if _, err := idle.Read(make([]byte, 1)); err != io.EOF {
		t.Errorf("the idle connection was not closed: %v", err)
	}
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

// TestSocketErrors checks that Run returns an error with the reason if it cannot listen.
func TestSocketErrors(t *testing.T) {
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	for name, c := range map[string]struct {
		change func(o *push.SocketOptions)
		want   string
	}{
		"port in use": {func(o *push.SocketOptions) { o.Listen = taken.Addr().String() }, "listen: "},
		"no folder": {func(o *push.SocketOptions) { o.Network, o.Listen = "unix", "/missing/folder/s" },
			"listen: "},
		"no folder for datagrams": {func(o *push.SocketOptions) {
			o.Network, o.Listen = "unixgram", "/missing/folder/s"
		}, "listen: "},
		"certificate deleted": {func(o *push.SocketOptions) {
			o.TLS = listen.TLS{Cert: "/missing", Key: "/missing"}
		}, "tls.cert: open /missing"},
	} {
		t.Run(name, func(t *testing.T) {
			o := socketOptions()
			c.change(o)
			s := newSocket(t, o, streamtest.NewHost(t))
			checkError(t, s.Run(t.Context()), c.want)
			select {
			case addr := <-s.Bound():
				t.Errorf("bound to %v", addr)
			default:
			}
		})
	}
}

// TestOnce checks that sources without an end cannot be opened in a finite run, with a buffer or
// without.
func TestOnce(t *testing.T) {
	for _, ack := range []string{buffer.Delivered, buffer.Buffered} {
		socket, server := socketOptions(), serverOptions()
		socket.Ack, server.Ack = ack, ack
		served, err := push.NewServer(server, intake.Options{Name: "test"}, quiet())
		if err != nil {
			t.Fatal(err)
		}
		for _, s := range []stream.Source{newSocket(t, socket, quiet()), served} {
			if r, err := s.Open(t.Context(), stream.OpenOptions{Once: true}); err != listen.ErrOnce {
				t.Errorf("ack: %s: Open = %v, %v; want %v", ack, r, err, listen.ErrOnce)
			}
		}
	}
}

// TestWrongHost checks that a source needs the host of a source.
func TestWrongHost(t *testing.T) {
	h := struct{ stream.Host }{streamtest.NewHost(t)}
	_, err := push.NewServer(serverOptions(), intake.Options{}, h)
	checkError(t, err, "want a stream.SourceHost")
	_, err = push.NewSocket(socketOptions(), 1<<10, intake.Options{}, h)
	checkError(t, err, "want a stream.SourceHost")
}
