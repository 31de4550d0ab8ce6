//penstock:pure

package supervise

import (
	"cmp"
	"fmt"
	"math"
	"math/rand/v2"
	"time"
)

// Decay is the restart policy of github.com/thejerf/suture/v4. Whenever a child ends and must be
// restarted, with or without an error, the supervisor adds 1 to a count. The count halves every
// HalfLife. While the count is at most Threshold, the child is restarted at once. When the count
// exceeds Threshold, a pause begins, of a random length in [Pause, 1.5 * Pause). All restarts of
// the supervisor wait until the pause has ended. If another child ends during the pause and the
// count still exceeds Threshold, a new pause begins. At the end of the pause the count is set to 0.
//
// Unlike in suture, the waiting children then start one after the other, at intervals of
// Spec.Stagger.
type Decay struct {
	HalfLife  time.Duration // 0 means 30 s
	Threshold float64       // 0 means 5
	Pause     time.Duration // 0 means 15 s
	Exact     bool          // the pause is exactly Pause
}

func (d Decay) withDefaults() (Decay, error) {
	if d.HalfLife < 0 || d.Pause < 0 || !(d.Threshold >= 0) || math.IsInf(d.Threshold, 1) {
		return d, fmt.Errorf("decay: half life %v, threshold %v, pause %v: want 0 or more, and "+
			"finite",
			d.HalfLife, d.Threshold, d.Pause)
	}
	d.HalfLife = cmp.Or(d.HalfLife, 30*time.Second)
	d.Threshold = cmp.Or(d.Threshold, 5)
	d.Pause = cmp.Or(d.Pause, 15*time.Second)
	return d, nil
}

// decaying is the state of the Decay policy of one supervisor: the count of ends, and the pause.
type decaying struct {
	failures float64
	last     time.Duration // time of the latest end
	gate     time.Duration // earliest restart
	paused   bool
}

// failed counts the end of a child and returns the length of the pause that starts with it. Zero
// means that no pause starts: the child is restarted at once, or after the current pause.
func (c *decaying) failed(d Decay, now time.Duration, src rand.Source) time.Duration {
	c.failures = c.failures*math.Exp2(-(now-c.last).Seconds()/d.HalfLife.Seconds()) + 1
	c.last = now
	if c.failures <= d.Threshold {
		return 0
	}
	pause := d.Pause
	if !d.Exact {
		pause = plus(pause, time.Duration(float64(pause)/2*fraction(src)))
	}
	c.paused, c.gate = true, plus(now, pause)
	return pause
}

// resume ends a pause that is over, and reports whether it did.
func (c *decaying) resume(now time.Duration) bool {
	if !c.paused || now < c.gate {
		return false
	}
	c.paused, c.failures = false, 0
	return true
}

// fraction returns a random number in [0, 1).
func fraction(src rand.Source) float64 {
	return float64(src.Uint64()>>11) / (1 << 53)
}
