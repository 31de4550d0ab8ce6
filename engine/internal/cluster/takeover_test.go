package cluster

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"reflect"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/penstock-io/penstock/stream"
)

// memBucket is a bucket in memory. A request to it takes latency.
type memBucket struct {
	latency time.Duration

	mu       sync.Mutex // guards the fields below
	revision uint64
	keys     map[string]Stored
	down     bool
}

func newMemBucket() *memBucket {
	return &memBucket{latency: 5 * time.Millisecond, keys: make(map[string]Stored)}
}

func (s *memBucket) setDown(down bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.down = down
}

// wire is one process's connection to a memBucket, which can be cut.
type wire struct {
	s   *memBucket
	key string
	cut func() bool
}

var errNoAnswer = errors.New("no answer")

func (w wire) wait(ctx context.Context) error {
	timer := time.NewTimer(w.s.latency)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
		return ctx.Err()
	}
	w.s.mu.Lock()
	down := w.s.down
	w.s.mu.Unlock()
	if down || w.cut() {
		return errNoAnswer
	}
	return nil
}

// Read implements Register.
func (w wire) Read(ctx context.Context) (Stored, error) {
	if err := w.wait(ctx); err != nil {
		return Stored{}, err
	}
	w.s.mu.Lock()
	defer w.s.mu.Unlock()
	if e, ok := w.s.keys[w.key]; ok {
		return e, nil
	}
	return Stored{Revision: w.s.revision}, nil
}

// Write implements Register.
func (w wire) Write(ctx context.Context, found bool, revision uint64, data []byte) (uint64, error) {
	if err := w.wait(ctx); err != nil {
		return 0, err
	}
	w.s.mu.Lock()
	defer w.s.mu.Unlock()
	if e, ok := w.s.keys[w.key]; ok != found || ok && e.Revision != revision {
		return 0, ErrConflict
	}
	w.s.revision++
	w.s.keys[w.key] = Stored{Found: true, Revision: w.s.revision, Data: data}
	return w.s.revision, nil
}

// engine is a process in virtual time that may own the pipeline.
type engine struct {
	name string
	cut  bool // guarded by the mutex of the shelf
	stop context.CancelFunc
	over chan struct{}
}

// history records the owners in their order.
type history struct {
	t     *testing.T
	start time.Time

	mu     sync.Mutex // guards the fields below
	owner  string
	begun  time.Duration
	epochs []uint64
}

func (h *history) enter(name string, epoch uint64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.owner != "" {
		h.t.Errorf("%s works although %s does", name, h.owner)
	}
	if n := len(h.epochs); n > 0 && h.epochs[n-1] > epoch {
		h.t.Errorf("epoch %d follows %d", epoch, h.epochs[n-1])
	}
	h.owner, h.begun, h.epochs = name, time.Since(h.start), append(h.epochs, epoch)
}

func (h *history) leave() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.owner = ""
}

func (h *history) now() (owner string, begun time.Duration, takeovers int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.owner, h.begun, len(h.epochs)
}

func (h *history) run(s *memBucket, name string) *engine {
	e := &engine{name: name, over: make(chan struct{})}
	cut := func() bool {
		s.mu.Lock()
		defer s.mu.Unlock()
		return e.cut
	}
	k := newLeaseHolder(wire{s, "lease.p", cut}, "p", NewLease(name),
		func() time.Duration { return time.Since(h.start) }, slog.New(slog.DiscardHandler))
	ctx, cancel := context.WithCancel(context.Background())
	e.stop = cancel
	go func() {
		defer close(e.over)
		_ = k.Run(ctx, func(ctx context.Context, t Tenure) error {
			if err := t.Confirm(ctx); err != nil {
				return err
			}
			h.enter(name, t.Epoch)
			defer h.leave()
			<-ctx.Done()
			return nil
		})
	}()
	return e
}

