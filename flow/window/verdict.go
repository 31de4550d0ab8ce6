//penstock:pure

package window

import "fmt"

// verdict holds the last change of a window and its cause, with the figures for [Window].Reason.
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

// reason explains the last change of the window as text.
func (v *verdict) reason() string {
	switch v.cause {
	case roundEnded:
		if v.threshold {
			return fmt.Sprintf("mean round trip %v against a threshold of %v: %s%s",
				seconds(v.mean), seconds(v.base), v.moved(), v.unused())
		}
		if !v.limited && v.after < v.before && v.queue <= v.high { // an unused start-up has ended
			return "the load did not use the window: " + v.moved()
		}
		const text = "about %.1f batches queued (grows below %.1f, shrinks above %.1f; " +
			"mean round trip %v, drained %v): %s%s"
		return fmt.Sprintf(text,
			v.queue, v.low, v.high, seconds(v.mean), seconds(v.base), v.moved(), v.unused())
	case timedOut:
		return fmt.Sprintf("a batch was overdue: %s", v.moved())
	case nacked:
		return fmt.Sprintf("an attempt failed: %s", v.moved())
	case refused:
		return fmt.Sprintf("batches beyond %.4g in flight are refused: %s", v.after,
			v.moved())
	case undone:
		return fmt.Sprintf("an overdue batch was answered after all: %s", v.moved())
	case restarted:
		return "starts over at 1"
	}
	return "no round has ended yet"
}

// moved returns the old and the new size of the window as text.
func (v *verdict) moved() string {
	if v.before == v.after {
		return fmt.Sprintf("the window stays at %.4g", v.after)
	}
	return fmt.Sprintf("window %.4g to %.4g", v.before, v.after)
}

func (v *verdict) unused() string {
	if v.limited {
		return ""
	}
	return ", not used to its limit"
}

// reason describes the current probe.
func (b *base) reason() string {
	return fmt.Sprintf("narrowed to %g to measure the drained round trip, %d of %d samples",
		b.narrow, b.probed, b.samplesWanted())
}
