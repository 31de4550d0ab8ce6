package contention_test

import (
	"math"
	"slices"
	"testing"
	"time"

	"github.com/penstock-io/penstock/backoff"
	"github.com/penstock-io/penstock/engine/internal/lab/contention"
)

func policy(t *testing.T, name string) backoff.Policy {
	t.Helper()
	p, err := contention.Resolve(name)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// table has the mean time in ms and the mean number of calls for 10, 50, 100 and 190 clients. They
// were measured with a port of the AWS simulator, in runs of 100 trials. The values for 100 clients
// are means of 20 runs with different seeds. deviation and callsSD are the standard deviations of
// the mean of one run. The values for other numbers of clients are from one run each.
var table = []struct {
	policy             string
	time10, calls10    float64
	time50, calls50    float64
	time100, deviation float64
	calls100, callsSD  float64
	time190, calls190  float64
}{
	{policy: "none", time10: 379, calls10: 51, time50: 1139, calls50: 689, time100: 2026,
		deviation: 5, calls100: 2422, callsSD: 3,
		time190: 3536, calls190: 8006},
	{policy: "exponential", time10: 3395, calls10: 51, time50: 36487, calls50: 624, time100: 63493,
		deviation: 316,
		calls100:  1856, callsSD: 5, time190: 101021, calls190: 5158},
	{policy: "equal", time10: 729, calls10: 43, time50: 4242, calls50: 347, time100: 6626,
		deviation: 62, calls100: 812, callsSD: 1,
		time190: 9423, calls190: 1760},
	{policy: "full", time10: 463, calls10: 39, time50: 2874, calls50: 332, time100: 4940,
		deviation: 62, calls100: 796, callsSD: 1,
		time190: 7443, calls190: 1772},
	{policy: "decorrelated", time10: 436, calls10: 38, time50: 2226, calls50: 375, time100: 4558,
		deviation: 69,
		calls100:  1002, callsSD: 4, time190: 7882, calls190: 2434},
	{policy: "polly", time10: 523, calls10: 41, time50: 3252, calls50: 339, time100: 6177,
		deviation: 119, calls100: 800, callsSD: 1,
		time190: 11243, calls190: 1743},
	{policy: "cenkalti", time10: 491, calls10: 41, time50: 2149, calls50: 377, time100: 4603,
		deviation: 83, calls100: 933, callsSD: 1,
		time190: 8700, calls190: 2105},
	{policy: "hadoop", time10: 626, calls10: 39, time50: 3585, calls50: 313, time100: 6511,
		deviation: 98, calls100: 733, callsSD: 1,
		time190: 9799, calls190: 1589},
	{policy: "pekko", time10: 1496, calls10: 46, time50: 8997, calls50: 391, time100: 13739,
		deviation: 97, calls100: 927, callsSD: 1,
		time190: 19630, calls190: 2050},
	{policy: "jpillora", time10: 497, calls10: 40, time50: 3156, calls50: 335, time100: 5929,
		deviation: 76, calls100: 794, callsSD: 1,
		time190: 10007, calls190: 1739},
	{policy: "slotted", time10: 486, calls10: 36, time50: 3526, calls50: 301, time100: 8558,
		deviation: 202, calls100: 717, callsSD: 1,
		time190: 15836, calls190: 1561},
	{policy: "full_latency", time10: 605, calls10: 28, time50: 3132, calls50: 228, time100: 5039,
		deviation: 47,
		calls100:  557, callsSD: 1, time190: 7499, calls190: 1281},
	{policy: "recommended", time10: 577, calls10: 27, time50: 2434, calls50: 234, time100: 4452,
		deviation: 33,
		calls100:  596, callsSD: 1, time190: 7285, calls190: 1414},
}

// TestTable compares the mean times and calls of 100 trials with those in table, which a port of
// the AWS simulator has measured. With -short, it tests only 10 and 100 clients.
func TestTable(t *testing.T) {
	const trials = 100
	for _, row := range table {
		t.Run(row.policy, func(t *testing.T) {
			p := policy(t, row.policy)
			check := func(clients int, ms, msSD, calls, callsSD float64) {
				f := contention.Measure(p, clients, trials, 1)
				root := math.Sqrt(trials)
				ours, oursSD := f.Time.Seconds()*1000, f.TimeDeviation.Seconds()*1000/root
				if msSD == 0 { // the table's row is also a single run
					msSD, callsSD = oursSD, f.CallsSD/root
				}
				// Half a unit, because the table is rounded.
				if d := math.Abs(ours - ms); d > 3*math.Hypot(oursSD, msSD)+.5 {
					t.Errorf("%d clients: %.0f ms, want %.0f: %.1f deviations away", clients, ours,
						ms, d/math.Hypot(oursSD, msSD))
				}
				if d := math.Abs(f.Calls - calls); d > 3*math.Hypot(f.CallsSD/root, callsSD)+.5 {
					t.Errorf("%d clients: %.1f calls, want %.0f", clients, f.Calls, calls)
				}
			}
			check(10, row.time10, 0, row.calls10, 0)
			check(100, row.time100, row.deviation, row.calls100, row.callsSD)
			if testing.Short() {
				return
			}
			check(50, row.time50, 0, row.calls50, 0)
			check(190, row.time190, 0, row.calls190, 0)
		})
	}
}

// TestRecommendedBeatsFullJitter checks that the recommended policy needs less time and fewer calls
// than full jitter, from 50 to 190 clients.
func TestRecommendedBeatsFullJitter(t *testing.T) {
	counts := []int{50, 70, 100, 140, 190}
	if testing.Short() {
		counts = []int{50, 100, 190}
	}
	for _, n := range counts {
		const trials = 100
		r := contention.Measure(policy(t, "recommended"), n, trials, 1)
		f := contention.Measure(policy(t, "full"), n, trials, 1)
		if r.Time >= f.Time || r.Calls >= f.Calls {
			t.Errorf("%d clients: recommended %v and %.0f calls, full jitter %v and %.0f", n,
				r.Time, r.Calls, f.Time, f.Calls)
		}
	}
}

func TestRunIsExact(t *testing.T) {
	p := policy(t, "full")
	if a, b := contention.Run(p, 30, 5, 6), contention.Run(p, 30, 5, 6); a != b {
		t.Errorf("%+v and %+v from one seed", a, b)
	}
	if a, b := contention.Run(p, 30, 5, 6), contention.Run(p, 30, 5, 7); a == b {
		t.Error("two trials gave one course")
	}
	one := contention.Run(p, 1, 1, 1)
	if one.Calls != 1 || one.Time < 20*time.Millisecond || one.Time > 60*time.Millisecond {
		t.Errorf("one client: %+v, want one call in about 40 ms", one)
	}
	ends := contention.Run(backoff.Limit(backoff.Fixed(0), 2), 20, 1, 1)
	if ends.GaveUp == 0 || ends.Calls > 40 {
		t.Errorf("twenty clients of two attempts each: %+v", ends)
	}
}

// TestOutage compares policies for an outage. For example, a fixed wait must waste more attempts
// than a growing one, and jitter must spread the first calls after the recovery.
func TestOutage(t *testing.T) {
	run := func(spec string, clients int, length time.Duration) contention.Loss {
		return contention.MeasureOutage(policy(t, spec), clients, length, 5, 1)
	}
	const exponential, jittered = "exponential base=100ms max=30s",
		"exponential base=100ms max=30s jitter=full"
	short := run("fixed delay=1s", 100, 50*time.Millisecond)
	if quick := run("fibonacci unit=10ms max=30s", 100,
		50*time.Millisecond); quick.Delay >= short.Delay {
		t.Errorf("after 50 ms away fibonacci comes %v late, fixed 1 s %v: fixed should be late",
			quick.Delay, short.Delay)
	}
	fixed, growing := run("fixed delay=100ms", 1, 10*time.Minute),
		run(exponential, 1, 10*time.Minute)
	if fixed.Wasted < 50*growing.Wasted {
		t.Errorf("in 10 minutes fixed wastes %.0f attempts, exponential %.0f: "+
			"far more were expected", fixed.Wasted, growing.Wasted)
	}
	if growing.Delay <= fixed.Delay {
		t.Errorf("exponential comes %v after the recovery, fixed %v", growing.Delay, fixed.Delay)
	}
	together, apart := run(exponential, 100, 10*time.Minute), run(jittered, 100, 10*time.Minute)
	if together.Burst < 90 || apart.Burst > 10 {
		t.Errorf("of 100 clients %v come back within 50 ms without jitter, %v with", together.Burst,
			apart.Burst)
	}
	none := run("none", 1, time.Second)
	want := float64(time.Second / (2 * contention.HopMean))
	if none.Wasted < want-2 || none.Wasted > want*1.1 || none.Delay > 2*contention.HopMean {
		t.Errorf("without a wait: %+v", none)
	}
	if gone := run("slotted slot=51.2us attempts=16", 10, 5*time.Second); gone.GaveUp != 10 ||
		gone.Burst != 0 {
		t.Errorf("802.3 ends within 0.4 s: %+v, want all to give up", gone)
	}
}

func TestResolve(t *testing.T) {
	for _, n := range contention.Names {
		if p, err := contention.Resolve(n.Name); err != nil || p != n.Policy ||
			backoff.Validate(p) != nil {
			t.Errorf("%s: %v, %v", n.Name, p, err)
		}
	}
	if !slices.ContainsFunc(contention.Names,
		func(n contention.Named) bool { return n.Name == "recommended" }) {
		t.Error("recommended has no name")
	}
	for _, text := range []string{"", "best", "exponential base=x", "full jitter"} {
		if _, err := contention.Resolve(text); err == nil {
			t.Errorf("%q was taken", text)
		}
	}
}
