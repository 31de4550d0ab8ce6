package csma_test

import (
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/penstock-io/penstock/backoff"
	"github.com/penstock-io/penstock/engine/internal/lab/csma"
)

// The table of Metcalfe and Boggs: 3 Mb/s, a slot of 16 us, packets of 4096, 1024, 512 and 48 bits.
var metcalfeBoggs = []struct {
	stations   int
	efficiency [4]float64
}{
	{2, [4]float64{.9884, .9552, .9143, .5000}},
	{5, [4]float64{.9834, .9367, .8810, .4096}},
	{10, [4]float64{.9818, .9310, .8709, .3874}},
	{64, [4]float64{.9805, .9263, .8627, .3708}},
	{256, [4]float64{.9803, .9257, .8616, .3686}},
}

var packetBits = [4]int{4096, 1024, 512, 48}

func network(t *testing.T, n csma.Network) csma.Network {
	t.Helper()
	n, err := n.Check()
	if err != nil {
		t.Fatal(err)
	}
	return n
}

func TestFormulaReproducesTheTable(t *testing.T) {
	for _, row := range metcalfeBoggs {
		for i, bits := range packetBits {
			n := network(t, csma.Network{Stations: row.stations, FrameBits: bits, BitRate: 3e6,
				Slot: 16 * time.Microsecond})
			if got := csma.Formula(n); math.Abs(got-row.efficiency[i]) > .00005 {
				t.Errorf("%d stations, %d bits: %.5f, want %.4f", row.stations, bits, got,
					row.efficiency[i])
			}
		}
	}
	// 10 Mb/s, with so many stations that A is nearly its limit, 1/e.
	for bytes, want := range map[int]float64{64: .368, 512: .823, 1518: .932} {
		n := network(t, csma.Network{Stations: 100000, FrameBits: bytes * 8, BitRate: 10e6})
		if got := csma.Formula(n); math.Abs(got-want) > .002 {
			t.Errorf("%d bytes: %.4f, want %.3f", bytes, got, want)
		}
	}
	if got := csma.Formula(network(t,
		csma.Network{Stations: 1, FrameBits: 512, BitRate: 10e6})); got != 1 {
		t.Errorf("one station alone: %v, want 1", got)
	}
}

// TestCollisionProbability compares the formula with a simulation in which stations draw their
// waits from the policy.
func TestCollisionProbability(t *testing.T) {
	const rounds = 20_000
	policy := backoff.Slotted(1, csma.MaxExponent, 0)
	src := rand.NewPCG(802, 3)
	for _, stations := range []int{2, 5, 32} {
		for _, retry := range []int{1, 2, 4, 10, 12} {
			collided := 0
			for range rounds {
				state := backoff.State{N: uint32(retry - 1), Step: uint32(retry - 1)}
				own, _, _ := policy.Next(state, src)
				for range stations - 1 {
					if other, _, _ := policy.Next(state, src); other == own {
						collided++
						break
					}
				}
			}
			got, want := float64(collided)/rounds, csma.CollisionProbability(stations, retry)
			if deviation := math.Sqrt(want * (1 - want) / rounds); math.Abs(got-
				want) > 5*deviation {
				t.Errorf("%d stations, retry %d: simulated %.4f, formula %.4f", stations, retry,
					got, want)
			}
		}
	}
}

func TestIdealComesNearTheFormula(t *testing.T) {
	for _, row := range metcalfeBoggs {
		for _, bits := range packetBits {
			n := network(t, csma.Network{Stations: row.stations, FrameBits: bits, BitRate: 3e6,
				Slot: 16 * time.Microsecond})
			for seed := range uint64(3) {
				if ideal, formula := csma.Ideal(n, 5000, seed),
					csma.Formula(n); math.Abs(ideal-formula) > .02 {
					t.Errorf("%d stations, %d bits, seed %d: simulated %.4f, computed %.4f",
						row.stations, bits, seed, ideal, formula)
				}
			}
		}
	}
}

// TestRealBackoff compares a saturated network of 10 Mb/s with reference values from another model.
// It compares the utilisation and, for the long frames, the share that is lost after 16
// transmissions.
func TestRealBackoff(t *testing.T) {
	for _, c := range []struct {
		bytes, stations   int
		utilisation, lost float64
	}{
		{64, 2, .757, -1}, {64, 8, .722, -1}, {64, 32, .544, -1}, {64, 64, .374, -1},
		{512, 2, .956, -1}, {512, 8, .919, -1}, {512, 32, .823, -1}, {512, 64, .779, -1},
		{1518, 2, .980, .006}, {1518, 8, .951, .041}, {1518, 32, .914, .15}, {1518, 64, .901, .27},
	} {
		r := csma.Run(network(t, csma.Network{Stations: c.stations, FrameBits: c.bytes * 8,
			BitRate: 10e6}), 50000, 1)
		if math.Abs(r.Utilisation-c.utilisation) > .03 {
			t.Errorf("%d stations, %d bytes: utilisation %.3f, want about %.3f", c.stations,
				c.bytes, r.Utilisation, c.utilisation)
		}
		if c.lost >= 0 && math.Abs(r.LostShare()-c.lost) > .02 {
			t.Errorf("%d stations, %d bytes: %.3f lost, want about %.3f", c.stations, c.bytes,
				r.LostShare(), c.lost)
		}
	}
}

