package pipeline

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/penstock-io/penstock/engine/config"
	"github.com/penstock-io/penstock/engine/connector/all"
	"github.com/penstock-io/penstock/internal/testsize"
	"github.com/penstock-io/penstock/stream"
	"github.com/penstock-io/penstock/vfs/vfstest"
)

// crashConfig returns the config of a job with all of its files in memory (vfstest.Mem). Only the
// config file itself is in a real directory. The file system in memory has the same paths.
func crashConfig(t *testing.T, fsync, finished string) *config.Config {
	t.Helper()
	dir := t.TempDir()
	path := filepath.Join(dir, "penstock.yaml")
	text := fmt.Sprintf(`
state: /job/state
pipelines:
  crash:
    source: { spool_dir: { path: /job/spool, finished: %s, quiet_period: 1ms } }
    sink: { file: { path: /job/out/all.log, format: raw, fsync: %s } }
    batch: { bytes: 256B, linger: 0s }
    checkpoint: { replay: 1KiB, sync: 1ms }
`, finished, fsync)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	f, err := config.Load(path, config.LoadOptions{Components: all.Components(), Env: os.LookupEnv})
	if err != nil {
		t.Fatal(err)
	}
	return f
}

func runOn(t *testing.T, m *vfstest.Mem, f *config.Config, boot string) error {
	t.Helper()
	e, err := New(f, Options{Once: true, FS: m, Boot: boot, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	return e.Run(ctx)
}

// TestPowerLoss runs a whole pipeline, spool_dir -> file, on a file system that can lose unsynced
// data. It simulates crashes after calls of the file system (see triedOf). After each one, it runs
// the pipeline from the state that the crash could have left. Every record is in the output exactly
// once. No input file is renamed or deleted before its records are in the output.
func TestPowerLoss(t *testing.T) {
	for _, c := range []struct{ fsync, finished string }{
		{"ack", "rename"}, {"interval", "rename"}, {"interval", "delete"}, {"ack", "keep"},
	} {
		t.Run(c.fsync+" "+c.finished, func(t *testing.T) {
			t.Parallel()
			f := crashConfig(t, c.fsync, c.finished)
			input := map[string]string{}
			m := vfstest.New()
			for i := range 3 {
				var text strings.Builder
				for n := range 60 + 10*i {
					fmt.Fprintf(&text, "file %d line %03d\n", i, n)
				}
				name := fmt.Sprintf("/job/spool/%d.log", i)
				input[name] = text.String()
				if err := m.WriteFile(name, []byte(input[name])); err != nil {
					t.Fatal(err)
				}
			}
			crashes := collect(t, m, func() error { return runOn(t, m, f, "first boot") }, func() {})
			checkOutput(t, m, input, "without a crash")
			for _, crash := range tried(crashes) {
				boot := "second boot"
				if crash.Data == vfstest.DataAll && crash.Names == vfstest.NamesAll {
					boot = "first boot" // only the process died
				}
				if err := runOn(t, crash.FS, f, boot); err != nil {
					t.Fatalf("%v: %v", crash, err)
				}
				checkOutput(t, crash.FS, input, crash.String())
			}
			t.Logf("%d crashes survived", len(tried(crashes)))
		})
	}
}

// maxCrashes bounds the crashes that are tried after one run. Each of them needs a run of its own.
const maxCrashes = 2000

// triedOf is 5, or 1 in long tests: every fifth crash is tried, or each one. The kind of crash
// alternates among six kinds. As 5 and 6 have no common divisor, all six kinds are tried.
var triedOf = testsize.Of(5, 1)

// tried returns every triedOf-th crash, the crashes that a test tries.
func tried(crashes []vfstest.Crash) (some []vfstest.Crash) {
	for i := 0; i < len(crashes); i += triedOf {
		some = append(some, crashes[i])
	}
	return some
}

// collect runs a workload of many goroutines. After each call that may have changed a file, it
// records the states that a crash could leave: after a kill, and after each kind of loss of
// unsynced data and names. It calls note for each recorded state.
func collect(t *testing.T, m *vfstest.Mem, workload func() error, note func()) (crashes []vfstest.Crash) {
	t.Helper()
	kinds := []vfstest.Crash{
		{Data: vfstest.DataAll, Names: vfstest.NamesAll}, {Data: vfstest.DataNone, Names: vfstest.NamesNone},
		{Data: vfstest.DataNone, Names: vfstest.NamesAll}, {Data: vfstest.DataPrefix, Names: vfstest.NamesSome},
		{Data: vfstest.DataTorn, Names: vfstest.NamesAll}, {Data: vfstest.DataAll, Names: vfstest.NamesNone},
	}
	var mu sync.Mutex
	m.Watch(func(c vfstest.Call) {
		mu.Lock()
		defer mu.Unlock()
		for _, crash := range kinds {
			crash.Call, crash.Seed = c, uint64(len(crashes))
			note()
			crash.FS = m.Crash(crash.Data, crash.Names, crash.Seed)
			crashes = append(crashes, crash)
		}
	})
	if err := workload(); err != nil {
		t.Fatal(err)
	}
	m.Watch(nil)
	if len(crashes) < 50 {
		t.Fatalf("only %d calls were seen", len(crashes))
	}
	if len(crashes) > maxCrashes {
		t.Fatalf("%d crashes: make the job smaller, or raise maxCrashes", len(crashes))
	}
	return crashes
}

func checkOutput(t *testing.T, m *vfstest.Mem, input map[string]string, when string) {
	t.Helper()
	out, err := m.ReadFile("/job/out/all.log")
	if err != nil {
		t.Fatalf("%s: %v", when, err)
	}
	got := map[string]int{}
	for line := range bytes.Lines(out) {
		got[string(line)]++
	}
	for name, text := range input {
		for line := range strings.Lines(text) {
			if got[line] != 1 {
				t.Fatalf("%s: %q of %s is %d times in the output", when, line, name, got[line])
			}
			delete(got, line)
		}
	}
	if len(got) > 0 {
		t.Fatalf("%s: the output has lines that were never written: %v", when, got)
	}
}

// TestPowerLossLosesNothing repeats TestPowerLoss with a receiver that has no resume token, such as
// an HTTP service. The receiver must have each record: accepted before the crash, after the
// restart, or both.
func TestPowerLossLosesNothing(t *testing.T) {
	f := crashConfig(t, "ack", "delete")
	m := vfstest.New()
	var text strings.Builder
	for n := range 200 {
		fmt.Fprintf(&text, "line %03d\n", n)
	}
	if err := m.WriteFile("/job/spool/a.log", []byte(text.String())); err != nil {
		t.Fatal(err)
	}
	sink := &fakeSink{workers: 2}
	f.Pipelines[0].Routes[0].Sink = use(stream.SinkRole, sink)
	var taken []int // by the receiver, at each crash
	crashes := collect(t, m, func() error { return runOn(t, m, f, "first boot") }, func() {
		sink.mu.Lock()
		defer sink.mu.Unlock()
		taken = append(taken, len(sink.got))
	})
	before := sink.got
	for i, crash := range crashes {
		if i%triedOf != 0 {
			continue
		}
		again := &fakeSink{workers: 2}
		f.Pipelines[0].Routes[0].Sink = use(stream.SinkRole, again)
		if err := runOn(t, crash.FS, f, "second boot"); err != nil {
			t.Fatalf("%v: %v", crash, err)
		}
		got := map[string]bool{}
		for _, line := range append(before[:taken[i]:taken[i]], again.got...) {
			got[line] = true
		}
		if len(got) != 200 {
			t.Fatalf("%v: %d of 200 records arrived before (%d) or after (%d) the crash", crash,
				len(got), taken[i], len(again.got))
		}
	}
}
