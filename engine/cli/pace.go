package cli

import (
	"runtime"
	"runtime/debug"
	"runtime/metrics"
)

// leastGarbage is how many bytes of garbage may pile up before it is collected, at least.
const leastGarbage = 6 << 20

// mostPercent is what makes the runtime collect a heap of leastGarbage for the first time: with 100
// it does so at 4 MiB, whatever is live.
const mostPercent = 100 * leastGarbage / (4 << 20)

// pace sets after each collection how much garbage the next one waits for. What a collection costs
// is decided by what it has to look through for pointers, which is little here. What there is most
// of is batches, tens of MiB without any pointer. The usual rule, a share of all that is held,
// would let as much garbage pile up for them as they take: it would make the process half as large
// again, and save nothing.
type pace struct{ samples []metrics.Sample }

// beginPace starts it. The runtime calls it again after each collection, on the goroutine of
// finalizers.
func beginPace() {
	p := &pace{samples: []metrics.Sample{
		{Name: "/gc/heap/live:bytes"}, {Name: "/gc/scan/heap:bytes"}, {Name: "/gc/scan/stack:bytes"}, {Name: "/gc/scan/globals:bytes"},
	}}
	p.again()
}

// again sets the pace, and comes again when the next collection has found that nobody holds the
// sentinel.
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

// percent is what debug.SetGCPercent takes, so that as much garbage may pile up as a collection has
// to look through, but leastGarbage at least. live is what the last collection has left of the
// heap, scanned what of it holds pointers, roots the stacks and variables, each in bytes.
func percent(live, scanned, roots uint64) int {
	garbage := max(scanned, leastGarbage)
	return int(min(100*garbage/max(live+roots, 1), mostPercent))
}
