package stdout_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"testing"

	"github.com/penstock-io/penstock/engine/connector/connectortest"
	"github.com/penstock-io/penstock/engine/connector/stdout"
	"github.com/penstock-io/penstock/stream"
	"github.com/penstock-io/penstock/stream/streamtest"
	"github.com/penstock-io/penstock/supervise"
)

// buffer is a writer that is safe for concurrent use.
type buffer struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (b *buffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.Write(p)
}

func (b *buffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.String()
}

func newSink(t *testing.T, w io.Writer, format string, h stream.Host) stream.Sink {
	t.Helper()
	made, err := stdout.To(w).New(&stdout.Options{Format: format}, h)
	if err != nil {
		t.Fatal(err)
	}
	return made.(stream.Sink)
}

func TestSuite(t *testing.T) {
	connectortest.Sink(t, connectortest.SinkCase{Start: func(*testing.T) connectortest.Receiver {
		var out buffer
		return connectortest.Receiver{
			New: func(t *testing.T, h *streamtest.Host) stream.Sink { return newSink(t, &out, stdout.Raw, h) },
			Received: func(*testing.T) []string {
				text := strings.TrimSuffix(out.String(), "\n")
				if text == "" {
					return nil
				}
				return strings.Split(text, "\n")
			},
		}
	}})
}

func deliver(t *testing.T, s stream.Sink, b *stream.Batch) error {
	t.Helper()
	_, err := s.(stream.Worker).Deliver(t.Context(), stream.Attempt{Value: b})
	return err
}

func open(t *testing.T, s stream.Sink) {
	t.Helper()
	if err := s.Open(t.Context(), stream.SinkOptions{Lanes: func([]stream.Lane) {}}); err != nil {
		t.Fatal(err)
	}
}

// TestWritesOnce checks that a batch is written once if it is delivered several times, as after a
// timeout.
func TestWritesOnce(t *testing.T) {
	var out buffer
	s := newSink(t, &out, stdout.NDJSON, streamtest.NewHost(t))
	open(t, s)
	b := streamtest.Lines("one", "two")
	for range 3 {
		if err := deliver(t, s, b); err != nil {
			t.Fatal(err)
		}
	}
	if want := "{\"message\":\"one\"}\n{\"message\":\"two\"}\n"; out.String() != want {
		t.Errorf("wrote %q, want %q", out.String(), want)
	}
}

type brokenWriter struct{ err error }

func (w brokenWriter) Write([]byte) (int, error) { return 0, w.err }

// TestReaderEnds checks that a failed write ends the route permanently.
func TestReaderEnds(t *testing.T) {
	h := streamtest.NewHost(t)
	s := newSink(t, brokenWriter{io.ErrClosedPipe}, stdout.Raw, h)
	open(t, s)
	for i := range 2 {
		if err := deliver(t, s, streamtest.Lines(fmt.Sprint(i))); !errors.Is(err, io.ErrClosedPipe) {
			t.Errorf("Deliver = %v", err)
		}
	}
	<-h.Failed()
	if err := h.Stop(); !errors.Is(err, supervise.ErrStop) || !errors.Is(err, io.ErrClosedPipe) {
		t.Errorf("the sink's goroutine ended with %v", err)
	}
}

func TestDeadContext(t *testing.T) {
	var out buffer
	s := newSink(t, &out, stdout.Raw, streamtest.NewHost(t))
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := s.(stream.Worker).Deliver(ctx, stream.Attempt{Value: streamtest.Lines("x")})
	if !errors.Is(err, context.Canceled) || out.String() != "" {
		t.Errorf("Deliver = %v, wrote %q", err, out.String())
	}
}

func TestFormatIsChecked(t *testing.T) {
	if _, err := stdout.Component().New(&stdout.Options{Format: "xml"}, streamtest.NewHost(t)); err == nil {
		t.Error("format xml was accepted")
	}
}
