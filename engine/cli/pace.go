package cli

import (
	"runtime"
	"runtime/debug"
	"runtime/metrics"
)

// leastGarbage is the minimum number of bytes of garbage between two collections.
const leastGarbage = 6 << 20

// mostPercent makes the runtime collect a heap of leastGarbage the first time: with 100 it collects
// at 4 MiB, regardless of the live heap.
const mostPercent = 100 * leastGarbage / (4 << 20)

// pace sets the target of the next garbage collection after each one. The cost of a collection
// depends on the memory that is scanned for pointers, which is small here: most memory is batches,
// tens of MiB without pointers. The default rule, a share of the whole heap, would allow as much
// garbage as the batches take. The process would be half as large again, with nothing gained.
type pace struct{ samples []metrics.Sample }

// beginPace starts pace. The runtime calls it again after each collection, on the goroutine of
// finalizers.
func beginPace() {
	p := &pace{samples: []metrics.Sample{
		{Name: "/gc/heap/live:bytes"}, {Name: "/gc/scan/heap:bytes"},
		{Name: "/gc/scan/stack:bytes"}, {Name: "/gc/scan/globals:bytes"},
	}}
	p.again()
}

// again sets the target, and is called again when the next collection has found the sentinel
// unreachable.
func (p *pace) again() {
	metrics.Read(p.samples)
	var bytes [4]uint64
	for i, s := range p.samples {
		if s.Value.Kind() == metrics.KindUint64 {
			bytes[i] = s.Value.Uint64()
		}
	}
	debug.SetGCPercent(percent(bytes[0], bytes[1], bytes[2]+bytes[3]))
	runtime.AddCleanup(new(*byte), (*pace).again, p)
}

// percent returns the argument of debug.SetGCPercent that allows half as much garbage as a
// collection has to scan, but at least leastGarbage. live is the size of the heap after the last collection,
// scanned its part with pointers, roots the stacks and variables, each in bytes.
func percent(live, scanned, roots uint64) int {
	garbage := max(scanned/2, leastGarbage)
	return int(min(100*garbage/max(live+roots, 1), mostPercent))
}