// TestCapture checks that the station that has sent last is likely to send again, because a success
// resets its backoff. With two stations, it nearly always sends again. A network with one station
// has no collisions.
func TestCapture(t *testing.T) {
	two := csma.Run(network(t, csma.Network{Stations: 2, FrameBits: 12144, BitRate: 10e6}),
		20000, 2)
	if two.WinsInARow() < .98 || two.Longest < 100 {
		t.Errorf("of two stations the same one wins again with %.3f, at most %d times running",
			two.WinsInARow(), two.Longest)
	}
	many := csma.Run(network(t, csma.Network{Stations: 64, FrameBits: 12144, BitRate: 10e6}),
		20000, 2)
	if many.WinsInARow() >= two.WinsInARow() {
		t.Errorf("64 stations capture more (%.3f) than 2 (%.3f)", many.WinsInARow(),
			two.WinsInARow())
	}
	one := csma.Run(network(t, csma.Network{Stations: 1, FrameBits: 12144, BitRate: 10e6}), 1000, 2)
	if want := 12144.0 / (12144 + 64 + 96); one.Collisions != 0 || one.Lost != 0 ||
		math.Abs(one.Utilisation-want) > .001 {
		t.Errorf("one station: %+v, want no collision and a utilisation of %.4f", one, want)
	}
}

// TestLongestWaits checks the total wait of a frame that is given up, at its longest and its mean.
// With 16 attempts, as in 802.3, there are 15 waits. Some articles assume 16 retries, and so 16
// waits.
func TestLongestWaits(t *testing.T) {
	const slot = 51200 * time.Nanosecond
	for attempts, want := range map[int]struct {
		waits           int
		slots           int64
		total, expected string
	}{
		16: {15, 7151, "366.13ms", "183.07ms"},
		17: {16, 8174, "418.51ms", "209.25ms"},
	} {
		p := backoff.Slotted(slot, csma.MaxExponent, attempts)
		var longest, mean time.Duration
		waits := 0
		for n := range backoff.Delays(p, nil) {
			_, m, hi := backoff.Bounds(p, n)
			longest, mean = longest+hi, mean+m
			waits++
		}
		const digits = 10 * time.Microsecond
		if waits != want.waits || longest != time.Duration(want.slots)*slot ||
			longest.Round(digits).String() != want.total ||
			mean.Round(digits).String() != want.expected {
			t.Errorf("%d attempts: %d waits, at most %v, mean %v; want %d, %s, %s",
				attempts, waits, longest, mean, want.waits, want.total, want.expected)
		}
	}
}

func TestCheck(t *testing.T) {
	n := network(t, csma.Network{Stations: 2, FrameBits: 512, BitRate: 100e6})
	if n.Slot != 5120*time.Nanosecond || n.Attempts != 16 {
		t.Errorf("defaults %+v, want the slot of 100 Mb/s and 16 attempts", n)
	}
	good := csma.Network{Stations: 2, FrameBits: 512, BitRate: 10e6}
	for name, spoil := range map[string]func(*csma.Network){
		"stations":      func(n *csma.Network) { n.Stations = 0 },
		"frame":         func(n *csma.Network) { n.FrameBits = 0 },
		"rate 0":        func(n *csma.Network) { n.BitRate = 0 },
		"rate NaN":      func(n *csma.Network) { n.BitRate = math.NaN() },
		"slot":          func(n *csma.Network) { n.Slot = -1 },
		"attempts":      func(n *csma.Network) { n.Attempts = -1 },
		"too many":      func(n *csma.Network) { n.Stations = 1 << 40 },
		"rate infinite": func(n *csma.Network) { n.BitRate = math.Inf(1) },
	} {
		n := good
		spoil(&n)
		if _, err := n.Check(); err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
}

func TestSameSeedSameRun(t *testing.T) {
	n := network(t, csma.Network{Stations: 8, FrameBits: 4096, BitRate: 10e6})
	if a, b := csma.Run(n, 3000, 7), csma.Run(n, 3000, 7); a != b {
		t.Errorf("%+v and %+v", a, b)
	}
	if a, b := csma.Run(n, 3000, 7), csma.Run(n, 3000, 8); a == b {
		t.Error("two seeds gave one run")
	}
}
