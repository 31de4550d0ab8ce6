// Package receiver is an HTTP receiver that runs in a separate process. It counts the numbered
// lines in the requests that it accepts. It can respond slowly, process few requests at once, or
// alternate between healthy and failing phases. [Start] starts it.
package receiver

import (
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/penstock-io/penstock/bench/load"
)

// Behaviour configures a receiver. With the zero value it accepts each request without delay, and
// does not limit concurrent requests.
type Behaviour struct {
	Records int64         // numbers 0 to Records-1 are expected
	Delay   time.Duration // duration of a request
	Slots   int           // maximum concurrent requests; others wait; 0 means no limit
	// Phase is the length of a phase. Healthy and failing phases alternate. The first phase is
	// healthy and begins with the first request. If Phase is 0, the receiver is always healthy.
	Phase time.Duration
}

// Stats has the counts of a receiver.
type Stats struct {
	Unique, Lost, Repeated, Unknown int64
	Requests, Refused               int64
	MostInFlight                    int64 // maximum number of concurrent requests
	// Times of arrival of the first and the last record, in seconds since 1970. Repeated and
	// unknown records do not count.
	FirstUnix, LastUnix float64
	// Latency from the writing of a line to its arrival; 0 if lines contain no time.
	P50ms, P99ms float64
}

type server struct {
	Behaviour
	marks    *load.Marks
	slots    chan time.Time // time since which each slot is free
	sleep    func(time.Duration)
	bodies   sync.Pool
	begun    atomic.Int64 // time of the first request, in ns since 1970
	first    atomic.Int64
	last     atomic.Int64
	requests atomic.Int64
	refused  atomic.Int64
	inFlight atomic.Int64
	most     atomic.Int64
}

// Main runs a receiver. It prints its URL, and ends when its standard input ends.
func Main(args []string) error {
	s := &server{sleep: time.Sleep, bodies: sync.Pool{New: func() any {
		b := make([]byte, 0, 512<<10)
		return &b
	}}}
	flags := flag.NewFlagSet("receive", flag.ContinueOnError)
	flags.Int64Var(&s.Records, "records", 0, "")
	flags.DurationVar(&s.Delay, "delay", 0, "")
	flags.IntVar(&s.Slots, "slots", 0, "")
	flags.DurationVar(&s.Phase, "phase", 0, "")
	if err := flags.Parse(args); err != nil {
		return err
	}
	s.marks = load.NewMarks(s.Records)
	if s.Slots > 0 {
		s.slots = places(s.Slots)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	mux := http.NewServeMux()
	mux.HandleFunc("/stats", s.tell)
	mux.HandleFunc("/", s.take)
	fmt.Println("http://" + l.Addr().String())
	go func() {
		io.Copy(io.Discard, os.Stdin)
		os.Exit(0)
	}()
	return http.Serve(l, mux)
}

func (s *server) take(w http.ResponseWriter, r *http.Request) {
	s.requests.Add(1)
	now := s.inFlight.Add(1)
	defer s.inFlight.Add(-1)
	for most := s.most.Load(); now > most &&
		!s.most.CompareAndSwap(most, now); most = s.most.Load() {
	}
	s.begun.CompareAndSwap(0, time.Now().UnixNano())
	if !s.healthy(w, r) {
		return
	}
	body := s.bodies.Get().(*[]byte)
	defer s.bodies.Put(body)
	var err error
	if *body, err = readAll(r.Body, (*body)[:0]); err != nil {
		return
	}
	s.serve()
	if !s.healthy(w, r) {
		return
	}
	if s.marks.Add(*body) > 0 {
		at := time.Now().UnixNano()
		s.first.CompareAndSwap(0, at)
		s.last.Store(at)
	}
	answer(w, r)
}

// answer writes a success response in the protocol of the request.
func answer(w http.ResponseWriter, r *http.Request) {
	switch {
	case r.URL.Path == "/_bulk":
		w.Header().Set("Content-Type", "application/json")
		io.WriteString(w, `{"took":1,"errors":false,"items":[]}`)
	case r.Header.Get("Content-Type") == "application/x-protobuf":
		w.Header().Set("Content-Type", "application/x-protobuf") // an empty message: all accepted
	}
}

func places(n int) chan time.Time {
	free := make(chan time.Time, n)
	for range n {
		free <- time.Time{}
	}
	return free
}

// serve waits until a slot is free, and then for the time that a request takes. It does so even if
// the client has disconnected. A request that waits for a slot begins at the planned end of the
// request before it. The actual end is about a millisecond later, because a sleep returns late. If
// the next request began at the actual end, the rate would be a few percent too low.
func (s *server) serve() {
	begins := time.Now()
	if s.slots != nil {
		if free := <-s.slots; free.After(begins) {
			begins = free
		}
	}
	ends := begins.Add(s.Delay)
	if left := time.Until(ends); left > 0 {
		s.sleep(left)
	}
	if s.slots != nil {
		s.slots <- ends
	}
}

// healthy reports whether the server is in a healthy phase. In a failing phase, it also handles the
// request. Two kinds of failing phases alternate. In the first one the server responds with 503. In
// the next one it waits until the end of the phase and breaks the connection.
func (s *server) healthy(w http.ResponseWriter, r *http.Request) bool {
	if s.Phase == 0 {
		return true
	}
	since := time.Duration(time.Now().UnixNano() - s.begun.Load())
	phase := int64(since / s.Phase)
	if phase%2 == 0 {
		return true
	}
	s.refused.Add(1)
	if phase%4 == 1 {
		w.WriteHeader(http.StatusServiceUnavailable)
		return false
	}
	select {
	case <-time.After(time.Duration(phase+1)*s.Phase - since):
	case <-r.Context().Done():
	}
	panic(http.ErrAbortHandler) // this breaks the connection without a response
}

func readAll(r io.Reader, buf []byte) ([]byte, error) {
	for {
		if len(buf) == cap(buf) {
			buf = append(buf, 0)[:len(buf)]
		}
		n, err := r.Read(buf[len(buf):cap(buf)])
		buf = buf[:len(buf)+n]
		if err == io.EOF {
			return buf, nil
		}
		if err != nil {
			return buf, err
		}
	}
}

func (s *server) tell(w http.ResponseWriter, _ *http.Request) {
	ms := func(d time.Duration) float64 { return float64(d.Microseconds()) / 1e3 }
	json.NewEncoder(w).Encode(Stats{
		Unique: s.marks.Unique(), Lost: s.marks.Lost(), Repeated: s.marks.Repeated(),
		Unknown:  s.marks.Unknown(),
		Requests: s.requests.Load(), Refused: s.refused.Load(), MostInFlight: s.most.Load(),
		FirstUnix: float64(s.first.Load()) / 1e9, LastUnix: float64(s.last.Load()) / 1e9,
		P50ms: ms(s.marks.Delay(.5)), P99ms: ms(s.marks.Delay(.99)),
	})
}
