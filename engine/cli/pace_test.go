package cli

import (
	"runtime"
	"runtime/debug"
	"testing"
	"time"
)

func TestPercent(t *testing.T) {
	const mib = 1 << 20
	for _, c := range []struct {
		name                 string
		live, scanned, roots uint64
		want                 int
	}{
		{"nothing was collected yet", 0, 0, 0, 150},
		{"the start", 2 * mib, mib, mib, 150},
		{"batches", 31 * mib, 2 * mib, mib, 18},
		{"more of them", 255 * mib, 2 * mib, mib, 2},
		{"small things with pointers", 60 * mib, 30 * mib, 2 * mib, 24},
		{"a heap of pointers", 999 * mib, 999 * mib, mib, 49},
	} {
		if got := percent(c.live, c.scanned, c.roots); got != c.want {
			t.Errorf("%s: %d %%, want %d", c.name, got, c.want)
		}
	}
}

// TestPaceBesideBatches checks that the allowed garbage does not depend on the memory of batches.
func TestPaceBesideBatches(t *testing.T) {
	before := debug.SetGCPercent(100)
	beginPace()
	held := make([][]byte, 0, 256)
	for range cap(held) {
		held = append(held, make([]byte, 256<<10))
	}
	var m runtime.MemStats
	// The runtime calls cleanups some time after a collection.
	for end := time.Now().Add(10 * time.Second); ; runtime.Gosched() {
		runtime.GC()
		runtime.ReadMemStats(&m)
		if m.NextGC < m.HeapAlloc+2*leastGarbage {
			break
		}
		if time.Now().After(end) {
			t.Fatalf("the next collection is at %d KiB, %d KiB are held; want %d more at most",
				m.NextGC>>10, m.HeapAlloc>>10, 2*leastGarbage>>10)
		}
	}
	runtime.KeepAlive(held)
	debug.SetGCPercent(before)
}
