package pipeline

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/penstock-io/penstock/engine/config"
	"github.com/penstock-io/penstock/engine/internal/deadletter"
	"github.com/penstock-io/penstock/stream"
	"github.com/penstock-io/penstock/vfs/vfstest"
)

// TestEmptyLedgerWhileEverythingWaits checks a sink with a ledger. Every attempt fails from the
// start, so all batches wait for a retry and the ledger stays empty. This must not count as a lost
// ledger: a replay of a dead letter must deliver it, and the next run must resume.
func TestEmptyLedgerWhileEverythingWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := vfstest.New()
		reread := &rangeSource{fakeSource: &fakeSource{lines: numbered(9), size: 3}}
		route := retrying(time.Minute)
		route.Checkpoint = config.DefaultRoute("r0", "/state").Checkpoint
		down := true
		inner := &fakeSink{deliver: func(context.Context, stream.Attempt) error {
			if down {
				return errors.New("500")
			}
			return nil
		}}
		sink := &unreachableLedger{ledgerSink: ledgerSink{fakeSink: inner}, down: &down}
		route.Sink = use(stream.SinkRole, sink)
		run := func(d time.Duration) {
			e := jobOf(t, m, Options{}, use(stream.SourceRole, reread), route)
			ctx, stop := context.WithCancel(t.Context())
			ended := make(chan error, 1)
			go func() { ended <- e.Run(ctx) }()
			time.Sleep(d)
			synctest.Wait()
			stop()
			<-ended
		}
		run(20 * time.Second)
		down = false
		replayOne(t, m, "letter", use(stream.SourceRole, reread), route)
		run(10 * time.Minute)
		if !inner.hasAll(append(numbered(9), "letter")) {
			t.Errorf("delivered %q, want each line and the letter once", inner.got)
		}
	})
}

// TestLostLedgerIsRefused checks the log of a route that does not start because the ledger of its
// sink was lost. It must not announce that the data is delivered again.
func TestLostLedgerIsRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := vfstest.New()
		reread := &rangeSource{fakeSource: &fakeSource{lines: numbered(9), size: 3}}
		var log bytes.Buffer
		o := Options{Once: true, Log: slog.New(slog.NewTextHandler(&log, nil))}
		run := func() error {
			var route config.Route
			route.Sink = use(stream.SinkRole, &ledgerSink{fakeSink: &fakeSink{}})
			return jobOf(t, m, o, use(stream.SourceRole, reread), route).Run(t.Context())
		}
		if err := run(); err != nil {
			t.Fatal(err)
		}
		err := run()
		if err == nil || !strings.Contains(err.Error(), "is missing or empty") {
			t.Errorf("a run without the ledger: %v", err)
		}
		if strings.Contains(log.String(), "delivered again\"") {
			t.Errorf("the refused run has logged: %s", &log)
		}
	})
}

// replayOne replays a dead letter with the given text, while no engine runs.
func replayOne(t *testing.T, m *vfstest.Mem, text string, source config.Use, route config.Route) {
	t.Helper()
	store, err := deadletter.Open(m, "/state/dead", deadletter.Options{Pipeline: "p", Route: "r0"})
	if err == nil {
		err = store.Append(t.Context(), []deadletter.Letter{{ID: "a@1", Record: []byte(text)}})
	}
	if err = errors.Join(err, store.Close()); err != nil {
		t.Fatal(err)
	}
	c := jobOf(t, m, Options{}, source, route).cfg
	replay, err := ReplayConfig(*c, "p", "r0", deadletter.Filter{})
	if err != nil {
		t.Fatal(err)
	}
	o := Options{FS: m, Once: true, Log: slog.New(slog.DiscardHandler)}
	e, err := New(&replay, o)
	if err == nil {
		err = e.Run(t.Context())
	}
	if err != nil {
		t.Fatalf("replay: %v", err)
	}
}

// unreachableLedger is a sink with a ledger in a database that does not answer while down is set.
type unreachableLedger struct {
	ledgerSink
	down *bool
}

// Compact implements stream.TransactionalSink.
func (s *unreachableLedger) Compact(_ context.Context, marks []stream.Mark) error {
	if *s.down {
		return errors.New("connection refused")
	}
	s.holds = marks
	return nil
}
