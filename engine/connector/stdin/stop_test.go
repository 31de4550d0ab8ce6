package stdin

import (
	"context"
	"strings"
	"testing"
	"testing/iotest"
	"testing/synctest"

	"github.com/penstock-io/penstock/stream/streamtest"
	"github.com/penstock-io/penstock/vfs"
)

// TestStopAtEnd checks a source that stops while the last records of standard input wait for room
// in memory. The records count as lost, the run fails, and a recreated source knows that the input
// has ended.
func TestStopAtEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := streamtest.NewQuiet(vfs.OS(), nil, func(string) bool { return false })
		reader := iotest.DataErrReader(strings.NewReader("one\ntwo\nlast"))
		in := &input{reader: reader, chunks: make(chan chunk)}
		s, err := newSource(*DefaultOptions(), in, h)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := s.Reserve(t.Context(), int64(s.o.Memory)); err != nil {
			t.Fatal(err)
		}
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- s.run(ctx) }()
		synctest.Wait()
		stop()
		if err := <-ended; err == nil || !strings.Contains(err.Error(), errStopped.Error()) {
			t.Errorf("run = %v, want %v", err, errStopped)
		}
		if lost := h.Counted("records_lost"); lost != 3 {
			t.Errorf("%d records count as lost, want 3", lost)
		}
		next, err := newSource(*DefaultOptions(), in, h)
		if err != nil {
			t.Fatal(err)
		}
		if err := next.run(t.Context()); err != nil {
			t.Errorf("the recreated source: %v", err)
		}
	})
}
