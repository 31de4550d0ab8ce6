package streamtest_test

import (
	"context"
	"errors"
	"os"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/penstock-io/penstock/stream"
	"github.com/penstock-io/penstock/stream/streamtest"
	"github.com/penstock-io/penstock/vfs"
)

// write creates a file in the state directory of a host.
func write(t *testing.T, h stream.SourceHost) {
	t.Helper()
	dir, err := h.State()
	if err != nil {
		t.Fatal(err)
	}
	f, err := dir.OpenFile("f", os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Error(err)
	}
}

// files returns the number of entries in the state directory of a host.
func files(t *testing.T, h stream.SourceHost) int {
	t.Helper()
	dir, err := h.State()
	if err != nil {
		t.Fatal(err)
	}
	entries, err := dir.Entries(".")
	if err != nil {
		t.Fatal(err)
	}
	return len(entries)
}

// TestProcesses checks that a host finds the files of an earlier host with the same state
// directory, as a restarted process does. A host with another state directory does not see them.
func TestProcesses(t *testing.T) {
	state := t.TempDir()
	first := streamtest.NewHost(t)
	first.UseState(state)
	write(t, first)
	if err := first.Stop(); err != nil {
		t.Fatal(err)
	}
	next, other := streamtest.NewHostOn(t, vfs.OS()), streamtest.NewHost(t)
	next.UseState(state)
	if n, none := files(t, next), files(t, other); n != 1 || none != 0 {
		t.Errorf("the next process finds %d files, another one %d", n, none)
	}
}

func TestHostRecords(t *testing.T) {
	h := streamtest.NewHost(t)
	if got := h.Routes(); !slices.Equal(got, []string{streamtest.Route}) {
		t.Errorf("Routes = %v", got)
	}
	h.SetRoutes()
	if got := h.Routes(); len(got) != 0 {
		t.Errorf("Routes = %v after SetRoutes of none", got)
	}
	h.Count("rows", 2)
	h.Count("rows", 3)
	fault := errors.New("fault")
	h.Fault(fault)
	if n := h.Counted("rows"); n != 5 || !slices.Equal(h.Faults(), []error{fault}) {
		t.Errorf("counted %d, faults %v", n, h.Faults())
	}
	failure := errors.New("failure")
	h.Go("part", func(context.Context) error { return failure })
	<-h.Failed()
	if err := h.Stop(); !errors.Is(err, failure) {
		t.Errorf("Stop = %v", err)
	}
}

// TestInABubble checks that a goroutine of a host runs in the virtual time of testing/synctest.
func TestInABubble(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := streamtest.NewHost(t)
		ran, start := time.Duration(0), time.Now()
		h.Go("wait", func(ctx context.Context) error {
			time.Sleep(time.Hour)
			ran = time.Since(start)
			<-ctx.Done()
			return nil
		})
		write(t, h)
		time.Sleep(2 * time.Hour)
		if err := h.Stop(); err != nil {
			t.Error(err)
		}
		if ran != time.Hour || files(t, h) != 1 {
			t.Errorf("the goroutine ran after %v, and %d files; want 1h and 1", ran, files(t, h))
		}
	})
}