// TestTakeover cuts an owner's connection to the bucket. The owner must stop within 6 s of its last
// successful renewal. Another process must work within 9 s of that renewal, and never before the
// owner has stopped.
func TestTakeover(t *testing.T) {
	for i := range 20 {
		synctest.Test(t, func(t *testing.T) {
			s, h := newMemBucket(), &history{t: t, start: time.Now()}
			engines := map[string]*engine{}
			for _, name := range []string{"a", "b", "c"} {
				engines[name] = h.run(s, name)
				time.Sleep(time.Duration(37*i) * time.Millisecond)
			}
			time.Sleep(20 * time.Second)
			first, _, takeovers := h.now()
			if first == "" || takeovers != 1 {
				t.Fatalf("owner %q after %d takeovers, want one", first, takeovers)
			}
			time.Sleep(time.Duration(53*i) * time.Millisecond)
			cutAt := time.Since(h.start)
			s.mu.Lock()
			engines[first].cut = true
			s.mu.Unlock()
			time.Sleep(12 * time.Second)
			second, begun, takeovers := h.now()
			if second == first || second == "" || takeovers != 2 {
				t.Fatalf("owner %q after %d takeovers, want another one", second, takeovers)
			}
			if took := begun - cutAt; took > 9*time.Second {
				t.Errorf("the takeover took %v, want at most 9s", took)
			}
			for _, e := range engines {
				e.stop()
				<-e.over
			}
		})
	}
}

// TestBucketDown checks that the owner stops while the bucket is down, and that no process takes
// over. When the bucket is back, the lease must still have the same owner and epoch.
func TestBucketDown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, h := newMemBucket(), &history{t: t, start: time.Now()}
		a, b := h.run(s, "a"), h.run(s, "b")
		time.Sleep(5 * time.Second)
		first, _, _ := h.now()
		lease := func() (v Value) {
			s.mu.Lock()
			defer s.mu.Unlock()
			if err := json.Unmarshal(s.keys["lease.p"].Data, &v); err != nil {
				t.Error(err)
			}
			return v
		}
		before := lease()
		s.setDown(true)
		time.Sleep(7 * time.Second)
		if owner, _, _ := h.now(); owner != "" {
			t.Errorf("%s works without an answer for 7s", owner)
		}
		s.setDown(false)
		time.Sleep(2 * time.Second)
		if v := lease(); v.Owner != first || v.Epoch != before.Epoch || v.Epoch == 0 {
			t.Errorf("the lease is %+v, want that of %s: %+v", v, first, before)
		}
		for _, e := range []*engine{a, b} {
			e.stop()
			<-e.over
		}
	})
}

// startHolder runs a lease holder that keeps its lease until stop is called. The function suspended
// returns the time by which the holder's clock is ahead of the test's clock, as if the process had
// been suspended for that time.
func startHolder(t *testing.T, s *memBucket, log io.Writer,
	suspended func() time.Duration) (k *LeaseHolder, stop func()) {
	start := time.Now()
	k = newLeaseHolder(wire{s, "lease.p", always(false)}, "p", NewLease("a"),
		func() time.Duration { return time.Since(start) + suspended() },
		slog.New(slog.NewTextHandler(log, nil)))
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() {
		ended <- k.Run(ctx, func(ctx context.Context, _ Tenure) error {
			<-ctx.Done()
			return nil
		})
	}()
	return k, func() {
		cancel()
		<-ended
	}
}

// TestFailureIsShown checks consecutive failed requests. Only the first one is logged as a warning.
// The view of the lease contains the failure until the bucket responds again.
func TestFailureIsShown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newMemBucket()
		var log bytes.Buffer
		k, stop := startHolder(t, s, &log, func() time.Duration { return 0 })
		time.Sleep(5 * time.Second)
		s.setDown(true)
		time.Sleep(20 * time.Second)
		if got := k.View().Failure; !strings.HasSuffix(got, ": "+errNoAnswer.Error()) {
			t.Errorf("the view has the failure %q", got)
		}
		s.setDown(false)
		time.Sleep(5 * time.Second)
		s.mu.Lock()
		s.keys["lease.p"] = Stored{Found: true, Revision: 99, Data: []byte(`[2]`)}
		s.mu.Unlock()
		time.Sleep(5 * time.Second)
		const newer = "lease cannot be read: its value has an unknown form, perhaps of a newer " +
			"version: update this process, or delete the key: "
		if got := k.View().Failure; !strings.HasPrefix(got, newer) {
			t.Errorf("the value has another form, and the view has the failure %q", got)
		}
		s.mu.Lock()
		delete(s.keys, "lease.p")
		s.mu.Unlock()
		time.Sleep(5 * time.Second)
		if got := k.View().Failure; got != "" {
			t.Errorf("the bucket answers, and the view has the failure %q", got)
		}
		stop()
		for message, want := range map[string]int{
			"lease cannot be ": 2, "lease can be read again": 2,
		} {
			if n := strings.Count(log.String(), message); n != want {
				t.Errorf("%d lines of log have %q, want %d:\n%s", n, message, want, &log)
			}
		}
	})
}

