package endtoend

import (
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/penstock-io/penstock/engine/internal/lab/scenario"
)

// testbed runs a simulator scenario with real HTTP servers on loopback. When a request arrives, its
// server computes when the batch is served and when the response is due, from the due times of
// earlier batches. Then the server waits until that time. So a late timer delays only one response,
// and not the later ones. This matches the simulator, in which timers are never late.
type testbed struct {
	t     *testing.T
	s     *scenario.Scenario
	start time.Time
	ended chan struct{}

	mu      sync.Mutex
	workers []testbedWorker
	done    map[int64]time.Time // time of the first service, by the batch's number
	tries   []try
}

type testbedWorker struct {
	rnd  *rand.Rand
	free time.Time // time at which the queue is empty
	url  string
}

// try is one request that a server has received.
type try struct {
	at     time.Duration // since the start
	worker int
}

func newTestbed(t *testing.T, s *scenario.Scenario, seed uint64) *testbed {
	w := &testbed{t: t, s: s, ended: make(chan struct{}), done: make(map[int64]time.Time),
		workers: make([]testbedWorker, len(s.Workers))}
	for i := range w.workers {
		server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter,
			r *http.Request) {
		}))
		server.Config.Handler = http.HandlerFunc(func(a http.ResponseWriter,
			r *http.Request) {
			w.serve(a, r, i)
		})
		t.Cleanup(server.Close)
		w.workers[i].url, w.workers[i].rnd = server.URL+"/in",
			rand.New(rand.NewPCG(seed, uint64(i)))
	}
	// End hanging requests first, because server.Close waits for them.
	t.Cleanup(func() { close(w.ended) })
	return w
}

// holds returns the event of a kind that is active at a worker at the given time, or nil.
func (w *testbed) holds(at time.Duration, worker int, kind scenario.EventKind) *scenario.Event {
	for i := range w.s.Events {
		e := &w.s.Events[i]
		if e.Kind != kind || at < e.At || e.For > 0 && at >= e.At+e.For {
			continue
		}
		for _, n := range e.Workers {
			if n == worker {
				return e
			}
		}
	}
	return nil
}

func (w *testbed) serve(a http.ResponseWriter, r *http.Request, n int) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return
	}
	now := time.Now()
	number, _, _ := strings.Cut(string(body), " ")
	batch, err := strconv.ParseInt(number, 10, 64)
	if err != nil {
		w.t.Errorf("a record that reads %q", body)
		return
	}
	reached := now.Add(w.s.RTT / 2)
	since := reached.Sub(w.start)
	w.mu.Lock()
	w.tries = append(w.tries, try{since, n})
	if w.holds(since, n, scenario.Hang) != nil {
		w.mu.Unlock()
		w.hang(r)
		return
	}
	if e := w.holds(since, n, scenario.Fail); e != nil {
		w.mu.Unlock()
		if w.until(r, reached.Add(e.After+w.s.RTT/2)) {
			a.WriteHeader(http.StatusInternalServerError)
		}
		return
	}
	v := &w.workers[n]
	if v.free.Before(reached) {
		v.free = reached
	}
	mean := float64(w.s.Workers[n].Slots) / w.s.Workers[n].Rate
	v.free = v.free.Add(time.Duration(v.rnd.ExpFloat64() * mean * float64(time.Second)))
	served := v.free
	w.mu.Unlock()
	if w.holds(served.Sub(w.start), n, scenario.Hang) != nil { // hangs by then
		w.hang(r)
		return
	}
	if !w.until(r, served) {
		return
	}
	w.mu.Lock()
	if _, again := w.done[batch]; !again {
		w.done[batch] = served
	}
	w.mu.Unlock()
	w.until(r, served.Add(w.s.RTT/2))
}

// until waits until the given time. It returns false if the client or the test ends first.
func (w *testbed) until(r *http.Request, at time.Time) bool {
	timer := time.NewTimer(time.Until(at))
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-r.Context().Done():
	case <-w.ended:
	}
	return false
}

// hang does not answer until the client gives up.
func (w *testbed) hang(r *http.Request) {
	select {
	case <-r.Context().Done():
	case <-w.ended:
	}
}

// goodput returns the batches per second served between warm-up and end, as a share of the optimum.
func (w *testbed) goodput(optimum float64) float64 {
	w.mu.Lock()
	defer w.mu.Unlock()
	n := 0
	for _, at := range w.done {
		if since := at.Sub(w.start); since >= w.s.Warmup && since < w.s.Duration {
			n++
		}
	}
	return float64(n) / (optimum * (w.s.Duration - w.s.Warmup).Seconds())
}

// badShare returns the share of requests sent to a failing worker, of all requests while one fails.
func (w *testbed) badShare() float64 {
	w.mu.Lock()
	defer w.mu.Unlock()
	bad, all := 0, 0
	for _, x := range w.tries {
		failing := false
		for n := range w.workers {
			if w.holds(x.at, n, scenario.Hang) != nil || w.holds(x.at, n, scenario.Fail) != nil {
				failing = true
				if n == x.worker {
					bad++
				}
			}
		}
		if failing {
			all++
		}
	}
	if all == 0 {
		return 0
	}
	return float64(bad) / float64(all)
}
