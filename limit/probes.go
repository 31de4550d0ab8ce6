//penstock:pure

package limit

import (
	"time"

	"github.com/penstock-io/penstock/flow/window"
)

// probes narrows the window now and then, to measure the server's round trip without a queue. It
// does so only while calls reach the limit. If they do not, the queue at the server is empty often
// enough without a probe.
//
// Probes are due at whole multiples of their interval on the wall clock. So all clients of a server
// narrow their windows at the same time, and the queue at the server drains. If one client probed
// alone, it would measure the queue of the other clients and take it for the server's round trip.
// Its own queue would then grow with theirs.
//
//	client A  ████████▃▃████████▃▃███
//	client B  ████████▃▃████████▃▃███
//	queue     ▅▅▅▅▅▅▅▅▁ ▁▅▅▅▅▅▅▅▁ ▁▅▅
type probes struct {
	window window.Prober // nil if the window needs no probes
	clock  time.Duration // time on the wall clock at the origin
	due    time.Duration // when the next probe may begin; zero means none is planned
	every  time.Duration // interval for which due was planned
	ends   time.Duration // latest end of the current probe
	busy   int           // successes in a row that found the limit reached
}

const (
	probeBusy    = 16  // successes in a row that found the limit reached, before a probe may begin
	probeLongest = 80  // round trips: a probe of a single call at a time takes 64
	probeLate    = 0.1 // share of the interval: a probe that is later than this is skipped
)

// sampled begins or ends a probe after a successful call. The parameter limited reports whether
// calls reached the limit while the call ran. The parameter mean is the smoothed round trip in
// seconds.
func (p *probes) sampled(now time.Duration, limited bool, mean float64) {
	if p.window == nil {
		return
	}
	if p.busy++; !limited {
		p.busy = 0
	}
	if p.window.Probing() {
		if now < p.ends {
			return
		}
		p.window.EndProbe(now)
	}
	within := p.window.ProbeWithin()
	if within == 0 {
		p.due = 0
		return
	}
	every := interval(within)
	if p.due == 0 || p.every != every || now > p.due+time.Duration(probeLate*float64(every)) {
		p.every = every
		p.due = now + every - (now+p.clock)%every
	}
	if now < p.due || p.busy < probeBusy {
		return
	}
	p.due = 0
	p.ends = now + max(time.Second, seconds(probeLongest*mean))
	p.window.BeginProbe(now)
}

// interval returns the smallest of 1s, 5s, 10s, 20s, 40s, ... (doubling) that is not below d. Each
// of these is a multiple of the smaller ones, so that the probes of clients with different
// intervals coincide.
func interval(d time.Duration) time.Duration {
	if d <= time.Second {
		return time.Second
	}
	every := 5 * time.Second
	for every < d {
		every *= 2
	}
	return every
}
