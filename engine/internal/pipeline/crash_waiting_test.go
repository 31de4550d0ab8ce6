package pipeline

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/penstock-io/penstock/engine/config"
	"github.com/penstock-io/penstock/stream"
	"github.com/penstock-io/penstock/vfs/vfstest"
)

const crashLines = 40

// TestCrashesWithWaitingBatches crashes a finite run with waiting batches after each call of the
// file system. The run after the crash must end without an error, and each record must arrive.
func TestCrashesWithWaitingBatches(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		type state struct {
			crash vfstest.Crash
			taken int
		}
		var states []state
		var mu sync.Mutex
		m, first := vfstest.New(), flakySink()
		m.Watch(func(c vfstest.Call) {
			mu.Lock()
			defer mu.Unlock()
			for _, crash := range []vfstest.Crash{
				{Data: vfstest.DataAll, Names: vfstest.NamesAll},
				{Data: vfstest.DataNone, Names: vfstest.NamesNone},
				{Data: vfstest.DataNone, Names: vfstest.NamesAll},
				{Data: vfstest.DataPrefix, Names: vfstest.NamesSome},
				{Data: vfstest.DataTorn, Names: vfstest.NamesAll},
				{Data: vfstest.DataAll, Names: vfstest.NamesNone},
			} {
				crash.Call, crash.Seed = c, uint64(len(states))
				first.mu.Lock()
				n := len(first.got)
				first.mu.Unlock()
				crash.FS = m.Crash(crash.Data, crash.Names, crash.Seed)
				states = append(states, state{crash, n})
			}
		})
		if _, err := runFlaky(t, m, "boot-1", first); err != nil {
			t.Fatal(err)
		}
		m.Watch(nil)
		for _, s := range states {
			checkAfterCrash(t, s.crash, first.got[:s.taken:s.taken])
		}
	})
}

// checkAfterCrash makes a finite run from the state after a crash. before has the records that were
// delivered before the crash.
func checkAfterCrash(t *testing.T, crash vfstest.Crash, before []string) {
	t.Helper()
	boot := "boot-2"
	if crash.Data == vfstest.DataAll && crash.Names == vfstest.NamesAll { // only a kill
		boot = "boot-1"
	}
	again := flakySink()
	e, err := runFlaky(t, crash.FS, boot, again)
	if err != nil {
		t.Errorf("%v: the next run ended with %v", crash, err)
		return
	}
	conserved(t, e.statusWithoutTree().Routes[0])
	got, seen := map[string]bool{}, map[string]bool{}
	for _, line := range append(before, again.got...) {
		got[line] = true
	}
	if delete(got, ""); len(got) != crashLines {
		t.Errorf("%v: %d of %d records arrived", crash, len(got), crashLines)
	}
	for _, line := range again.got {
		if line != "" && seen[line] {
			t.Errorf("%v: the next run has delivered %q twice", crash, line)
		}
		seen[line] = true
	}
}

func runFlaky(t *testing.T, m *vfstest.Mem, boot string, sink *fakeSink) (*Engine, error) {
	t.Helper()
	source := &rangeSource{fakeSource: &fakeSource{lines: numbered(crashLines), size: 3}}
	route := retrying(1500 * time.Millisecond)
	route.Checkpoint = config.DefaultRoute("r0", "/state").Checkpoint
	route.Sink = use(stream.SinkRole, sink)
	e := jobOf(t, m, Options{Once: true, Boot: boot, Stall: time.Hour},
		use(stream.SourceRole, source), route)
	return e, e.Run(t.Context())
}

// flakySink returns a sink that refuses batches with certain records three times.
func flakySink() *fakeSink {
	var mu sync.Mutex
	failed := map[string]int{}
	return &fakeSink{workers: 2, deliver: func(_ context.Context, a stream.Attempt) error {
		mu.Lock()
		defer mu.Unlock()
		a.Value.Split()
		for i := range a.Value.Records {
			line := string(a.Value.Text(i))
			bad := strings.HasSuffix(line, "7") || strings.HasSuffix(line, "2")
			if bad && failed[line] < 3 {
				failed[line]++
				return errors.New("500")
			}
		}
		return nil
	}}
}
