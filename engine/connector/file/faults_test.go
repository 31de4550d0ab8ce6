package file_test

import (
	"fmt"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/penstock-io/penstock/engine/connector/file"
	"github.com/penstock-io/penstock/stream"
	"github.com/penstock-io/penstock/stream/streamtest"
	"github.com/penstock-io/penstock/vfs"
	"github.com/penstock-io/penstock/vfs/vfstest"
)

const memPath = "/var/out.log"

// memOptions returns options with and without rotation.
func memOptions() map[string]file.Options {
	rotating := rawAt(memPath)
	rotating.Rotate.Bytes = 4 << 10
	return map[string]file.Options{"one file": rawAt(memPath), "rotating": rotating}
}

// memText returns the contents of the files, oldest first.
func memText(t *testing.T, files vfs.FS) string {
	t.Helper()
	dir, err := files.OpenDir("/var")
	if err != nil {
		t.Fatal(err)
	}
	entries, err := dir.Entries(".")
	if err != nil {
		t.Fatal(err)
	}
	var all strings.Builder
	for n := 1; n <= len(entries); n++ {
		name := fmt.Sprintf("out.log.%d", n)
		if _, err := dir.Stat(name); err == nil {
			all.WriteString(vfstest.Content(t, dir, name))
		}
	}
	return all.String() + vfstest.Content(t, dir, "out.log")
}

// line returns the only record of batch n. Some are larger than the block size.
func line(n int) string {
	if n%7 == 3 {
		return fmt.Sprintf("line %d %s\n", n, strings.Repeat("x", 70_000))
	}
	return fmt.Sprintf("line %d\n", n)
}

func linesTo(n int) string {
	var all strings.Builder
	for i := range n {
		all.WriteString(line(i))
	}
	return all.String()
}

// finish checks a restart after a fault. It opens the sink over files with the resume token place,
// and checks that the file holds exactly the lines that were delivered before: done is their
// number. Then it delivers the other lines, and checks that the file holds all lines: total is
// their number.
func finish(t *testing.T, what fmt.Stringer, files vfs.FS, o file.Options, place string, done,
	total int) {
	t.Helper()
	h := streamtest.NewHostOn(t, files)
	s, lane, err := tryOpen(t, h, o, place)
	if err != nil {
		t.Errorf("%v: Open at %q: %v", what, place, err)
		return
	}
	if place == "" {
		done = 0 // no place was saved, so nothing was delivered
	} else if got := memText(t, files); got != linesTo(done) {
		t.Errorf("%v: after Open at %q the file holds %d bytes, want %d", what, place, len(got),
			len(linesTo(done)))
		return
	}
	w := writer{lane: lane}
	for n := done; n < total; n++ {
		if _, err := w.deliver(text(line(n))); err != nil {
			t.Errorf("%v: Deliver: %v", what, err)
			return
		}
	}
	_, _ = h.Stop(), s.Close()
	if got := memText(t, files); got != linesTo(total) {
		t.Errorf("%v: the file holds %d bytes in the end, want %d", what, len(got),
			len(linesTo(total)))
	}
}

// TestCrashes simulates a power loss after every call of the file system, and each way in which
// unsynced data may be lost. After a restart with the last reported token, the file must hold
// exactly the expected records.
func TestCrashes(t *testing.T) {
	for name, o := range memOptions() {
		t.Run(name, func(t *testing.T) {
			for seed := range uint64(4) {
				testCrashes(t, o, seed)
			}
		})
	}
}

func testCrashes(t *testing.T, o file.Options, seed uint64) {
	const total = 12
	place, done, crashes := "", 0, 0
	for crash := range vfstest.Crashes(t, seed, func(files vfs.FS) {
		for done < total {
			h := streamtest.NewHostOn(t, files)
			s, lane := open(t, h, o, place)
			place = s.StartToken()
			w := writer{lane: lane}
			for range 4 {
				p, err := w.deliver(text(line(done)))
				if err != nil {
					t.Errorf("Deliver: %v", err)
				}
				place = p
				done++
			}
			_, _ = h.Stop(), s.Close()
		}
	}) {
		crashes++
		finish(t, crash, crash.FS, o, place, done, total)
	}
	if crashes < 50 {
		t.Errorf("%d crashes: the test shows little", crashes)
	}
}

// TestCrashesOfGroups loses power at random moments during concurrent deliveries.
func TestCrashesOfGroups(t *testing.T) {
	for name, o := range memOptions() {
		t.Run(name, func(t *testing.T) { testCrashesOfGroups(t, o) })
	}
}

