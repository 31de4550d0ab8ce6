// Command ethernet shows the truncated binary exponential backoff of IEEE 802.3 with three stations
// that all want to send. A slot is the time in which a station is sure to notice a collision. After
// its kth collision, a station waits a random number of slots from 0 to 2^min(k,10) - 1.
package main

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/penstock-io/penstock/backoff"
)

const slot = 51200 * time.Nanosecond // 512 bit times at 10 Mb/s

// station has one frame to send.
type station struct {
	name  string
	at    int // the slot in which it sends next
	state backoff.State
}

func main() {
	policy := backoff.Slotted(slot, 10, 16)
	src := rand.NewPCG(802, 3)
	stations := []*station{{name: "A"}, {name: "B"}, {name: "C"}}
	for len(stations) > 0 {
		now := slices.MinFunc(stations, func(a, b *station) int { return a.at - b.at }).at
		var senders []*station
		var names []string
		for _, s := range stations {
			if s.at == now {
				senders, names = append(senders, s), append(names, s.name)
			}
		}
		if len(senders) == 1 {
			fmt.Printf("slot %2d: %s sends\n", now, names[0])
			stations = slices.DeleteFunc(stations, func(s *station) bool { return s == senders[0] })
			continue
		}
		fmt.Printf("slot %2d: %s collide\n", now, strings.Join(names, ", "))
		for _, s := range senders {
			wait, next, ok := policy.Next(s.state, src)
			if !ok { // the 16th collision, which three stations do not reach
				fmt.Printf("         %s gives up\n", s.name)
				stations = slices.DeleteFunc(stations,
					func(other *station) bool { return other == s })
				continue
			}
			s.state, s.at = next, now+1+int(wait/slot)
			fmt.Printf("         %s waits %d of at most %d slots\n", s.name, wait/slot,
				1<<min(next.N, 10)-1)
		}
	}
	fmt.Println()
	worst("802.3, which gives up at the 16th collision", backoff.Slotted(slot, 10, 16))
	worst("with 16 retries, as it is often told", backoff.Slotted(slot, 10, 17))
}

// worst prints the mean and the maximum of the sum of a frame's waits with policy p.
func worst(name string, p backoff.Policy) {
	var waits int
	var mean, longest time.Duration
	for n := range backoff.Delays(p, nil) {
		_, m, high := backoff.Bounds(p, n)
		waits, mean, longest = waits+1, mean+m, longest+high
	}
	const digits = 10 * time.Microsecond
	fmt.Printf("%s: %d waits, %v on average, %v at most\n", name, waits, mean.Round(digits),
		longest.Round(digits))
}
