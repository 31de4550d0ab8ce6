package cli

import (
	"runtime"
	"runtime/debug"
	"runtime/metrics"
)

// leastGarbage is the minimum number of bytes of garbage between two collections.
const leastGarbage = 6 << 20

// mostPercent is the GC percentage with which the first collection happens at a heap of
// leastGarbage. With 100 percent it would happen at 4 MiB.
const mostPercent = 100 * leastGarbage / (4 << 20)

// pace sets the target of the next garbage collection after each collection. The cost of a
// collection depends on the memory with pointers, which is small here: most memory is batches,
// which are tens of MiB without pointers. The runtime's default rule allows garbage in
// proportion to the whole heap, including the batches. The process would then use half as much
// memory again without saving noticeable time.
type pace struct{ samples []metrics.Sample }

// beginPace sets the first target. After each collection the runtime calls the method again, on
// a goroutine for cleanups.
func beginPace() {
	p := &pace{samples: []metrics.Sample{
		{Name: "/gc/heap/live:bytes"}, {Name: "/gc/scan/heap:bytes"},
		{Name: "/gc/scan/stack:bytes"}, {Name: "/gc/scan/globals:bytes"},
	}}
	p.again()
}

// again sets the target, and registers itself as the cleanup of a new object. The object is
// unreachable, so the next collection causes another call.
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

// percent returns the argument for debug.SetGCPercent. It allows half as much garbage as a
// collection has to scan, but at least leastGarbage. All sizes are in bytes: live is the heap
// after the last collection, scanned the part of it with pointers, and roots the stacks and
// global variables.
func percent(live, scanned, roots uint64) int {
	garbage := max(scanned/2, leastGarbage)
	return int(min(100*garbage/max(live+roots, 1), mostPercent))
}
