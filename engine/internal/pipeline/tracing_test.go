package pipeline

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/penstock-io/penstock/engine/config"
	"github.com/penstock-io/penstock/engine/internal/trace"
	"github.com/penstock-io/penstock/flow"
	"github.com/penstock-io/penstock/stream"
	"github.com/penstock-io/penstock/vfs/vfstest"
)

// traced returns the default flow with a trace.
func traced(file string, most stream.Size) config.Flow {
	f := config.DefaultRoute("r0", "/state").Flow
	f.Trace, f.TraceMax = file, most
	return f
}

// flakyDeliver refuses the batch with line 77. For any other batch, it decides by the id of the
// attempt: it delivers (in time, late or too late), fails or throttles.
func flakyDeliver(ctx context.Context, a stream.Attempt) error {
	wait := time.Duration(a.ID%7) * 30 * time.Millisecond
	switch {
	case strings.Contains(string(a.Value.AppendRaw(nil)), "line 77\n"):
		return &flow.Rejected{Err: errors.New("never")}
	case a.ID%13 == 0:
		wait = 5 * time.Second
	case a.ID%11 == 0:
		return errors.New("not today")
	case a.ID%17 == 0:
		return &flow.Throttled{After: 300 * time.Millisecond}
	}
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// TestTraceOfARun records the trace of a real run, for every window algorithm and dispatch policy.
// The replay of the trace must give the same commands bit for bit, and the trace must name the
// workers, and have the same algorithm and options as the status. The trace of the previous run is
// kept beside it.
func TestTraceOfARun(t *testing.T) {
	dispatches := []string{"least_completion", "round_robin", "hash"}
	for i, name := range []string{"auto", "linear", "aimd", "credit", "queue", "fixed"} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				m := vfstest.New()
				sink := &fakeSink{workers: 3, deliver: flakyDeliver}
				source := &fakeSource{lines: numbered(400), size: 3}
				f := traced("/traces/flow.ndjson", 64<<20)
				f.Window, f.Size, f.Dispatch = name, 4, dispatches[i%3]
				e := fakeJob(t, m, Options{Once: true}, source, config.Route{Sink: use(stream.SinkRole, sink), Flow: f})
				if err := m.WriteFile("/traces/flow.ndjson", []byte(`{"penstock_trace":1,"seed":5}`+"\n")); err != nil {
					t.Fatal(err)
				}
				if err := e.Run(t.Context()); err != nil {
					t.Fatal(err)
				}
				replayed(t, m, e)
				if old, err := m.ReadFile("/traces/flow.ndjson.1"); err != nil ||
					!strings.Contains(string(old), `"seed":5`) {
					t.Errorf("the trace of the run before is %q, %v", old, err)
				}
			})
		})
	}
}

func replayed(t *testing.T, m *vfstest.Mem, e *Engine) {
	t.Helper()
	text, err := m.ReadFile("/traces/flow.ndjson")
	if err != nil {
		t.Fatal(err)
	}
	got, err := trace.Replay(bytes.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	want := e.statusWithoutTree().Routes[0]
	if int64(got.Status.Attempts) != want.Attempts || got.Status.Settled == 0 ||
		got.Ended != "the route ended" || got.Torn {
		t.Errorf("the replay has %d attempts, %d settled, ended %q; the run had %d attempts",
			got.Status.Attempts, got.Status.Settled, got.Ended, want.Attempts)
	}
	options := fmt.Sprintf(`"window":%q,"window_options":%s`, want.Window, want.WindowOptions)
	for _, part := range []string{options, `"route":"p/r0"`, `"name":"worker-2"`,
		`"outcome":"throttled"`, `"do":"bury"`, `"started":"2000-`} {
		if !bytes.Contains(text, []byte(part)) {
			t.Errorf("the trace has no %s", part)
		}
	}
}

// TestTraceStopsNobody checks that a trace ends at its size limit or when the disk is full, and
// that the data is still delivered.
func TestTraceStopsNobody(t *testing.T) {
	full := vfstest.Fault{Op: vfstest.OpWrite, Path: "/traces", Nth: 2, Lasting: true, Err: errors.New("disk full")}
	for _, c := range []struct {
		name  string
		max   stream.Size
		fault *vfstest.Fault
		whole bool
	}{
		{"its bound", 64 << 10, nil, true},
		{"a full disk", 64 << 20, &full, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				m := vfstest.New()
				sink := &fakeSink{workers: 3, deliver: flakyDeliver}
				e := fakeJob(t, m, Options{Once: true}, &fakeSource{lines: numbered(3000), size: 3},
					config.Route{Sink: use(stream.SinkRole, sink), Flow: traced("/traces/flow.ndjson", c.max)})
				if c.fault != nil {
					m.Fail(*c.fault)
				}
				if err := e.Run(t.Context()); err != nil {
					t.Fatal(err)
				}
				if r := e.statusWithoutTree().Routes[0]; r.Delivered+r.Dead != 3000 {
					t.Errorf("%d of 3000 records were delivered, %d are dead", r.Delivered, r.Dead)
				}
				text, err := m.ReadFile("/traces/flow.ndjson")
				if err != nil || stream.Size(len(text)) > c.max {
					t.Fatalf("the trace has %d bytes, %v", len(text), err)
				}
				got, err := trace.Replay(bytes.NewReader(text))
				if err != nil || c.whole != strings.Contains(got.Ended, "limit of 65536 bytes") || got.Events == 0 {
					t.Errorf("Replay = %d events, ended %q, %v", got.Events, got.Ended, err)
				}
			})
		})
	}
}

// TestTraceNeverTakesAnothersFile checks a route with flow.trace set to an existing file that is
// not a trace. The file must be kept, and the route must report it before it delivers.
func TestTraceNeverTakesAnothersFile(t *testing.T) {
	m := vfstest.New()
	if err := m.WriteFile("/traces/access.log", []byte("GET /\n")); err != nil {
		t.Fatal(err)
	}
	sink := &fakeSink{}
	e := fakeJob(t, m, Options{Once: true}, &fakeSource{lines: numbered(3), size: 3},
		config.Route{Sink: use(stream.SinkRole, sink), Flow: traced("/traces/access.log", 1<<20)})
	if err := e.Run(t.Context()); err == nil || !strings.Contains(err.Error(), "access.log is not a trace") {
		t.Errorf("Run = %v", err)
	}
	if text, err := m.ReadFile("/traces/access.log"); err != nil || string(text) != "GET /\n" || len(sink.got) != 0 {
		t.Errorf("the file holds %q, %v; %d records were delivered", text, err, len(sink.got))
	}
}
