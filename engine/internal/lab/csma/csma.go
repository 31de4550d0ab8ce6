//penstock:pure

// Package csma simulates stations that share an Ethernet cable, with carrier sense, collision
// detection, and the truncated binary exponential backoff of IEEE 802.3 (backoff.Slotted).
//
// [Formula] is the efficiency that Metcalfe and Boggs computed with a simple model. [Ideal]
// simulates this model. [Run] simulates the protocol itself, with stations that always have a frame
// to send. A station starts to send as soon as the cable has been idle for the interframe gap
// (1-persistent). After a collision it sends a jam signal and backs off.
//
// The package uses virtual time and random numbers from a seed. It does no I/O.
package csma

import (
	"cmp"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/penstock-io/penstock/backoff"
	"github.com/penstock-io/penstock/internal/kernel"
)

// Network has the properties of the cable, the stations and the protocol.
type Network struct {
	Stations  int
	FrameBits int
	BitRate   float64       // bits per second
	Slot      time.Duration // time until all stations know of a collision; 0 means 512 bit times
	Attempts  int           // number of attempts to send a frame before it is lost; 0 means 16
}

// Constants of IEEE 802.3, in bit times.
const (
	SlotBits     = 512
	PreambleBits = 64 // sent before each frame, not counted in FrameBits
	JamBits      = 32
	GapBits      = 96
)

// maxStations is the maximum number of stations. It bounds the time of a simulation, and no real
// Ethernet has as many stations.
const maxStations = 100_000

// MaxExponent is the number of collisions after which the backoff no longer grows.
const MaxExponent = 10

// Check returns n with defaults for zero fields, or an error if n is invalid.
func (n Network) Check() (Network, error) {
	if n.Slot == 0 && n.BitRate > 0 {
		n.Slot = n.bits(SlotBits)
	}
	n.Attempts = cmp.Or(n.Attempts, 16)
	switch {
	case n.Stations < 1 || n.Stations > maxStations:
		return n, fmt.Errorf("stations %d: want 1 to %d", n.Stations, maxStations)
	case n.FrameBits < 1 || n.FrameBits > 1<<30:
		return n, fmt.Errorf("frame bits %d: want 1 to %d", n.FrameBits, 1<<30)
	case !(n.BitRate >= 1 && n.BitRate <= 1e12):
		return n, fmt.Errorf("bit rate %v: want 1 to 1e12 bits a second", n.BitRate)
	case n.Slot < 1 || n.Slot > time.Minute:
		return n, fmt.Errorf("slot %v: want 1ns to 1m", n.Slot)
	case n.Attempts < 1 || n.Attempts > 1000:
		return n, fmt.Errorf("attempts %d: want 1 to 1000", n.Attempts)
	}
	return n, nil
}

// bits returns the time to send the given number of bits.
func (n Network) bits(count float64) time.Duration {
	return time.Duration(math.Round(count / n.BitRate * float64(time.Second)))
}

// Formula returns the share of the time in which frames are sent, by the model of Metcalfe and
// Boggs (Ethernet: Distributed Packet Switching for Local Computer Networks, CACM 1976). Each of Q
// stations sends in a slot with probability 1/Q. With probability A = (1-1/Q)^(Q-1), exactly one
// station sends and acquires the network. On average, W = (1-A)/A slots are lost before that.
func Formula(n Network) float64 {
	q := float64(n.Stations)
	a := math.Pow(1-1/q, q-1)
	frame := float64(n.FrameBits) / n.BitRate
	return frame / (frame + (1-a)/a*n.Slot.Seconds())
}

// CollisionProbability returns the probability that the nth retry of a station collides (n is the
// argument retry, at least 1). It assumes that all stations have collided equally often, and that
// each chooses one of 2^min(retry, MaxExponent) slots:
//
//	1 - (1 - 2^-min(retry, MaxExponent))^(stations - 1)
func CollisionProbability(stations, retry int) float64 {
	free := 1 - 1/float64(uint64(1)<<min(retry, MaxExponent))
	return 1 - math.Pow(free, float64(stations-1))
}

// Ideal simulates the model of Formula until the given number of frames has been sent. Like
// Formula, it returns the share of the time in which frames are sent.
func Ideal(n Network, frames int, seed uint64) float64 {
	rng := kernel.Rand(seed, uint64(n.Stations))
	lost := 0
	for range frames {
		for !acquired(rng, n.Stations) {
			lost++
		}
	}
	sent := float64(frames) * float64(n.FrameBits) / n.BitRate
	return sent / (sent + float64(lost)*n.Slot.Seconds())
}

