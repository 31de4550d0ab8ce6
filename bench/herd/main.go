// Command herd measures how supervised children restart when 10,000 of them crash at the same time.
// It compares penstock's Supervisor with suture v4, both with default settings.
//
//	make bench-herd
//
// The command counts the restarts in each interval of 100 ms, from the crash until the last child
// runs again. The result for a library is the largest of these counts, divided by their mean. A
// ratio of 1 means that the restarts are spread evenly. The last line of the output is
// {"penstock_peak_over_mean":..., "suture_peak_over_mean":...}. The exit code is 1 if penstock's
// ratio is above 3, or if a child of penstock did not run again within 30 s.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/penstock-io/penstock/supervise"
	"github.com/thejerf/suture/v4"
)

const (
	bucket     = 100 * time.Millisecond
	mostPeak   = 3.0
	mostReturn = 30 * time.Second
	patience   = 2 * time.Minute // maximum time for one library
)

var errCrash = errors.New("crash")

func main() {
	n := flag.Int("children", 10_000, "children that crash together")
	flag.Parse()
	ours, err := measure("penstock", *n, penstockHerd)
	if err != nil {
		fail(err)
	}
	theirs, err := measure("suture", *n, sutureHerd)
	if err != nil {
		fail(err)
	}
	missed := ours.peakOverMean() > mostPeak || ours.last() > mostReturn
	if missed {
		fmt.Fprintf(os.Stderr, "herd: target missed: peak/mean %.2f, at most %.1f; "+
			"all back after %v, at most %v\n",
			ours.peakOverMean(), mostPeak, ours.last(), mostReturn)
	}
	fmt.Printf("{\"penstock_peak_over_mean\":%.2f, \"suture_peak_over_mean\":%.2f}\n",
		ours.peakOverMean(), theirs.peakOverMean())
	if missed {
		os.Exit(1)
	}
}

func fail(err error) {
	fmt.Fprintln(os.Stderr, "herd:", err)
	os.Exit(1)
}

// herd is the state that all supervised children share.
type herd struct {
	n     int
	ready sync.WaitGroup // waits for the first start of each child
	crash chan struct{}
	back  sync.WaitGroup // waits for the restart of each child

	mu    sync.Mutex
	begun time.Time // time of the crash
	times []time.Duration
}

// member is one child. When it first runs, it crashes together with the others. After its restart
// it keeps running.
type member struct {
	h      *herd
	starts int // only Serve uses it, and its calls do not overlap
}

// Serve implements the Service of both libraries.
func (m *member) Serve(ctx context.Context) error {
	m.starts++
	switch m.starts {
	case 1:
		m.h.ready.Done()
		select {
		case <-m.h.crash:
			return errCrash
		case <-ctx.Done():
			return ctx.Err()
		}
	case 2:
		m.h.mu.Lock()
		m.h.times = append(m.h.times, time.Since(m.h.begun))
		m.h.mu.Unlock()
		m.h.back.Done()
	}
	<-ctx.Done()
	return ctx.Err()
}

// measure makes the children of one library crash and prints the results.
func measure(name string, n int, serve func(ctx context.Context,
	members []*member) error) (returns, error) {
	h := &herd{n: n, crash: make(chan struct{})}
	h.ready.Add(n)
	h.back.Add(n)
	members := make([]*member, n)
	for i := range members {
		members[i] = &member{h: h}
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	served := make(chan error, 1)
	go func() { served <- serve(ctx, members) }()
	h.ready.Wait()
	h.begun = time.Now()
	close(h.crash)
	all := make(chan struct{})
	go func() { h.back.Wait(); close(all) }()
	select {
	case <-all:
	case err := <-served:
		return returns{}, fmt.Errorf("%s ended before all were back: %w", name, err)
	case <-time.After(patience):
		return returns{}, fmt.Errorf("%s: not all were back after %v", name, patience)
	}
	cancel()
	<-served
	r := returns{h.times}
	fmt.Printf("%s: %d children back within %v; peak %d, mean %.1f restarts in %v\n", name, n,
		r.last().Round(time.Millisecond),
		r.peak(), r.mean(), bucket)
	r.plot()
	return r, nil
}

func penstockHerd(ctx context.Context, members []*member) error {
	children := make([]supervise.Child, len(members))
	for i, m := range members {
		children[i] = supervise.Child{Name: fmt.Sprint("child-", i),
			New: func() (supervise.Service, error) {
				return m, nil
			}}
	}
	s, err := supervise.New("herd", supervise.Spec{}, children...)
	if err != nil {
		return err
	}
	return s.Serve(ctx)
}

func sutureHerd(ctx context.Context, members []*member) error {
	s := suture.New("herd", suture.Spec{EventHook: func(suture.Event) {}})
	for _, m := range members {
		s.Add(m)
	}
	return s.Serve(ctx)
}

// returns are the times from the crash to each restart.
type returns struct{ times []time.Duration }

func (r returns) last() (last time.Duration) {
	for _, t := range r.times {
		last = max(last, t)
	}
	return last
}

// counts returns the number of restarts in each interval of time. The first interval begins with
// the crash. The last restart is in the last interval.
func (r returns) counts() []int {
	counts := make([]int, r.last()/bucket+1)
	for _, t := range r.times {
		counts[t/bucket]++
	}
	return counts
}

func (r returns) peak() (peak int) {
	for _, n := range r.counts() {
		peak = max(peak, n)
	}
	return peak
}

func (r returns) mean() float64 { return float64(len(r.times)) / float64(len(r.counts())) }

func (r returns) peakOverMean() float64 { return float64(r.peak()) / r.mean() }

// plot prints the restarts of each second as bars.
func (r returns) plot() {
	seconds := make([]int, r.last()/time.Second+1)
	for _, t := range r.times {
		seconds[t/time.Second]++
	}
	for i, n := range seconds {
		fmt.Printf("  %3d s %6d %s\n", i, n,
			strings.Repeat("#", (n*60+len(r.times)-1)/len(r.times)))
	}
}
