package spooldir_test

import (
	"errors"
	"syscall"
	"testing"
	"time"

	"github.com/penstock-io/penstock/stream"
	"github.com/penstock-io/penstock/vfs/vfstest"
)

// TestRangeOfUnreadableFile checks ReadRanges if the file or the directory has been unreadable
// since the start of the run. The data of the range may exist, so the error must not be
// ErrRangeMissing.
func TestRangeOfUnreadableFile(t *testing.T) {
	for _, fault := range []vfstest.Fault{
		{Op: vfstest.OpList, Path: "/spool"},
		{Op: vfstest.OpOpen, Path: "a.log"},
		{Op: vfstest.OpStat, Path: "a.log"},
		{Op: vfstest.OpRead, Path: "a.log"},
	} {
		faulty(t, nil, func(t *testing.T, m *vfstest.Mem, w *fixture) {
			plant(t, m, "/spool/a.log", "one\ntwo\n")
			w.finish = false
			w.open(false)
			w.pump(5 * time.Second)
			w.close()
			next := newFixture(t, w.dir, m, nil)
			next.store = w.store.clone()
			fault.Lasting, fault.Err = true, syscall.EIO
			m.Fail(fault)
			next.open(false)
			next.pump(5 * time.Second)
			one := stream.Range{To: stream.Position{Num: 4}}
			for _, mark := range w.store.marks {
				b := stream.NewBatch(stream.BatchLimits{})
				err := next.reader.(stream.RangeReader).ReadRanges(t.Context(), b, mark.Part,
					[]stream.Range{one})
				if err == nil || errors.Is(err, stream.ErrRangeMissing) {
					t.Errorf("%v: ReadRanges returned %v", fault, err)
				}
			}
			if len(w.store.marks) != 1 {
				t.Errorf("%d partitions were read, want 1", len(w.store.marks))
			}
			m.Heal()
			next.close()
		})
	}
}
