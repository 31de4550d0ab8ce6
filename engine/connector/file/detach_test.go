package file

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/penstock-io/penstock/engine/connector/connectortest"
	"github.com/penstock-io/penstock/stream"
)

// TestNothingWrittenAfterDetach checks a group that the writer has already taken when the lane is
// detached. A lane is detached if, for example, another program renames the file, which is then
// truncated to the acknowledged length. The group must not be appended to this file, and its
// deliveries must fail, so that the engine repeats them.
func TestNothingWrittenAfterDetach(t *testing.T) {
	path := filepath.Join(t.TempDir(), "out")
	s, err := New(Options{Path: path, Format: Raw, Fsync: SyncAck}, connectortest.NewHost(t))
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Open(t.Context(), stream.SinkOptions{
		Pipeline: "test", Route: "main", Lanes: func([]stream.Lane) {},
	}); err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	taken := &delivery{data: []byte("again\n"), done: make(chan error, 1)}
	s.lane.writes.Lock()
	err = s.lane.detach(errMoved)
	s.lane.writes.Unlock()
	if _, ok := errors.AsType[*stream.ReopenError](err); !ok {
		t.Fatalf("detach: %v, want a ReopenError", err)
	}
	if err := s.lane.writeReady([]*delivery{taken}, nil); err != nil {
		t.Error(err)
	}
	if err := <-taken.done; !errors.Is(err, errMoved) {
		t.Errorf("the delivery ended with %v, want %v", err, errMoved)
	}
	if now, err := os.ReadFile(path); err != nil || len(now) > 0 {
		t.Errorf("%v, the file holds %q, want nothing", err, now)
	}
}
