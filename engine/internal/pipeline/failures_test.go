package pipeline

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/penstock-io/penstock/engine/config"
	"github.com/penstock-io/penstock/flow"
	"github.com/penstock-io/penstock/stream"
	"github.com/penstock-io/penstock/vfs/vfstest"
)

// TestFaultIsOver checks that the status shows the fault of a worker until the worker delivers.
func TestFaultIsOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		sink := &fakeSink{deliver: func(context.Context, stream.Attempt) error {
			if time.Since(began) < 2*time.Second {
				return &flow.Misconfigured{Err: errors.New("401 token")}
			}
			return nil
		}}
		source := &fakeSource{lines: numbered(10), size: 5}
		e := fakeJob(t, vfstest.New(), Options{Once: true}, source,
			config.Route{Sink: use(stream.SinkRole, sink)})
		ended := make(chan error, 1)
		go func() { ended <- e.Run(t.Context()) }()
		time.Sleep(time.Second)
		r := e.Status().Routes[0]
		if !strings.Contains(r.LastFault, "401") ||
			!strings.Contains(r.Workers[0].LastFault, "401") {
			t.Errorf("during the fault: %q, %q", r.LastFault, r.Workers[0].LastFault)
		}
		if err := <-ended; err != nil {
			t.Fatal(err)
		}
		r = e.Status().Routes[0]
		if r.LastFault != "" || r.Workers[0].LastFault != "" {
			t.Errorf("after the fault: %q, %q", r.LastFault, r.Workers[0].LastFault)
		}
	})
}

// TestFailuresOfParts checks that the failures of a worker and of a processor with the same name
// are kept apart. A part that has recovered must not hide the failure of another one.
func TestFailuresOfParts(t *testing.T) {
	f := &failures{log: slog.New(slog.DiscardHandler), of: make(map[part]*failure)}
	f.recordFailure(part{"a", true}, "500")
	f.recordFailure(part{name: "a"}, "died")
	f.recordFailure(part{"b", true}, "401")
	if got := f.latestOf("a"); got != "500" {
		t.Errorf("worker a: %q", got)
	}
	f.recovered(part{"b", true})
	if got := f.latest(); got == "" || strings.Contains(got, "401") {
		t.Errorf("after b has recovered: %q", got)
	}
	if times, due := f.recordFailure(part{"b", true}, "401"); times != 1 || due {
		t.Errorf("the next failure of b: %d times, due %v, want no log line", times, due)
	}
	if got := f.latestOf("b"); got != "401" {
		t.Errorf("worker b: %q", got)
	}
}
