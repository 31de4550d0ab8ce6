package live

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/penstock-io/penstock/engine/status"
)

// fixture is a status of one route with the given number of workers after n seconds.
func fixture(workers, n int) status.Status {
	s := status.Status{Program: "devel", Seconds: float64(n), Routes: []status.Route{{
		Pipeline: "p", Name: "r", Source: "tail", Sink: "http", Health: "running",
		Processors: []string{"where"}, LeftBytes: 100_000,
		ReadRecords: int64(200 * n), ReadBytes: int64(20_000 * n), Delivered: int64(100 * n),
		DeliveredBytes: int64(10_000 * n),
		InFlight:       int64(60 * n), Waiting: int64(40 * n),
	}}}
	for i := range workers {
		s.Routes[0].Workers = append(s.Routes[0].Workers, status.Worker{
			Name: fmt.Sprintf("http://worker-%d:8080/in", i), State: "NORMAL", Gate: "window", Window: 4, InFlight: 4,
			Reason:    "about 1.0 batches queued (grows below 0.8, shrinks above 1.5): the window stays at 4",
			RoundTrip: 0.1, Base: 0.05, Delivered: uint64(10 * n),
		})
	}
	s.Judge()
	return s
}

func TestFrameRates(t *testing.T) {
	var f Framer
	begin := time.Unix(1000, 0)
	var frame *Frame
	for n := range 4 {
		s := fixture(2, n+1)
		frame = f.Next(&s, begin.Add(time.Duration(n)*time.Second))
	}
	r := frame.Routes[0]
	if r.ReadRate != 200 || r.DeliveredRate != 100 || r.BytesRate != 10_000 || r.Workers[1].Rate != 10 {
		t.Errorf("rates %v %v %v %v", r.ReadRate, r.DeliveredRate, r.BytesRate, r.Workers[1].Rate)
	}
	// The route delivers 10,000 bytes/s. It has 400 records of 100 bytes in flight or waiting, and
	// the source has 100,000 unread bytes.
	if r.DrainSeconds != 14 {
		t.Errorf("drained in %v s, want 14", r.DrainSeconds)
	}
	if !strings.HasPrefix(r.Workers[0].Words, "4 batches are in flight") || r.Worst != -1 {
		t.Errorf("%q, worst %d", r.Workers[0].Words, r.Worst)
	}
	s := fixture(2, 1) // the counters begin again
	if frame = f.Next(&s, begin.Add(4*time.Second)); frame.Routes[0].ReadRate < 0 {
		t.Errorf("a reset counter gives the rate %v", frame.Routes[0].ReadRate)
	}
	s.Routes[0].LeftBytes = -1
	if frame = f.Next(&s, begin.Add(5*time.Second)); frame.Routes[0].DrainSeconds != -1 {
		t.Errorf("an unknown backlog is drained in %v s", frame.Routes[0].DrainSeconds)
	}
	s.Routes = nil
	f.Next(&s, begin.Add(6*time.Second))
	if len(f.routes) != 0 {
		t.Error("the rates of removed routes are kept")
	}
}

func TestHistoryIsBounded(t *testing.T) {
	var h History
	add := func(n, workers int) {
		s := fixture(workers, 1)
		for i := range s.Routes[0].Workers {
			s.Routes[0].Workers[i].Window = float64(n)
		}
		var f Framer
		h.Add(f.Next(&s, time.Unix(int64(10*n), 0)))
	}
	for n := range 2*historyPoints + 5 {
		workers := 2
		if n == 2*historyPoints { // one frame without the second
			workers = 1
		}
		add(n, workers)
	}
	got := h.Of("p/r", "http://worker-1:8080/in")
	window := got.Values["window"]
	last := len(window) - 1
	if len(got.At) != historyPoints || len(window) != historyPoints || got.At[0] != 10*(historyPoints+5) {
		t.Fatalf("%d points from %v, %d values", len(got.At), got.At[0], len(window))
	}
	if window[last] == nil || *window[last] != 2*historyPoints+4 || window[last-4] != nil || window[last-5] == nil {
		t.Errorf("the end of the windows is %v %v %v", window[last], window[last-4], window[last-5])
	}
	add(0, maxSeries+50)
	if len(h.series) != maxSeries {
		t.Errorf("%d series, want %d", len(h.series), maxSeries)
	}
	for n := range historyPoints {
		add(n, 0)
	}
	if len(h.series) != 1 {
		t.Errorf("%d series after an hour without workers, want that of the route", len(h.series))
	}
	if none := h.Of("p/r", "unknown"); len(none.At) != 0 || none.Values == nil {
		t.Errorf("unknown worker: %+v", none)
	}
}

