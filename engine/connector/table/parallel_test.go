package table_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/penstock-io/penstock/engine/connector/connectortest"
	"github.com/penstock-io/penstock/engine/connector/table"
	"github.com/penstock-io/penstock/stream"
)

// pairing is a proxy in front of a server. For each connection, it counts the responses that
// contain rows. It holds back response k of one connection until another one has also reached its
// response k.
type pairing struct {
	done <-chan struct{} // ends all waits

	mu      sync.Mutex      // guards the fields below
	reached []int           // connections that have reached response k
	both    []chan struct{} // closed when two have
}

// newPairing returns a proxy that pairs the first responses of the connections (see pairing).
// rounds is their number. It forwards all later responses at once.
func newPairing(ctx context.Context, rounds int) *pairing {
	p := &pairing{done: ctx.Done(), reached: make([]int, rounds)}
	for range rounds {
		p.both = append(p.both, make(chan struct{}))
	}
	return p
}

// listen starts the proxy and returns its address.
func (p *pairing) listen(t *testing.T, server string) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var running sync.WaitGroup
	t.Cleanup(func() { // the source has closed its connections before
		l.Close()
		running.Wait()
	})
	running.Go(func() {
		for {
			near, err := l.Accept()
			if err != nil {
				return
			}
			far, err := net.Dial("tcp", server)
			if err != nil {
				near.Close()
				continue
			}
			var asked atomic.Bool
			running.Go(func() { carry(far, near, func([]byte) { asked.Store(true) }) })
			responses := 0
			running.Go(func() {
				carry(near, far, func(data []byte) {
					if bytes.Contains(data, []byte("row ")) && asked.Swap(false) {
						p.meet(responses)
						responses++
					}
				})
			})
		}
	})
	return l.Addr().String()
}

// meet waits until two connections have reached response k.
func (p *pairing) meet(k int) {
	p.mu.Lock()
	if k >= len(p.reached) {
		p.mu.Unlock()
		return
	}
	if p.reached[k]++; p.reached[k] == 2 {
		close(p.both[k])
	}
	p.mu.Unlock()
	select {
	case <-p.both[k]:
	case <-p.done:
	}
}

// carry copies data from one connection to the other until one ends. The last argument is called
// with the data of each read, before this data is written.
func carry(to, from net.Conn, before func(data []byte)) {
	defer to.Close()
	defer from.Close()
	buf := make([]byte, 64<<10)
	for {
		n, err := from.Read(buf)
		before(buf[:n])
		if _, failed := to.Write(buf[:n]); failed != nil || err != nil {
			return
		}
	}
}

// parallel checks that two partitions of a table are read concurrently: both have a query in
// flight in each round trip to the server. So on a distant server, reading both takes as long as
// reading one. It also checks that a single connection reads the same rows.
func parallel(t *testing.T, server *connectortest.Server) {
	const rows, batch = 3000, 100
	db := openPostgres(t, server.URL)
	execute(t, db, "DROP SCHEMA public CASCADE")
	execute(t, db, "CREATE SCHEMA public")
	execute(t, db, "CREATE TABLE t (id bigint PRIMARY KEY, v text)")
	execute(t, db, fmt.Sprintf("INSERT INTO t SELECT n, 'row ' || n FROM generate_series(0, %d) n",
		rows-1))
	for connections, rounds := range map[int]int{1: 0, 2: rows / 2 / batch} {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		p := newPairing(ctx, rounds)
		u, err := url.Parse(server.URL)
		if err != nil {
			t.Fatal(err)
		}
		u.Host = p.listen(t, u.Host)
		s := newSource(t, connectortest.NewHost(t), func(o *table.Options) {
			o.Postgres, o.Table, o.Split, o.Connections = u.String(), "t", rows/2, connections
		})
		r, err := s.Open(ctx, stream.OpenOptions{
			Once: true, Resume: func(string) (stream.Mark, bool) { return stream.Mark{}, false },
		})
		if err != nil {
			t.Fatal(err)
		}
		defer r.Close()
		got, parts := 0, make(map[string]bool)
		for {
			b := stream.NewBatch(stream.BatchLimits{Records: batch})
			err := r.Read(ctx, b)
			for _, s := range b.Spans {
				parts[s.Part.ID] = true
			}
			got += b.Origins
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil {
				t.Fatalf("%d connections, after %d rows: %v", connections, got, err)
			}
		}
		if got != rows || len(parts) != 2 {
			t.Errorf("%d connections: %d rows of %d partitions, want %d of 2", connections, got,
				len(parts), rows)
		}
		p.mu.Lock()
		if slices.ContainsFunc(p.reached, func(n int) bool { return n != 2 }) {
			t.Errorf("connections with a query in each round: %v, want 2", p.reached)
		}
		p.mu.Unlock()
	}
}
