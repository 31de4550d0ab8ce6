package spooldir_test

import (
	"context"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/penstock-io/penstock/engine/connector/connectortest"
	"github.com/penstock-io/penstock/engine/connector/spooldir"
	"github.com/penstock-io/penstock/stream"
	"github.com/penstock-io/penstock/stream/streamtest"
)

// TestTwoRoutes checks that two routes read independently, and have the same partition id for a
// file. The file is finished only when both have read and settled it up to its current size.
func TestTwoRoutes(t *testing.T) {
	bubble(t, nil, func(t *testing.T, w *fixture) {
		path := put(t, w.dir, "a.log", "one\n")
		big := put(t, w.dir, "big.log", numberedLines(0, 100))
		w.finish = false
		w.open(false)
		defer w.close()
		other := *w
		other.store, other.batches = newStore(), nil
		other.pending = make(map[string]stream.Partition)
		other.limits = stream.BatchLimits{Bytes: 1000}
		other.open(false)
		defer other.close()
		if err := other.step(t.Context()); err != nil { // a part of big.log
			t.Fatal(err)
		}
		w.pump(2 * time.Second)
		// the engine passes only partitions settled by all routes; this test passes them too early
		sealed := w.pending
		w.pending = maps.Clone(sealed)
		maps.DeleteFunc(w.pending, func(_ string, p stream.Partition) bool { return p.Name == "a.log" })
		w.finishAllNow(t, "it is being read")
		w.pending = sealed
		if _, err := os.Stat(big); err != nil {
			t.Errorf("big.log was finished while the other route reads it: %v", err)
		}
		appendTo(t, path, "two\n")
		other.pump(3 * time.Second)
		for _, id := range other.store.order {
			if !slices.Contains(w.store.order, id) {
				t.Errorf("the second route knows a file as %s, the first one does not", id)
			}
		}
		w.finishAllNow(t, "it has 8 bytes, 4 were read")
		w.pump(3 * time.Second)
		w.finish = true
		w.finishAll()
		if len(w.pending) > 0 {
			t.Errorf("not finished: %v", w.refused)
		}
		w.wantFiles("a.log.done", "big.log.done")
		for _, x := range []*fixture{w, &other} {
			got := x.texts()
			slices.Sort(got)
			if want := []string{"a.log: one\ntwo\n", "big.log: " + numberedLines(0, 100)}; !slices.Equal(got, want) {
				t.Errorf("delivered %q, want %q", got, want)
			}
		}
	})
}

// finishAllNow calls Finish and checks that it refuses a file with the error want.
func (w *fixture) finishAllNow(t *testing.T, want string) {
	t.Helper()
	w.refused, w.finish = nil, true
	w.finishAll()
	w.finish = false
	if !slices.ContainsFunc(w.refused, func(err error) bool { return strings.Contains(err.Error(), want) }) {
		t.Fatalf("Finish: %v, want an error: %s", w.refused, want)
	}
}

// TestOnce checks that a run with Once waits for young files and reads files that appear meanwhile.
// A file that a writer keeps extending is not finished, and the log reports it.
func TestOnce(t *testing.T) {
	bubble(t, nil, func(t *testing.T, w *fixture) {
		write(t, filepath.Join(w.dir, "young.log"), "young, no line end")
		added := false
		w.onBatch = func(*stream.Batch) {
			if !added {
				added = true
				write(t, filepath.Join(w.dir, "late.log"), "late\n")
			}
		}
		if err := w.once(); err != nil {
			t.Fatal(err)
		}
		w.want("young.log: young, no line end\n", "late.log: late\n")
		w.wantFiles("late.log.done", "young.log.done")
	})
	bubble(t, nil, func(t *testing.T, w *fixture) {
		path := filepath.Join(w.dir, "a.log")
		write(t, path, "0\n")
		ctx, stop := context.WithCancel(t.Context())
		written := make(chan struct{})
		go func() { // a writer that never pauses
			defer close(written)
			tick := time.NewTicker(300 * time.Millisecond)
			defer tick.Stop()
			for {
				select {
				case <-ctx.Done():
					return
				case <-tick.C:
					appendTo(t, path, "more\n")
				}
			}
		}()
		if err := w.once(); err != nil {
			t.Fatal(err)
		}
		stop()
		<-written
		if !strings.Contains(w.host.Logged(), "files are still being written") {
			t.Error("the log does not say that a file was left")
		}
		w.wantFiles("a.log")
	})
}

// TestGrownWhileDown checks that a finished file that grew while nothing ran is found at the next
// start if the checkpoint has its progress.
func TestGrownWhileDown(t *testing.T) {
	for _, finished := range []string{"rename", "move", "keep"} {
		moved := t.TempDir()
		change := func(o *spooldir.Options) {
			if o.Finished = finished; finished == "move" {
				o.MoveTo = moved
			}
		}
		bubble(t, change, func(t *testing.T, w *fixture) {
			path := put(t, w.dir, "a.log", "one\n")
			if err := w.once(); err != nil {
				t.Fatal(err)
			}
			switch finished {
			case "rename":
				path += ".done"
			case "move":
				path = filepath.Join(moved, "a.log")
			}
			appendTo(t, path, "two\n")
			w.src = w.host.source(options(w.dir, change))
			w.open(false)
			w.pump(5 * time.Second)
			w.close()
			if len(w.store.order) != 1 || string(w.store.data[w.store.order[0]]) != "one\ntwo\n" || len(w.pending) > 0 {
				t.Errorf("%s: delivered %q; waiting: %v", finished, w.texts(), w.refused)
			}
		})
	}
}

// TestNotified checks that a notification wakes the reader long before its next poll.
func TestNotified(t *testing.T) {
	dir := t.TempDir()
	h := streamtest.NewHostOn(t, connectortest.FS())
	src := must(newSource(h, options(dir, func(o *spooldir.Options) { o.PollMin, o.PollMax = time.Hour, time.Hour })))
	r := must(src.Open(t.Context(), newStore().options(false)))
	defer r.Close()
	b := stream.NewBatch(stream.BatchLimits{})
	ctx, cancel := context.WithTimeoutCause(t.Context(), 100*time.Millisecond, errEnough)
	defer cancel()
	if err := r.Read(ctx, b); err != errEnough {
		t.Fatalf("Read of an empty directory: %v", err)
	}
	// enough that it does not wait to settle
	write(t, filepath.Join(dir, "a.log"), strings.Repeat("line\n", 100_000))
	ctx, cancel = context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	if err := r.Read(ctx, b); err != nil {
		t.Fatalf("Read: %v; the notification did not wake it", err)
	}
}