// TestHub checks that subscribers get a frame each second, and that a slow subscriber gets the
// latest one. Without subscribers, frames are made for the history only.
func TestHub(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var calls atomic.Int64
		h := NewHub(func() status.Status { return fixture(1, int(calls.Add(1))) })
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- h.Run(ctx) }()
		time.Sleep(100 * time.Second)
		synctest.Wait()
		if n := calls.Load(); n < 9 || n > 12 {
			t.Errorf("%d statuses in 100 s without subscribers", n)
		}
		frames, leave, err := h.Subscribe()
		if err != nil {
			t.Fatal(err)
		}
		before := calls.Load()
		time.Sleep(10*time.Second + time.Millisecond)
		synctest.Wait()
		if n := calls.Load() - before; n < 9 || n > 12 {
			t.Errorf("%d statuses in 10 s for a subscriber", n)
		}
		var f Frame
		if err := json.Unmarshal(<-frames, &f); err != nil || f.Seconds != float64(calls.Load()) {
			t.Errorf("a slow subscriber has the frame %v of %d, %v", f.Seconds, calls.Load(), err)
		}
		leave()
		for range maxSubscribers {
			if _, _, err := h.Subscribe(); err != nil {
				t.Fatal(err)
			}
		}
		if _, _, err := h.Subscribe(); !errors.Is(err, ErrBusy) {
			t.Errorf("one subscriber too many: %v", err)
		}
		if points := len(h.History("p/r", "").At); points < 9 {
			t.Errorf("%d points of history", points)
		}
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
		if frames, _, err = h.Subscribe(); err != nil {
			t.Fatal(err)
		}
		if _, open := <-frames; open {
			t.Error("a subscription after the end is open")
		}
	})
}

func TestLog(t *testing.T) {
	var tail Log
	log := slog.New(tail.Handler(slog.NewTextHandler(discard{}, nil))).With("pipeline", "p").WithGroup("g")
	for n := range maxLogLines + 10 {
		log.Warn("hello", "n", n, slog.Group("in", "x", 1), "long", strings.Repeat("y", 2*maxLogText))
	}
	log.Debug("below the level")
	lines := tail.After(0)
	if len(lines) != maxLogLines || lines[0].Number != 11 || lines[len(lines)-1].Number != maxLogLines+10 {
		t.Fatalf("%d lines from %d", len(lines), lines[0].Number)
	}
	l := lines[0]
	if l.Level != "WARN" || l.Message != "hello" || fmt.Sprint(l.Attrs[:3]) != "[[pipeline p] [g.n 10] [g.in.x 1]]" {
		t.Errorf("%+v", l)
	}
	if n := len(l.Attrs[3][1]); n > maxLogText+3 {
		t.Errorf("a value of %d bytes is kept", n)
	}
	if rest := tail.After(l.Number + maxLogLines - 2); len(rest) != 1 {
		t.Errorf("%d lines after the last but one", len(rest))
	}
}

type discard struct{}

func (discard) Write(p []byte) (int, error) { return len(p), nil }

// BenchmarkFrame measures the cost per second of a dashboard with 1,000 workers: making and
// encoding one frame.
func BenchmarkFrame(b *testing.B) {
	var f Framer
	s := fixture(1000, 1)
	b.ReportAllocs()
	for b.Loop() {
		text, err := json.Marshal(f.Next(&s, time.Unix(1, 0)))
		if err != nil {
			b.Fatal(err)
		}
		b.SetBytes(int64(len(text)))
	}
}
