package postgres_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"sync"
	"testing"
	"time"

	"github.com/penstock-io/penstock/engine/connector/connectortest"
	"github.com/penstock-io/penstock/engine/connector/postgres"
	"github.com/penstock-io/penstock/stream"
)

// wire is a proxy in front of the server. It can cut all connections. It can also hold back the
// client's data from a given word on, like a network with late packets.
type wire struct {
	listener net.Listener
	server   string

	mu    sync.Mutex // guards the fields below
	hold  []byte     // data from the first chunk that contains this word is held back; nil for none
	held  chan struct{}
	pass  chan struct{} // closed when held data may pass
	conns []net.Conn
	ended bool // new connections are closed at once
}

func newWire(t *testing.T, server string) *wire {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	u, err := url.Parse(server)
	if err != nil {
		t.Fatal(err)
	}
	w := &wire{listener: l, server: u.Host, held: make(chan struct{}, 64),
		pass: make(chan struct{})}
	var all sync.WaitGroup
	all.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			all.Go(func() { w.serve(c) })
		}
	})
	t.Cleanup(func() {
		l.Close()
		w.release()
		w.mu.Lock()
		w.ended = true
		w.mu.Unlock()
		w.cut()
		all.Wait()
	})
	return w
}

func (w *wire) url(t *testing.T, server string) string {
	t.Helper()
	u, err := url.Parse(server)
	if err != nil {
		t.Fatal(err)
	}
	u.Host = w.listener.Addr().String()
	return u.String()
}

func (w *wire) serve(client net.Conn) {
	server, err := net.Dial("tcp", w.server)
	if err != nil {
		client.Close()
		return
	}
	w.mu.Lock()
	w.conns = append(w.conns, client, server)
	ended := w.ended
	w.mu.Unlock()
	if ended {
		w.cut()
	}
	var both sync.WaitGroup
	both.Go(func() { io.Copy(client, server); client.Close() })
	both.Go(func() {
		buf := make([]byte, 64<<10)
		for {
			n, err := client.Read(buf)
			w.mu.Lock()
			hold, pass := w.hold, w.pass
			w.mu.Unlock()
			if hold != nil && bytes.Contains(buf[:n], hold) {
				w.held <- struct{}{}
				<-pass
			}
			if _, failed := server.Write(buf[:n]); failed != nil || err != nil {
				server.Close()
				return
			}
		}
	})
	both.Wait()
}

func (w *wire) holdBack(word string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.hold = []byte(word)
}

func (w *wire) release() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.hold = nil
	select {
	case <-w.pass:
	default:
		close(w.pass)
	}
}

func (w *wire) cut() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, c := range w.conns {
		c.Close()
	}
	w.conns = nil
}

// TestLateCommit kills a process with a delayed COMMIT, lets the next process load and deliver, and
// then releases the delayed bytes. It checks that the batch is stored once, however the server
// treats these bytes.
func TestLateCommit(t *testing.T) {
	t.Parallel()
	server := server.Get(t)
	// The proxy holds back the client's data from the given word on. In the case "ledger", the
	// word is the name of the partition p, as a parameter of the ledger's statement. A word of the
	// statement's SQL text cannot be used, because the lanes also send this text without
	// parameters, in the background after Load.
	for name, word := range map[string]string{"COMMIT": "COMMIT\x00", "COPY": "FROM STDIN",
		"ledger": "\x00\x00\x00\x01p"} {
		for _, patient := range []bool{true, false} {
			t.Run(fmt.Sprintf("%s, fenced by force: %v", name, patient), func(t *testing.T) {
				d := fresh(t, server)
				d.exec(t, "CREATE TABLE lines (message text, _extra json)")
				w := newWire(t, server.URL)
				o := d.options("lines")
				o.URL = w.url(t, server.URL)
				old := open(t, o)
				b := func(s *opened) *stream.Batch {
					s.rows.Next = 0
					return s.batch([]field{{"message", stream.Text, "once"}})
				}
				w.holdBack(word)
				ctx, die := context.WithCancelCause(context.Background())
				died := make(chan error, 1)
				go func() {
					batch := b(old)
					err := batch.Encode(old.Sink)
					if err == nil {
						_, err = old.lanes[0].Worker.Deliver(ctx, stream.Attempt{Value: batch})
					}
					died <- err
				}()
				select {
				case <-w.held:
				case err := <-died:
					t.Fatalf("the delivery ended before its data was held back: %v", err)
				}
				die(errors.New("killed"))
				if err := <-died; err == nil {
					t.Error("a delivery that was killed said that it was delivered")
				}
				direct := d.options("lines")
				var next *opened
				// the server does not know of the death yet: the fence must end the open
				// transaction
				if patient {
					next = open(t, direct)
					w.release()
				} else {
					w.release()
					next = open(t, direct)
				}
				if err := next.deliver(t, b(next)); err != nil {
					t.Fatal(err)
				}
				if err := next.deliver(t, b(next)); err != nil {
					t.Fatal(err)
				}
				if got := d.column(t, "SELECT message FROM lines"); len(got) != 1 {
					t.Errorf("the record is there %d times", len(got))
				}
			})
		}
	}
}

// TestTwoAttemptsAtOnce delivers each batch over all connections at the same time, in every second
// round during a Compact. Each batch must be written once.
func TestTwoAttemptsAtOnce(t *testing.T) {
	d := fresh(t, server.Get(t))
	d.exec(t, "CREATE TABLE lines (message text, _extra json)")
	s := open(t, d.options("lines"))
	for round := range 20 {
		b := s.batch([]field{{"message", stream.Text, "once"}})
		if err := b.Encode(s.Sink); err != nil {
			t.Fatal(err)
		}
		var all sync.WaitGroup
		for _, l := range s.lanes {
			all.Go(func() {
				if _, err := l.Worker.Deliver(t.Context(), stream.Attempt{Value: b}); err != nil {
					t.Errorf("round %d: %v", round, err)
				}
			})
		}
		if round%2 == 0 {
			all.Go(func() {
				mark := stream.Mark{Part: *b.Spans[0].Part, Watermark: b.Spans[0].From}
				if err := s.Compact(t.Context(), []stream.Mark{mark}); err != nil {
					t.Errorf("Compact: %v", err)
				}
			})
		}
		all.Wait()
	}
	if got := d.column(t, "SELECT message FROM lines"); len(got) != 20 {
		t.Errorf("%d rows, want 20", len(got))
	}
}

// TestServerAway checks that Load waits for a server that is not running yet.
func TestServerAway(t *testing.T) {
	t.Parallel()
	server := connectortest.StartServer(t, "postgres", "psql")
	d := fresh(t, server)
	server.Stop(t)
	loaded := make(chan error, 1)
	s := newSink(t, d.options("lines"), connectortest.NewHost(t))
	defer s.Close()
	if err := s.Open(t.Context(), stream.SinkOptions{Pipeline: "p", Route: "r",
		Lanes: func([]stream.Lane) {}}); err != nil {
		t.Fatal(err)
	}
	go func() {
		_, err := s.Load(t.Context())
		loaded <- err
	}()
	timer := time.NewTimer(300 * time.Millisecond)
	defer timer.Stop()
	select {
	case err := <-loaded:
		t.Fatalf("Load returned while the server was down: %v", err)
	case <-timer.C:
	}
	server.Start(t)
	if err := <-loaded; err != nil {
		t.Error(err)
	}
}

var _ stream.TransactionalSink = (*postgres.Sink)(nil)