func testCrashesOfGroups(t *testing.T, o file.Options) {
	const total, crashes = 100, 10
	files := vfstest.New()
	h := streamtest.NewHostOn(t, files)
	s, lane := open(t, h, o, "")
	var mu sync.Mutex // guards the variables below
	places := make([]string, total)
	done, place := 0, s.StartToken()
	var wg sync.WaitGroup
	room := make(chan struct{}, 16)
	for n := range total {
		room <- struct{}{}
		wg.Go(func() {
			report, err := lane.Worker.Deliver(t.Context(),
				stream.Attempt{Value: text(line(n)), Index: uint32(n)})
			if err != nil {
				t.Errorf("Deliver: %v", err)
			}
			mu.Lock()
			places[n] = report.ResumeToken
			for done < total && places[done] != "" {
				place = places[done]
				done++
			}
			mu.Unlock()
			<-room
		})
		if n%(total/crashes) == 0 {
			mu.Lock()
			at, settled := place, done
			mu.Unlock()
			for _, data := range []vfstest.Data{vfstest.DataNone, vfstest.DataPrefix,
				vfstest.DataTorn} {
				left := files.Crash(data, vfstest.NamesNone, uint64(n))
				crash := vfstest.Crash{FS: left, Data: data, Names: vfstest.NamesNone,
					Seed: uint64(n)}
				finish(t, crash, crash.FS, o, at, settled, settled+3)
			}
		}
	}
	wg.Wait()
	_, _ = h.Stop(), s.Close()
	if got := memText(t, files); got != linesTo(total) {
		t.Errorf("the file holds %d bytes, want %d", len(got), len(linesTo(total)))
	}
}

// TestFaults makes one write, sync, truncation or rename fail in each run, until each of these
// calls has failed once. The failed deliveries are repeated, and then all records must be durable,
// once and in order.
func TestFaults(t *testing.T) {
	for name, o := range memOptions() {
		t.Run(name, func(t *testing.T) { testFaults(t, o) })
	}
}

func testFaults(t *testing.T, o file.Options) {
	for _, fault := range []vfstest.Fault{
		{Op: vfstest.OpWrite, Err: syscall.ENOSPC, Short: 3},
		{Op: vfstest.OpWrite, Err: syscall.EIO},
		{Op: vfstest.OpSync, Err: syscall.EIO},
		{Op: vfstest.OpTruncate, Err: syscall.EIO},
		{Op: vfstest.OpRename, Err: syscall.EACCES},
	} {
		for nth := 1; nth < 40; nth++ {
			files := vfstest.New()
			h := streamtest.NewHostOn(t, files)
			s, lane := open(t, h, o, "")
			fault.Nth, fault.Path = nth, "out.log"
			files.Fail(fault)
			if fault.Op == vfstest.OpTruncate {
				files.Fail(vfstest.Fault{Op: vfstest.OpWrite, Path: "out.log", Nth: 2, Short: 2,
					Err: syscall.ENOSPC})
			}
			w := writer{lane: lane}
			for n, failed := 0, 0; n < 20; {
				switch _, err := w.deliver(text(line(n))); {
				case err == nil:
					n++
				case !strings.Contains(err.Error(), memPath):
					t.Fatalf("%s %d: %v does not name the file", fault.Op, nth, err)
				default:
					if failed++; failed > 5 {
						t.Fatalf("%s %d: does not recover: %v", fault.Op, nth, err)
					}
				}
			}
			if got := memText(t, files.Crash(vfstest.DataNone, vfstest.NamesNone, 1)); got != linesTo(20) {
				t.Fatalf("%s %d: %d bytes are durable, want %d", fault.Op, nth, len(got),
					len(linesTo(20)))
			}
			_, _ = h.Stop(), s.Close()
			if files.Heal() == 0 && nth > 1 {
				break
			}
		}
	}
}

// TestFailedIntervalSync checks that a failed sync of acknowledged records is reported by each
// later Sync. The route must then stop, because acknowledged records cannot be delivered again.
func TestFailedIntervalSync(t *testing.T) {
	files := vfstest.New()
	h := streamtest.NewHostOn(t, files)
	o := rawAt(memPath)
	o.Fsync = file.SyncInterval
	s, lane := open(t, h, o, "")
	w := writer{lane: lane}
	if _, err := w.deliver(text(line(0))); err != nil {
		t.Fatal(err)
	}
	if err := s.Sync(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := w.deliver(text(line(1))); err != nil {
		t.Fatal(err)
	}
	files.Fail(vfstest.Fault{Op: vfstest.OpSync, Path: "out.log", Err: syscall.EIO})
	for range 2 {
		err := s.Sync(t.Context())
		if err == nil || !strings.Contains(err.Error(), "bytes 7 to 14") {
			t.Errorf("Sync: %v, want an error that names bytes 7 to 14", err)
		}
	}
	if _, err := w.deliver(text(line(2))); err == nil {
		t.Error("Deliver after a failed sync was taken")
	}
	if err := s.Close(); err == nil {
		t.Error("Close after a failed sync says nothing")
	}
	_ = h.Stop()
}
