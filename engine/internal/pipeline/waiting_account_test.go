package pipeline

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/penstock-io/penstock/engine/config"
	"github.com/penstock-io/penstock/engine/internal/waiting"
	"github.com/penstock-io/penstock/stream"
	"github.com/penstock-io/penstock/vfs/vfstest"
)

// TestWaitSettlesBeforeItsPartitionIsOpen kills the process after a waiting batch was written and
// before the checkpoint counts it as settled. The next run delivers the batch before it reads
// anything of its partition, and is stopped. The run after it must not deliver the batch again.
func TestWaitSettlesBeforeItsPartitionIsOpen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		source := &fakeSource{lines: numbered(3), size: 3}
		route := retrying(time.Minute)
		route.Checkpoint = config.DefaultRoute("r0", "/state").Checkpoint
		run := func(m *vfstest.Mem, boot string, sink *fakeSink, d time.Duration) *vfstest.Mem {
			route.Sink = use(stream.SinkRole, sink)
			reread := &rangeSource{fakeSource: source}
			e := jobOf(t, m, Options{Boot: boot}, use(stream.SourceRole, reread), route)
			ctx, stop := context.WithCancel(t.Context())
			ended := make(chan error, 1)
			go func() { ended <- e.Run(ctx) }()
			time.Sleep(d)
			synctest.Wait()
			conserved(t, e.statusWithoutTree().Routes[0])
			killed := m.Crash(vfstest.DataAll, vfstest.NamesAll, 1)
			stop()
			<-ended
			return killed
		}
		bad := &fakeSink{deliver: func(context.Context, stream.Attempt) error {
			return errors.New("500")
		}}
		route.Checkpoint.Sync = time.Hour // the kill comes before the first sync
		m := run(vfstest.New(), "boot-1", bad, 10*time.Second)
		route.Checkpoint.Sync = time.Second
		good, again := &fakeSink{}, &fakeSink{}
		run(m, "boot-2", good, 5*time.Minute)
		source.lines = numbered(6)
		run(m, "boot-3", again, 5*time.Minute)
		if want := numbered(6); !slices.Equal(good.got, want[:3]) ||
			!slices.Equal(again.got, want[3:]) {
			t.Errorf("delivered %q, and after a stop %q; want each line once", good.got, again.got)
		}
	})
}

// On a route with a store of waiting batches, a batch may settle whose partitions are no longer in
// memory. It then opens their accounts (their progress in memory) again, see reopen.
// TestReopenOpensOnlyAccountsWithData settles a batch with data of a file that was renamed
// meanwhile, and with the end of a partition that the source has deleted meanwhile. The progress
// must be saved under the file's new name, and the deleted partition must not be saved.
func TestReopenOpensOnlyAccountsWithData(t *testing.T) {
	dir, err := vfstest.New().MakeDir("/waiting", 0o700)
	if err != nil {
		t.Fatal(err)
	}
	store, err := waiting.Open(dir, waiting.Options{})
	if err != nil {
		t.Fatal(err)
	}
	w := &waits{core: &core{books: newBooks(unknown)}, store: store}
	b := lines(&stream.Partition{ID: "renamed", Name: "a.log"}, 0, 2, false)
	end := lines(&stream.Partition{ID: "deleted", Name: "b.log"}, 4, 0, true)
	b.Spans = append(b.Spans, end.Spans...)
	for _, b := range []*stream.Batch{b,
		lines(&stream.Partition{ID: "renamed", Name: "a.log.1"}, 4, 1, false)} {
		if err := w.books.open(b); err != nil {
			t.Fatal(err)
		}
	}
	w.books.takeUnsaved()
	w.books.forget([]string{"deleted"})
	w.reopen(b.Spans)
	w.settled(b)
	settle(t, w.books, b, false)
	for _, m := range w.books.takeUnsaved().marks {
		if m.Part.Name != "a.log.1" {
			t.Errorf("the progress %+v is saved", m)
		}
	}
	if err := w.store.Close(); err != nil {
		t.Error(err)
	}
}