// acquired simulates one slot and reports whether exactly one station sends in it.
func acquired(rng *rand.Rand, stations int) bool {
	senders := 0
	for range stations {
		if rng.IntN(stations) == 0 {
			if senders++; senders > 1 {
				return false
			}
		}
	}
	return senders == 1
}

// Result is the result of a simulation of the protocol.
type Result struct {
	Utilisation float64 // share of the time in which bits of successful frames were sent
	Delivered   int
	Lost        int     // frames given up after Attempts collisions
	Collisions  int     // number of times that several stations sent at once
	InARow      int     // frames whose sender also sent the previous frame
	Longest     int     // maximum number of frames that one station sent in a row
	MeanWait    float64 // mean number of slots that a station waits after a collision
}

// LostShare returns the share of lost frames, or 0 if no frame was sent.
func (r Result) LostShare() float64 {
	if r.Delivered+r.Lost == 0 {
		return 0
	}
	return float64(r.Lost) / float64(r.Delivered+r.Lost)
}

// WinsInARow returns the share of frames with the same sender as the frame before. It measures the
// capture effect. With fewer than two frames, it returns 0.
func (r Result) WinsInARow() float64 {
	if r.Delivered < 2 {
		return 0
	}
	return float64(r.InARow) / float64(r.Delivered-1)
}

// Run simulates the protocol until the given number of frames was delivered or lost. At the start,
// all stations are ready to send.
//
// A station notices a transmission half a slot after it has begun, because this is the delay of the
// longest cable between two stations. The backoff of another station may end in this half slot.
// That station then also sends, and the frames collide. A collision takes a slot and the time of
// the jam signal. Then the backoff begins. The backoff also runs while other stations send.
func Run(n Network, frames int, seed uint64) Result {
	e := ether{
		Network: n, rng: kernel.Rand(seed, uint64(n.Stations)<<32|uint64(n.FrameBits)),
		policy: backoff.Slotted(n.Slot, MaxExponent, n.Attempts), last: -1, idle: n.bits(GapBits),
	}
	e.collisions = make([]backoff.State, n.Stations)
	for i := range n.Stations {
		e.ready.At(0, i)
	}
	e.gap, e.frame, e.jam = n.bits(GapBits), n.bits(float64(PreambleBits+n.FrameBits)),
		n.bits(JamBits)
	for e.result.Delivered+e.result.Lost < frames {
		e.transmit()
	}
	if e.idle > 0 {
		e.result.Utilisation = float64(e.result.Delivered) * float64(
			n.FrameBits) / n.BitRate / e.idle.Seconds()
	}
	if e.backoffs > 0 {
		e.result.MeanWait = e.waited / float64(e.backoffs)
	}
	return e.result
}

type ether struct {
	Network
	gap, frame, jam time.Duration
	policy          backoff.Policy
	rng             *rand.Rand
	// ready has the stations, ordered by the end of their backoff, earliest first. Each station
	// always has a frame to send.
	ready      kernel.Kernel[int]
	collisions []backoff.State // number of collisions of the present frame, by station
	senders    []int
	idle       time.Duration // the cable is idle from this time on, after the interframe gap
	last, row  int           // the last sender, and the number of its frames in a row
	waited     float64       // slots of backoff in total
	backoffs   int
	result     Result
}

// transmit simulates the next transmission, of one station or of several that collide.
func (e *ether) transmit() {
	first, _ := e.ready.Due()
	begin := max(first, e.idle)
	e.senders = e.senders[:0]
	for {
		i, ok := e.ready.Next(max(begin, begin+e.Slot/2-1))
		if !ok {
			break
		}
		e.senders = append(e.senders, i)
	}
	if len(e.senders) > 1 {
		e.collide(begin)
		return
	}
	i := e.senders[0]
	end := begin + e.frame
	e.collisions[i] = backoff.State{}
	e.ready.At(end, i)
	e.idle = end + e.gap
	e.result.Delivered++
	if i == e.last {
		e.result.InARow++
		e.row++
	} else {
		e.last, e.row = i, 1
	}
	e.result.Longest = max(e.result.Longest, e.row)
}

// collide starts the backoff of the stations in e.senders. Their transmissions have collided. begin
// is the time at which the transmissions began.
func (e *ether) collide(begin time.Duration) {
	end := begin + e.Slot + e.jam
	e.idle = end + e.gap
	e.result.Collisions++
	slices.Sort(e.senders)
	for _, i := range e.senders {
		wait, next, ok := e.policy.Next(e.collisions[i], e.rng)
		if ok {
			e.waited += float64(wait / e.Slot)
			e.backoffs++
		} else {
			e.result.Lost++
			wait, next = 0, backoff.State{}
		}
		e.collisions[i] = next
		e.ready.At(end+wait, i)
	}
}
