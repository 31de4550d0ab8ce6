package pipeline

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/penstock-io/penstock/engine/config"
	"github.com/penstock-io/penstock/flow"
	"github.com/penstock-io/penstock/stream"
	"github.com/penstock-io/penstock/vfs/vfstest"
)

// lockedBuffer is a buffer that one goroutine writes while another reads.
type lockedBuffer struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.Write(p)
}

func (b *lockedBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.String()
}

// TestRefusalsAreLogged checks that refused records are logged after at most failureEvery, even if
// no further record is refused.
func TestRefusalsAreLogged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log lockedBuffer
		sink := &fakeSink{deliver: func(_ context.Context, a stream.Attempt) error {
			if strings.Contains(string(a.Value.AppendRaw(nil)), "7\n") {
				return &flow.Rejected{Err: errors.New("400 unlucky")}
			}
			return nil
		}}
		r := config.DefaultRoute("r", "/state")
		r.Sink = use(stream.SinkRole, sink)
		e, err := New(&config.Config{State: "/state", Pipelines: []config.Pipeline{
			{Name: "p", Source: use(stream.SourceRole, &fakeSource{lines: numbered(100), size: 1}),
				Routes: []config.Route{r}},
		}}, Options{FS: vfstest.New(), Log: slog.New(slog.NewTextHandler(&log, nil))})
		if err != nil {
			t.Fatal(err)
		}
		ended := make(chan error, 1)
		go func() { ended <- e.Run(t.Context()) }()
		time.Sleep(failureEvery + 2*time.Second)
		logged := 0
		for line := range strings.Lines(log.String()) {
			_, after, ok := strings.Cut(line, "are kept as dead letters\" ")
			var n int
			if ok && strings.Contains(line, "400 unlucky") {
				if _, err := fmt.Sscanf(after[strings.Index(after, "records="):], "records=%d", &n); err != nil {
					t.Errorf("%q: %v", line, err)
				}
			}
			logged += n
		}
		if logged != 10 {
			t.Errorf("%d of 10 refused records are in the log:\n%s", logged, log.String())
		}
		e.Drain()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}

// kindError is a reason with a different text for each record.
type kindError struct{ at int }

func (e *kindError) Error() string { return fmt.Sprintf("byte %d: bad", e.at) }

func (e *kindError) Group() (reason, detail string) { return "bad", fmt.Sprintf("byte %d", e.at) }

// TestReasonsAreGrouped checks that dead letters of one kind share one reason, each with its own
// detail.
func TestReasonsAreGrouped(t *testing.T) {
	m := vfstest.New()
	change := fakeProcessor(func(b *stream.Batch) {
		b.Split()
		for i := range b.Records[:len(b.Records)/2] {
			b.DeadLetter(i, fmt.Errorf("wrapped: %w", &kindError{i}))
		}
	})
	source := &fakeSource{lines: numbered(20), size: 20}
	e := fakeJob(t, m, Options{Once: true}, source, config.Route{
		Sink: use(stream.SinkRole, &fakeSink{}), Processors: []config.Use{use(stream.ProcessorRole, change)},
	})
	if err := e.Run(t.Context()); err != nil {
		t.Fatal(err)
	}
	letters, err := m.ReadFile("/state/dead/p.r0.ndjson")
	if n := strings.Count(string(letters), `"reason":"bad",`); err != nil || n != 10 {
		t.Errorf("%d of 10 letters have the reason (%v):\n%s", n, err, letters)
	}
	for i := range 10 {
		if !strings.Contains(string(letters), fmt.Sprintf(`"detail":"byte %d"`, i)) {
			t.Errorf("no letter has the detail of record %d", i)
		}
	}
}

// TestPartialAnswersHaveAState checks that a worker is in state NORMAL if all its responses report
// a partly delivered batch. Time is virtual, because real round trips of microseconds vary so much
// that they look like a queue.
func TestPartialAnswersHaveAState(t *testing.T) { synctest.Test(t, partialAnswers) }

func partialAnswers(t *testing.T) {
	sink := &fakeSink{deliver: func(_ context.Context, a stream.Attempt) error {
		time.Sleep(time.Millisecond)
		b := a.Value
		b.Split()
		n := len(b.Records)
		if n < 2 {
			return nil
		}
		item := func(b *stream.Batch) flow.Item[*stream.Batch] {
			return flow.Item[*stream.Batch]{Value: b, Cost: float64(max(1, b.Kept())), Bytes: b.RawBytes()}
		}
		return &stream.Split{
			Done:    []flow.Item[*stream.Batch]{item(b.Cut(0, n-1))},
			Refused: []flow.Item[*stream.Batch]{item(b.Cut(n-1, n))}, Err: errors.New("one is bad"),
		}
	}}
	source := &fakeSource{lines: numbered(200), size: 20}
	e := fakeJob(t, vfstest.New(), Options{Once: true}, source, config.Route{Sink: use(stream.SinkRole, sink)})
	if err := e.Run(t.Context()); err != nil {
		t.Fatal(err)
	}
	s := e.statusWithoutTree().Routes[0]
	if s.Dead != 10 || s.Delivered != 190 || len(s.Workers) != 1 || s.Workers[0].State != "NORMAL" {
		t.Errorf("%d dead, %d delivered, workers %+v", s.Dead, s.Delivered, s.Workers)
	}
}
