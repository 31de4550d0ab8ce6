//penstock:pure

package supervise

import "time"

// recent counts restarts in a sliding window. It keeps the times of the last Max restarts in a
// ring, so that allow takes O(1).
type recent struct {
	Intensity
	times []time.Duration // a ring once it has Max entries
	at    int             // the oldest
}

// allow records a restart and reports whether the limit allows it. As in OTP's supervisor, two
// restarts both count if the time between them is exactly Within.
func (r *recent) allow(now time.Duration) bool {
	switch {
	case r.Max == 0:
		return true
	case len(r.times) < r.Max:
		r.times = append(r.times, now)
		return true
	}
	oldest := r.times[r.at]
	r.times[r.at] = now
	r.at = (r.at + 1) % r.Max
	return now-oldest > r.Within
}
