package pipeline

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/penstock-io/penstock/engine/config"
	"github.com/penstock-io/penstock/engine/internal/admin"
	"github.com/penstock-io/penstock/engine/internal/deadletter"
	"github.com/penstock-io/penstock/flow"
	"github.com/penstock-io/penstock/stream"
	"github.com/penstock-io/penstock/vfs/vfstest"
)

// replayFixture is a running engine. Its first route has dead letters, and may refuse records
// again.
type replayFixture struct {
	t       *testing.T
	e       *Engine
	ended   chan error
	refuses atomic.Bool
	sink    *fakeSink
}

func startReplayed(t *testing.T) *replayFixture {
	t.Helper()
	a := &replayFixture{t: t, ended: make(chan error, 1)}
	a.refuses.Store(true)
	a.sink = &fakeSink{deliver: func(_ context.Context, x stream.Attempt) error {
		if a.refuses.Load() && strings.Contains(string(x.Value.AppendRaw(nil)), "7\n") {
			return &flow.Rejected{Err: errors.New("400 unlucky")}
		}
		return nil
	}}
	one, two := config.DefaultRoute("one", "/state"), config.DefaultRoute("two", "/state")
	one.Sink, two.Sink = use(stream.SinkRole, a.sink), use(stream.SinkRole, &fakeSink{})
	var err error
	a.e, err = New(&config.Config{State: "/state", Pipelines: []config.Pipeline{{
		Name:   "p",
		Source: use(stream.SourceRole, &fakeSource{lines: numbered(100), size: 1}),
		Routes: []config.Route{one, two},
	}}}, Options{FS: vfstest.New(), Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	go func() { a.ended <- a.e.Run(t.Context()) }()
	time.Sleep(10 * time.Second)
	return a
}

func (a *replayFixture) letters(q admin.LetterQuery) admin.LetterPage {
	a.t.Helper()
	synctest.Wait() // the route has started again
	q.Pipeline, q.Route = "p", "one"
	page, err := a.e.Letters(a.t.Context(), q)
	if err != nil {
		a.t.Fatal(err)
	}
	return page
}

// replay returns the numbers of letters that were read, delivered, refused and dropped.
func (a *replayFixture) replay(f deadletter.Filter, discard bool) string {
	a.t.Helper()
	r, err := a.e.ReplayLetters(a.t.Context(), "p", "one", f, discard)
	if err != nil || r.Running || r.Letters != r.Delivered+r.Dead+r.Dropped {
		a.t.Fatalf("%+v, %v", r, err)
	}
	return fmt.Sprint(r.Letters, r.Delivered, r.Dead, r.Dropped)
}

// TestReplayWhileRunning checks that dead letters of a running route can be listed, replayed and
// discarded, each once.
func TestReplayWhileRunning(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := startReplayed(t)
		page := a.letters(admin.LetterQuery{Limit: 4})
		if page.Open != 10 || page.Matched != 10 || len(page.Entries) != 4 {
			t.Fatalf("%d open, %d match, %d shown", page.Open, page.Matched, len(page.Entries))
		}
		all := a.letters(admin.LetterQuery{Limit: 100}).Entries
		if len(all) != 10 || all[3].ID != page.Entries[3].ID {
			t.Errorf("the last of the 4 newest letters is %s", page.Entries[3].ID)
		}
		other := a.letters(admin.LetterQuery{Limit: 4, Filter: deadletter.Filter{Reason: "other"}})
		if other.Matched != 0 || other.Open != 10 {
			t.Errorf("of another reason: %+v", other)
		}
		of := func(n ...int) (f deadletter.Filter) {
			for _, i := range n {
				f.IDs = append(f.IDs, page.Entries[i].ID)
			}
			return f
		}
		r, err := a.e.ReplayLetters(t.Context(), "p", "one", of(0), false)
		if err == nil || r.Dead != 1 || r.Error == "" {
			t.Errorf("a replay that is refused again: %+v, %v", r, err)
		}
		a.refuses.Store(false)
		if got := a.replay(of(1), false); got != "1 1 0 0" {
			t.Errorf("a replay of one: %s", got)
		}
		if got := a.replay(of(2), true); got != "1 0 0 1" {
			t.Errorf("a discard of one: %s", got)
		}
		if got := a.replay(of(1, 2), false); got != "0 0 0 0" {
			t.Errorf("a second replay of these: %s", got)
		}
		if got := a.replay(deadletter.Filter{}, false); got != "8 8 0 0" {
			t.Errorf("a replay of the others: %s", got)
		}
		page = a.letters(admin.LetterQuery{Limit: 100, Settled: true})
		if page.Open != 0 || page.Matched != 11 || !page.Entries[0].Settled {
			t.Errorf("at the end: %d open, %d in all", page.Open, page.Matched)
		}
		a.e.Drain()
		if err := <-a.ended; err != nil {
			t.Error(err)
		}
		seen := map[string]bool{}
		for _, line := range a.sink.got {
			seen[line] = true
		}
		if len(seen) != 99 || len(a.sink.got) != 99 { // one was discarded
			t.Errorf("%d records arrived, %d different ones, want 99", len(a.sink.got), len(seen))
		}
	})
}

