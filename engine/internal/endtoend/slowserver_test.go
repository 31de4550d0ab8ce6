package endtoend

import (
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/penstock-io/penstock/engine/connector/connectortest"
)

// slowServer is a real HTTP server on loopback that serves one batch at a time, in order of
// arrival. Service times are exponentially distributed.
type slowServer struct {
	t     *testing.T
	rate  float64 // batches per second
	addr  string
	board *board

	mu   sync.Mutex
	rnd  *rand.Rand
	free time.Time // time at which the queue is empty
	hang chan struct{}
	srv  *http.Server
}

// board records the deliveries of all servers of a run.
type board struct {
	mu      sync.Mutex
	done    map[int64]time.Time     // by planned number
	latency map[int64]time.Duration // since the planned arrival
}

func newBoard() *board {
	return &board{done: make(map[int64]time.Time), latency: make(map[int64]time.Duration)}
}

func newSlowServer(t *testing.T, b *board, rate float64, seed uint64) *slowServer {
	s := &slowServer{t: t, rate: rate, board: b, rnd: rand.New(rand.NewPCG(seed, 12)),
		addr: connectortest.FreeAddress(t)}
	s.revive()
	t.Cleanup(s.die)
	return s
}

func (s *slowServer) url() string { return "http://" + s.addr + "/in" }

// revive starts serving, at the same address as before.
func (s *slowServer) revive() {
	l, err := net.Listen("tcp", s.addr)
	if err != nil {
		s.t.Fatal(err)
	}
	srv := &http.Server{Handler: http.HandlerFunc(s.serve)}
	s.mu.Lock()
	s.srv, s.free = srv, time.Now()
	s.mu.Unlock()
	go func() {
		if err := srv.Serve(l); !errors.Is(err, http.ErrServerClosed) {
			s.t.Error(err)
		}
	}()
}

// die closes every connection; queued batches are lost.
func (s *slowServer) die() {
	s.mu.Lock()
	srv := s.srv
	s.mu.Unlock()
	srv.Close()
}

// hangUntil accepts requests without answering until the result is called.
func (s *slowServer) hangUntil() (wake func()) {
	c := make(chan struct{})
	s.mu.Lock()
	s.hang = c
	s.mu.Unlock()
	return func() {
		s.mu.Lock()
		s.hang = nil
		s.mu.Unlock()
		close(c)
	}
}

func (s *slowServer) serve(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return
	}
	s.mu.Lock()
	hang := s.hang
	now := time.Now()
	if s.free.Before(now) {
		s.free = now
	}
	s.free = s.free.Add(time.Duration(s.rnd.ExpFloat64() / s.rate * float64(time.Second)))
	wait := time.NewTimer(time.Until(s.free))
	s.mu.Unlock()
	defer wait.Stop()
	if hang != nil {
		select {
		case <-hang:
		case <-r.Context().Done():
			return
		}
	}
	select {
	case <-wait.C:
	case <-r.Context().Done():
		return
	}
	s.board.deliver(s.t, body)
}

// deliver records each record of a body: "number planned".
func (b *board) deliver(t *testing.T, body []byte) {
	now := time.Now()
	b.mu.Lock()
	defer b.mu.Unlock()
	for line := range strings.Lines(string(body)) {
		number, planned, _ := strings.Cut(strings.TrimSpace(line), " ")
		n, err1 := strconv.ParseInt(number, 10, 64)
		at, err2 := strconv.ParseInt(planned, 10, 64)
		if err1 != nil || err2 != nil {
			t.Errorf("a record that reads %q", line)
			return
		}
		if _, again := b.done[n]; !again {
			b.done[n] = now
			b.latency[n] = now.Sub(time.Unix(0, at))
		}
	}
}

// delivered returns the number of first deliveries in [from, to).
func (b *board) delivered(from, to time.Time) (n int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, at := range b.done {
		if !at.Before(from) && at.Before(to) {
			n++
		}
	}
	return n
}
