package pipeline

import (
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/penstock-io/penstock/stream"
)

// TestForget checks that a deleted partition is removed from memory once it has no unsettled and no
// unsaved data. If a batch with the end of the partition settles later, this causes no error and
// does not add the partition again.
func TestForget(t *testing.T) {
	for _, waiting := range []waitIndex{nil, noneWait{}} {
		k := newBooks(unknown)
		k.waiting = waiting
		testForget(t, k)
		if len(k.parts) != 0 {
			t.Errorf("with %T, %d accounts are open of what was forgotten", waiting, len(k.parts))
		}
	}
}

// noneWait is the wait index of a route without waiting ranges.
type noneWait struct{}

func (noneWait) First(string) (stream.Position, bool) { return stream.Position{}, false }

func testForget(t *testing.T, k *books) {
	t.Helper()
	part := &stream.Partition{ID: "p", Name: "p.log"}
	b, seal := lines(part, 0, 2, false), lines(part, 4, 0, true)
	for _, b := range []*stream.Batch{b, seal} {
		if err := k.open(b); err != nil {
			t.Fatal(err)
		}
	}
	for _, step := range []struct {
		what string
		do   func()
		now  []string
	}{
		{"unsettled", func() {}, []string{"unknown"}},
		{"unsaved", func() { settle(t, k, b, false) }, []string{"unknown"}},
		{"saved", func() { k.takeUnsaved() }, []string{"p", "unknown"}},
		{"its seal settled later", func() { settle(t, k, seal, false) }, []string{"p", "unknown"}},
	} {
		step.do()
		now, later, _ := k.forget([]string{"p", "unknown"})
		if !slices.Equal(now, step.now) || len(now)+len(later) != 2 {
			t.Errorf("%s: forgotten %v, later %v; want now %v", step.what, now, later, step.now)
		}
	}
}

// TestAccountsRest opens many accounts of partitions (their settled and unsettled ranges, in
// memory). Those without unsettled data are closed, and opened again later without losing progress.
// Two kinds of accounts stay open: those with unsettled data, and those of partitions that were
// read to their end and are not yet finished.
func TestAccountsRest(t *testing.T) {
	marks := make(map[string]stream.Mark)
	k := newBooks(func(id string) (stream.Mark, bool) { m, ok := marks[id]; return m, ok })
	parts := make([]*stream.Partition, 2*maxIdleAccounts)
	for i := range parts {
		parts[i] = &stream.Partition{ID: fmt.Sprint("p", i), Name: "p"}
		b := lines(parts[i], 0, 1, i%2 == 0)
		if err := k.open(b); err != nil {
			t.Fatal(err)
		}
		if i > 0 {
			settle(t, k, b, false)
		}
	}
	s := k.takeUnsaved()
	for _, m := range s.marks {
		marks[m.Part.ID] = m
	}
	k.closeIdle(s.marks)
	if k.parts["p0"] == nil || k.parts["p2"] == nil || len(k.parts) != maxIdleAccounts {
		t.Errorf("%d accounts are open; p0 is unsettled, p2 sealed and not finished", len(k.parts))
	}
	for _, i := range []int{1, 2, 3} {
		if err := k.open(lines(parts[i], 2, 1, true)); err != nil {
			t.Errorf("a partition goes on after its account was closed: %v", err)
		}
	}
}

// TestPruneLate checks when the sink may remove a partition that this run has read: only when no
// transaction with its data can be open. pruneLate never returns partitions of which this run has
// read nothing.
func TestPruneLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var k resumed
		if got := k.pruneLate([]string{"a", "idle"}, map[string]bool{"idle": true}); len(got) > 0 {
			t.Errorf("%q are dropped at once", got)
		}
		time.Sleep(lateTransaction)
		if got := k.pruneLate([]string{"b"}, nil); len(got) > 0 {
			t.Errorf("%q are dropped too early", got)
		}
		time.Sleep(time.Second)
		if got := k.pruneLate(nil, nil); !slices.Equal(got, []string{"a"}) {
			t.Errorf("%q are dropped, want a", got)
		}
	})
}