// TestStarved checks that a timer that is late by more than 2 s is counted, and that the count is
// logged when the lease is lost. The stop of the process does not count as a loss.
func TestStarved(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var suspended atomic.Int64
		var log bytes.Buffer
		k, stop := startHolder(t, newMemBucket(), &log,
			func() time.Duration { return time.Duration(suspended.Load()) })
		for _, step := range []struct {
			by   time.Duration
			want uint64
		}{{0, 0}, {time.Second, 0}, {7 * time.Second, 1}, {3 * time.Second, 2}} {
			time.Sleep(5 * time.Second)
			suspended.Add(int64(step.by))
			time.Sleep(2 * time.Second)
			if n := k.View().Starved; n != step.want {
				t.Errorf("starved %d times after a suspension of %v, want %d", n, step.by,
					step.want)
			}
		}
		stop()
		const lost = `msg="this process lost the lease" lease=p epoch=1 starved=1`
		if text := log.String(); !strings.Contains(text, lost) || strings.Count(text, "lost") != 1 {
			t.Errorf("the log has not exactly one loss, %s:\n%s", lost, &log)
		}
	})
}

// TestHandover checks that a stopping owner gives the lease back, and that another process works
// within 2 s.
func TestHandover(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, h := newMemBucket(), &history{t: t, start: time.Now()}
		engines := map[string]*engine{"a": h.run(s, "a"), "b": h.run(s, "b")}
		time.Sleep(5 * time.Second)
		first, _, _ := h.now()
		stopped := time.Since(h.start)
		engines[first].stop()
		<-engines[first].over
		time.Sleep(3 * time.Second)
		second, begun, _ := h.now()
		if second == "" || second == first || begun-stopped > 2*time.Second {
			t.Errorf("%q works %v after %q has stopped, want the other one within 2s",
				second, begun-stopped, first)
		}
		for _, e := range engines {
			e.stop()
			<-e.over
		}
	})
}

func always(v bool) func() bool { return func() bool { return v } }

func mark(id string, at int64) stream.Mark {
	return stream.Mark{
		Part:      stream.Partition{ID: id, Name: "name of " + id},
		Watermark: stream.Position{Num: at, Key: "\xff\x00key"}, Metadata: "\xfe",
		Finished: at == 3,
		Above: []stream.Range{{
			From: stream.Position{Num: at + 1}, To: stream.Position{Num: at + 2, Key: "\x80"},
		}},
	}
}

