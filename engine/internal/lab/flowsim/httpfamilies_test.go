package flowsim_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/penstock-io/penstock/backoff"
	"github.com/penstock-io/penstock/flow"
	"github.com/penstock-io/penstock/flow/control"
)

const (
	httpWarmup = 4 * time.Second
	httpFor    = 12 * time.Second
	httpRuns   = 5 // of each family, at the same time: its figure is their median
	httpSlots  = 2
	httpMean   = 40 * time.Millisecond // service time
)

// httpFamily is a group of runs with real HTTP servers. If bad is set, a tenth of the batches is
// bad.
type httpFamily struct {
	workers int
	bad     bool
	after   time.Duration // a server refuses bad data after this time
}

// httpWorker is a server with two slots and exponential service times.
type httpWorker struct {
	httpFamily
	slots     chan struct{}
	delivered *atomic.Int64
	from      time.Time // when deliveries begin to count
}

func (h *httpWorker) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	pause := func(d time.Duration) bool {
		select {
		case <-time.After(d):
			return true
		case <-r.Context().Done():
			return false
		}
	}
	n, _ := strconv.Atoi(r.Header.Get("Batch"))
	if h.bad && n%10 == 3 {
		if pause(h.after) {
			w.WriteHeader(http.StatusInternalServerError)
		}
		return
	}
	h.slots <- struct{}{}
	defer func() { <-h.slots }()
	if pause(time.Duration(rand.ExpFloat64()*float64(httpMean))) && time.Since(h.from) > 0 {
		h.delivered.Add(1)
	}
}

// play returns the batches that the servers took after the warm-up.
func (f httpFamily) play(t *testing.T) int64 {
	var delivered atomic.Int64
	client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 1000}}
	o := flow.Options[int]{Control: control.Config{Retry: backoff.Fixed(badRetry)}}
	from := time.Now().Add(httpWarmup)
	for i := range f.workers {
		s := httptest.NewServer(&httpWorker{f, make(chan struct{}, httpSlots), &delivered, from})
		defer s.Close()
		o.Lanes = append(o.Lanes,
			flow.Lane[int]{Name: strconv.Itoa(i), Worker: post(client, s.URL)})
	}
	sender, err := flow.New(o)
	if err != nil {
		t.Error(err)
		return 0
	}
	ctx, stop := context.WithTimeout(t.Context(), httpFor)
	defer stop()
	n := 0
	err = sender.Run(ctx, flow.ProducerFunc[int](func(context.Context) (flow.Item[int], error) {
		n++
		return flow.Item[int]{Value: n, Bytes: 1}, nil
	}))
	if !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("%+v: %v", f, err)
	}
	client.CloseIdleConnections()
	return delivered.Load()
}

// post returns a worker that sends batches to the server at this URL.
func post(client *http.Client, url string) flow.WorkerFunc[int] {
	return func(ctx context.Context, a flow.Attempt[int]) (flow.Report, error) {
		r, err := http.NewRequestWithContext(ctx, http.MethodPost, url, http.NoBody)
		if err != nil {
			return flow.Report{}, err
		}
		r.Header.Set("Batch", strconv.Itoa(a.Value))
		response, err := client.Do(r)
		if err != nil {
			return flow.Report{}, err
		}
		return flow.Report{}, errors.Join(flow.HTTPOutcome(response), response.Body.Close())
	}
}

// TestFamiliesOverHTTP is a sample of [TestFamilies] with real servers and real time. If a tenth of
// the data is bad, the goodput of good data may fall by at most a tenth, in the median of five
// runs.
func TestFamiliesOverHTTP(t *testing.T) {
	if os.Getenv("PENSTOCK_FAMILIES") != "http" {
		t.Skip("set PENSTOCK_FAMILIES=http: it takes 12 s of real time")
	}
	all := []httpFamily{{workers: 1}, {workers: 2}}
	for _, workers := range []int{1, 2} {
		for _, after := range []time.Duration{0, 5 * time.Second, time.Hour} {
			all = append(all, httpFamily{workers, true, after})
		}
	}
	taken := make([][httpRuns]int64, len(all))
	var group sync.WaitGroup
	for i, f := range all {
		for k := range httpRuns {
			group.Go(func() { taken[i][k] = f.play(t) })
		}
	}
	group.Wait()
	for i := range taken {
		slices.Sort(taken[i][:])
	}
	for i, f := range all {
		without := taken[f.workers-1]
		ratio := float64(taken[i][httpRuns/2]) / float64(without[httpRuns/2])
		line := fmt.Sprintf("%d workers, bad %v after %v: %.3f of the goodput without, "+
			"runs %v of %v", f.workers, f.bad, f.after, ratio, taken[i], without)
		if t.Log(line); ratio < 0.9 {
			t.Errorf("%s, want 0.9", line)
		}
	}
}
