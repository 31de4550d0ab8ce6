package notify

import (
	"fmt"
	nethttp "net/http"
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	"github.com/penstock-io/penstock/engine/kit/parked"
	"github.com/penstock-io/penstock/stream"
)

// TestLaneSet checks that a pattern with many hosts cannot take the lanes (states of hosts in
// memory) reserved for other patterns. These get theirs at once, and each group evicts its own
// lanes.
func TestLaneSet(t *testing.T) {
	now := time.Unix(1000, 0)
	s := newLaneSet(40, []string{"*.many.example", "*.few.example"}, now)
	var due laneHeap
	id := int64(0)
	add := func(group string, at time.Time) *lane {
		id++
		l := s.add(parked.Host{ID: id, Name: fmt.Sprint("host", id), Due: at}, group, &due, now)
		if l != nil {
			due.schedule(l, at)
		}
		return l
	}
	for range 100 { // all are due, so none can be evicted
		add("*.many.example", now)
	}
	if n := s.groups["*.many.example"]; n != 40-2*s.kept || s.kept != 6 {
		t.Fatalf("a pattern has %d lanes, and %d are kept for each", n, s.kept)
	}
	if !s.missing.Equal(now) {
		t.Errorf("hosts without a lane are due at %v, want %v", s.missing, now)
	}
	for n := range s.kept {
		if l := add("*.few.example", now.Add(time.Hour)); l == nil {
			t.Fatalf("host %d of another pattern gets no lane", n)
		}
	}
	if l := add("*.few.example", now.Add(time.Minute)); l != nil {
		t.Error("a host that is not due took the lane of another")
	}
	now = now.Add(time.Second)
	if l := add("*.few.example", now); l == nil {
		t.Error("a host that is due took no lane of a host of its pattern that is not")
	}
	if n := s.groups["*.few.example"]; n > s.kept || s.groups["*.many.example"] != 28 {
		t.Errorf("lanes by pattern: %v", s.groups)
	}
	for range 100 {
		add("", now.Add(time.Minute))
	}
	if len(s.byID) > 40 || len(due) != len(s.byID) || s.groups[""] > s.kept {
		t.Errorf("%d lanes, %d of them scheduled, by pattern %v", len(s.byID), len(due), s.groups)
	}
	for _, l := range s.byID {
		due.remove(l)
		s.delete(l)
	}
	if s.claimed != 3*s.kept || len(s.byID) != 0 {
		t.Errorf("an empty set: %+v", s)
	}
}

// TestManyHosts checks that each delivery keeps its schedule and nothing is lost if there are more
// hosts than lanes (states of hosts in memory).
func TestManyHosts(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T, dir string) {
		o := options()
		o.Hosts = 20
		m := newMerchants(func(_ *nethttp.Request, n int) (int, string, time.Duration) {
			if n < 4 {
				return 200, "fail", 0
			}
			return 200, "success", 0
		})
		f := newFixture(t, dir, o, m, false)
		defer f.stop()
		var lines []string
		for n := range 200 {
			lines = append(lines, fmt.Sprintf("m%d order-%d", n, n))
		}
		if err := f.deliver(lines...); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Hour)
		synctest.Wait()
		if got := f.Parked(); got != (stream.ParkedCounts{Delivered: 200}) {
			t.Errorf("counts %+v", got)
		}
		if n := len(f.send.lanes.byID); n > 20 {
			t.Errorf("%d lanes, want at most 20", n)
		}
		for n := range 200 {
			at := m.of(fmt.Sprintf("order-%d", n))
			if len(at) != 5 {
				t.Fatalf("order-%d has attempts at %v", n, at)
			}
			for i := range at {
				if late := at[i] - planned[i]; late < 0 || late > 5*time.Second {
					t.Fatalf("order-%d has attempts at %v, want %v", n, at, planned[:5])
				}
			}
		}
	})
}

// TestLaneSize checks that an idle lane with a closed circuit uses little memory.
func TestLaneSize(t *testing.T) {
	const n = 10_000
	now := time.Unix(0, 0)
	s := newLaneSet(n, nil, now)
	var due laneHeap
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	for i := range n {
		l := s.add(parked.Host{ID: int64(i), Due: now}, "", &due, now)
		due.schedule(l, now)
	}
	runtime.GC()
	runtime.ReadMemStats(&after)
	each := (int64(after.HeapAlloc) - int64(before.HeapAlloc)) / n
	t.Logf("%d bytes a lane", each)
	if each > 300 {
		t.Errorf("an idle lane takes %d bytes, at most 300 are allowed", each)
	}
	runtime.KeepAlive(s)
}