// TestReplayKeepsAccounts checks that the counts of a route stay correct across a replay: all
// records that were read have an outcome, and the dead letters are not read again. The replay must
// not count as a restart of any route.
func TestReplayKeepsAccounts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := startReplayed(t)
		a.refuses.Store(false)
		if got := a.replay(deadletter.Filter{}, false); got != "10 10 0 0" {
			t.Errorf("a replay of all: %s", got)
		}
		time.Sleep(time.Second)
		for _, r := range a.e.statusWithoutTree().Routes {
			conserved(t, r)
			if r.Starts != 1 || r.Health != healthRunning || r.ReadRecords != 100 {
				const got = "%s: %d starts, %s, %d records"
				t.Errorf(got, r.Name, r.Starts, r.Health, r.ReadRecords)
			}
		}
		if s := a.e.Status(); s.Replay == nil || s.Replay.Error != "" || s.Replay.Delivered != 10 {
			t.Errorf("status: %+v", s.Replay)
		}
		_, err := a.e.ReplayLetters(t.Context(), "p", "none", deadletter.Filter{}, false)
		if !errors.Is(err, admin.ErrNoRoute) {
			t.Errorf("of no route: %v", err)
		}
		a.e.Drain()
		if err := <-a.ended; err != nil {
			t.Error(err)
		}
		_, err = a.e.ReplayLetters(t.Context(), "p", "one", deadletter.Filter{}, false)
		if err == nil || !strings.Contains(err.Error(), "not running") {
			t.Errorf("after the end: %v", err)
		}
	})
}

// TestReplayEnds checks that a replay into a failing sink ends when its context ends or the engine
// drains. In the first case the route restarts, in the second case it ends.
func TestReplayEnds(t *testing.T) {
	for _, drains := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			var fails, refuses atomic.Bool
			refuses.Store(true)
			sink := &fakeSink{deliver: func(context.Context, stream.Attempt) error {
				switch {
				case refuses.Load():
					return &flow.Rejected{Err: errors.New("400")}
				case fails.Load():
					return errors.New("connection refused")
				}
				return nil
			}}
			r := config.DefaultRoute("r", "/state")
			r.Sink, r.Guard.Off = use(stream.SinkRole, sink), true
			e, err := New(&config.Config{State: "/state", Pipelines: []config.Pipeline{{
				Name:   "p",
				Source: use(stream.SourceRole, &fakeSource{lines: numbered(5), size: 1}),
				Routes: []config.Route{r},
			}}}, Options{FS: vfstest.New(), Log: slog.New(slog.DiscardHandler)})
			if err != nil {
				t.Fatal(err)
			}
			ended := make(chan error, 1)
			go func() { ended <- e.Run(t.Context()) }()
			time.Sleep(5 * time.Second)
			refuses.Store(false)
			fails.Store(true)
			ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
			defer cancel()
			if drains {
				go func() { time.Sleep(10 * time.Second); e.Drain() }()
			}
			result, err := e.ReplayLetters(ctx, "p", "r", deadletter.Filter{}, false)
			if err == nil || result.Error == "" || result.Running {
				t.Errorf("a replay that cannot end: %+v, %v", result, err)
			}
			fails.Store(false)
			if !drains {
				result, err = e.ReplayLetters(t.Context(), "p", "r", deadletter.Filter{}, false)
				if err != nil || result.Delivered != 5 {
					t.Errorf("the next replay: %+v, %v", result, err)
				}
				e.Drain()
			}
			if err := <-ended; err != nil {
				t.Error(err)
			}
		})
	}
}

// TestDiscardWhileReceiverHangs checks that a discard in a running process ends at once although a
// delivery of the route does not, and that it does not restart the route.
func TestDiscardWhileReceiverHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hangs := make(chan struct{})
		sink := &fakeSink{deliver: func(ctx context.Context, a stream.Attempt) error {
			switch text := string(a.Value.AppendRaw(nil)); {
			case strings.Contains(text, "4\n"):
				return &flow.Rejected{Err: errors.New("400")}
			case strings.Contains(text, "5\n"):
				<-hangs
			}
			return nil
		}}
		r := config.DefaultRoute("r", "/state")
		r.Sink, r.Guard.Off = use(stream.SinkRole, sink), true
		e, end := runReplayed(t, vfstest.New(), &fakeSource{lines: numbered(6), size: 1}, r)
		begun := time.Now()
		result, err := e.ReplayLetters(t.Context(), "p", "r", deadletter.Filter{}, true)
		if err != nil || result.Letters != 1 || result.Dropped != 1 || time.Since(begun) > 0 {
			t.Errorf("after %v: %+v, %v", time.Since(begun), result, err)
		}
		page, err := e.Letters(t.Context(), admin.LetterQuery{Pipeline: "p", Route: "r", Limit: 9})
		if err != nil || page.Open != 0 {
			t.Errorf("%+v, %v", page, err)
		}
		s := e.Status()
		if last := s.Replay; last == nil || last.Running || !last.Discard || last.Dropped != 1 {
			t.Errorf("status: %+v", last)
		}
		if one := s.Routes[0]; one.Starts != 1 || one.Dropped != 0 || one.Health != healthRunning {
			t.Errorf("the route: %d starts, %d dropped, %s", one.Starts, one.Dropped, one.Health)
		}
		close(hangs)
		end()
	})
}
