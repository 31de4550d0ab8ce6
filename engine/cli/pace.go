package cli

import (
	"runtime"
	"runtime/debug"
	"runtime/metrics"
)

// leastGarbage is usually the minimum number of bytes of garbage between two garbage collections.
const leastGarbage = 6 << 20

// mostPercent is the GC percentage for the first collection. With 100 percent, this collection
// would happen at a heap of 4 MiB. With mostPercent, it happens at a heap of leastGarbage bytes.
const mostPercent = 100 * leastGarbage / (4 << 20)

// pace makes the Go runtime collect garbage more often, so that the process uses less memory. After
// each collection it sets the heap size of the next one.
//
// Without pace, the runtime allows as much garbage as there is memory in use: tens of MiB, mostly
// for batches. The process would then use about 1.5 times as much memory as with pace. The rarer
// collections would save hardly any time: batches contain no pointers, and the cost of a collection
// depends on the memory with pointers.
type pace struct{ samples []metrics.Sample }

// beginPace sets the heap size of the first collection. After each collection, the runtime calls
// the method pace.again on its goroutine for cleanups.
func beginPace() {
	p := &pace{samples: []metrics.Sample{
		{Name: "/gc/heap/live:bytes"}, {Name: "/gc/scan/heap:bytes"},
		{Name: "/gc/scan/stack:bytes"}, {Name: "/gc/scan/globals:bytes"},
	}}
	p.again()
}

// again sets the heap size of the next collection. It also creates an unreachable object whose
// cleanup is p.again. So the runtime calls p.again after the next collection.
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

// percent returns the argument for debug.SetGCPercent. With it, the runtime allows scanned/2 bytes
// of garbage, but at least leastGarbage. The result is at most mostPercent, even if this allows
// less garbage. The arguments of percent are in bytes. live is the size of the heap after the last
// collection, scanned is the part of it with pointers, and roots is the size of stacks and global
// variables.
func percent(live, scanned, roots uint64) int {
	garbage := max(scanned/2, leastGarbage)
	return int(min(100*garbage/max(live+roots, 1), mostPercent))
}
