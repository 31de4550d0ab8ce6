//penstock:pure

package dispatch

import (
	"math/rand/v2"
	"time"
)

// Hash sends all items of a key to the same lane. While that lane is not free, they wait. Storm's
// fields grouping does the same. It is rendezvous hashing (Thaler and Ravishankar 1998): the lane
// with the highest hash of key and lane gets the key. If a lane is added or removed, only the keys
// of this lane move.
type Hash struct{}

// Name returns "hash".
func (Hash) Name() string { return "hash" }

// New returns a chooser. It does not use src.
func (Hash) New(rand.Source) Chooser { return hash{} }

type hash struct{}

// Binding marks a chooser with a fixed lane for each item. After a failure, the state machine sends
// the item to the same lane again. While the lane of the first item in the queue is full, the state
// machine looks further back in the queue for items of other lanes.
type Binding interface {
	Chooser
	Binds()
}

func (hash) Binds() {}

func (hash) Choose(_ time.Duration, _ float64, key uint64, c []Candidate) int {
	best, highest := -1, uint64(0)
	for i := range c {
		if h := mix(key ^ mix(uint64(c[i].Lane)+1)); best < 0 || h > highest {
			best, highest = i, h
		}
	}
	if best < 0 || !c[best].Free {
		return -1
	}
	return best
}

// mix is the finalizer of SplitMix64 (Steele, Lea, Flood 2014).
func mix(x uint64) uint64 {
	x += 0x9e3779b97f4a7c15
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}