// TestPositions checks that progress survives a change of owner, and that the earlier owner can
// no longer save progress.
func TestPositions(t *testing.T) {
	s := newMemBucket()
	r := wire{s, "progress.p.r", always(false)}
	open := func(epoch uint64) (*Positions, error) {
		return OpenPositions(t.Context(), r, "p/r", Tenure{Epoch: epoch})
	}
	a, err := open(1)
	if err != nil {
		t.Fatal(err)
	}
	if err := a.Append("p/r", []stream.Mark{mark("x", 3), mark("y", 7)}, nil); err != nil {
		t.Fatal(err)
	}
	if err := a.Append("p/r", nil, map[string]string{"lane": "9"}); err == nil {
		t.Error("a place was saved")
	}
	b, err := open(5)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []stream.Mark{mark("x", 3), mark("y", 7)} {
		got, ok := b.Mark("p/r", want.Part.ID)
		if !ok || !reflect.DeepEqual(got, want) {
			t.Errorf("mark %+v, want %+v", got, want)
		}
	}
	err = a.Append("p/r", []stream.Mark{mark("x", 9)}, nil)
	fenced, ok := errors.AsType[*FencedError](err)
	if !ok || fenced.Seen != 5 || a.Failed() == nil {
		t.Errorf("an earlier owner saved: %v", err)
	}
	if _, err := open(4); err == nil {
		t.Error("an earlier owner opened the progress")
	}
	if err := b.Forget("p/r", []string{"x"}); err != nil {
		t.Fatal(err)
	}
	s.setDown(true)
	if err := b.Append("p/r", []stream.Mark{mark("y", 8)}, nil); err == nil || b.Failed() != nil {
		t.Errorf("saved without a bucket: %v, failed: %v", err, b.Failed())
	}
	s.setDown(false)
	if err := b.Append("p/r", []stream.Mark{mark("y", 8)}, nil); err != nil {
		t.Error(err)
	}
	c, err := open(5) // a restart of the route within the tenure
	if err != nil {
		t.Fatal(err)
	}
	if m, ok := c.Mark("p/r", "y"); !ok || m.Watermark.Num != 8 {
		t.Errorf("y is %v, want 8", m)
	}
	if m, ok := c.Mark("p/r", "x"); ok {
		t.Errorf("x was forgotten and is %v", m)
	}
}

// lostAnswer carries out all writes, but loses the responses to some of them.
type lostAnswer struct {
	wire
	lose bool
}

func (l *lostAnswer) Write(ctx context.Context, found bool, revision uint64,
	data []byte) (uint64, error) {
	next, err := l.wire.Write(ctx, found, revision, data)
	if err == nil && l.lose {
		return 0, errNoAnswer
	}
	return next, err
}

// TestPositionsWithoutAnswer checks two cases. A write was stored but got no response: the holder
// finds this by reading the value. A key was deleted by hand: the holder writes it again.
func TestPositionsWithoutAnswer(t *testing.T) {
	s := newMemBucket()
	r := &lostAnswer{wire: wire{s, "progress.p.r", always(false)}}
	p, err := OpenPositions(t.Context(), r, "p/r", Tenure{Epoch: 1})
	if err != nil {
		t.Fatal(err)
	}
	r.lose = true
	if err := p.Append("p/r", []stream.Mark{mark("x", 1)}, nil); err != nil {
		t.Errorf("a write that was carried out failed: %v", err)
	}
	r.lose = false
	s.mu.Lock()
	delete(s.keys, "progress.p.r")
	s.mu.Unlock()
	if err := p.Append("p/r", []stream.Mark{mark("y", 2)}, nil); err != nil {
		t.Fatal(err)
	}
	again, err := OpenPositions(t.Context(), r, "p/r", Tenure{Epoch: 1})
	if err != nil {
		t.Fatal(err)
	}
	for id, want := range map[string]int64{"x": 1, "y": 2} {
		if m, ok := again.Mark("p/r", id); !ok || m.Watermark.Num != want {
			t.Errorf("%s is %v, want %d", id, m, want)
		}
	}
}

// TestPositionsRefused checks that values of other versions and values that are too large are
// refused.
func TestPositionsRefused(t *testing.T) {
	s := newMemBucket()
	r := wire{s, "progress.p.r", always(false)}
	for text, want := range map[string]string{
		`{"format":2}`: "progress of p/r in the bucket has format 2, but this " +
			"penstock reads up to 1: " +
			"use the version that wrote it, or a newer one",
		`nonsense`: "progress of p/r",
	} {
		s.keys["progress.p.r"] = Stored{Found: true, Revision: 1, Data: []byte(text)}
		_, err := OpenPositions(t.Context(), r, "p/r", Tenure{Epoch: 1})
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %s", text, err, want)
		}
	}
	delete(s.keys, "progress.p.r")
	p, err := OpenPositions(t.Context(), r, "p/r", Tenure{Epoch: 1})
	if err != nil {
		t.Fatal(err)
	}
	var many []stream.Mark
	for i := range 10_000 {
		many = append(many, mark(fmt.Sprint("partition-", i), 1))
	}
	if err := p.Append("p/r", many, nil); err == nil || p.Failed() == nil {
		t.Errorf("10,000 partitions fit: %v", err)
	}
}
