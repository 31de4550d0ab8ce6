//penstock:pure

package control

import "strconv"

// String returns the name, such as "offer".
func (k Kind) String() string {
	return nameOf(int(k), "offer", "answer", "tick", "lane up", "lane down", "saved", "cut",
		"piece", "buried", "withdraw", "abort",
		"held")
}

// String returns the name, such as "timed out". The zero Outcome, which LaneStatus.Fault uses for
// no fault, is "none".
func (o Outcome) String() string {
	if o == 0 {
		return "none"
	}
	return nameOf(int(o), "delivered", "throttled", "retryable", "timed out", "rejected", "misconfigured", "split")
}

// String returns the name, such as "start".
func (k CommandKind) String() string {
	return nameOf(int(k), "start", "cancel", "settle", "bisect", "bury", "wait", "defer")
}

// String returns the name, such as "probe".
func (w Reason) String() string {
	if w == InOrder {
		return "turn"
	}
	return nameOf(int(w), "probe", "twin", "deadly", "failing", "apart", "exhausted", "withdrawn")
}

// nameOf returns the name of v, which counts from 1.
func nameOf(v int, names ...string) string {
	if v < 1 || v > len(names) {
		return "unknown (" + strconv.Itoa(v) + ")"
	}
	return names[v-1]
}
