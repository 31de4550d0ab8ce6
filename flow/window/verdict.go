//penstock:pure

package window

import "fmt"

// verdict holds the figures that Reason puts into words.
type verdict struct {
	cause              cause
	mean, base         float64
	queue, low, high   float64
	before, after      float64
	limited, threshold bool
}

type cause uint8

const (
	noCause cause = iota
	roundEnded
	timedOut
	nacked
	refused
	undone
	restarted
)

// reason puts the verdict into words.
func (v *verdict) reason() string {
	switch v.cause {
	case roundEnded:
		if v.threshold {
			return fmt.Sprintf("mean round trip %v against a threshold of %v: window %.4g to %.4g%s",
				seconds(v.mean), seconds(v.base), v.before, v.after, v.unused())
		}
		const text = "about %.1f batches queued (grows below %.1f, shrinks above %.1f; " +
			"mean round trip %v, drained %v): window %.4g to %.4g%s"
		return fmt.Sprintf(text,
			v.queue, v.low, v.high, seconds(v.mean), seconds(v.base), v.before, v.after, v.unused())
	case timedOut:
		return fmt.Sprintf("a batch was overdue: window %.4g to %.4g", v.before, v.after)
	case nacked:
		return fmt.Sprintf("a batch came back undelivered: window %.4g to %.4g", v.before, v.after)
	case refused:
		return fmt.Sprintf("what is beyond %.4g batches comes back undelivered: window %.4g to %.4g", v.after, v.before, v.after)
	case undone:
		return fmt.Sprintf("an overdue batch was answered after all: window %.4g to %.4g", v.before, v.after)
	case restarted:
		return "starts over at 1"
	}
	return "no round has ended yet"
}

func (v *verdict) unused() string {
	if v.limited {
		return ""
	}
	return ", not used to its limit"
}

// reason of a probe under way.
func (b *base) reason() string {
	return fmt.Sprintf("narrowed to %g to measure the drained round trip, %d of %d samples", b.narrow, b.probed, b.wanted())
}
