//penstock:pure

package peers

import (
	"cmp"
	"fmt"
	"math"
	"math/rand/v2"
	"time"

	"github.com/penstock-io/penstock/flow/window"
)

// limiter is a concurrency limit of Netflix' library. The type windowed updates it at most once per
// second. An update gets the mean round trip of at least ten attempts and the maximum number of
// in-flight attempts. dropped reports whether one of the attempts failed or timed out.
type limiter interface {
	update(rtt time.Duration, inFlight float64, dropped bool)
	size() float64
	reason() string
}

const (
	sampleWindow   = time.Second
	leastSamples   = 10
	leastRoundTrip = 100 * time.Microsecond
)

// windowed is Netflix' WindowedLimit. It collects measurements for a second, and then updates its
// limiter. If it has collected fewer than leastSamples, it discards them instead.
type windowed struct {
	simple
	inner   limiter
	n       int
	sum     time.Duration
	most    float64
	dropped bool
	next    time.Duration
}

func (w *windowed) Limit() float64      { return max(1, math.Floor(w.inner.size())) }
func (w *windowed) Reason() string      { return w.inner.reason() }
func (w *windowed) Reset(time.Duration) {}

func (w *windowed) OnSample(s window.Sample) {
	if s.RoundTrip >= leastRoundTrip {
		w.n++
		w.sum += s.RoundTrip
		w.most = max(w.most, inFlight(&s))
	}
	w.end(s.Now)
}

func (w *windowed) OnTimeout(now time.Duration, _ float64) { w.dropped = true; w.end(now) }
func (w *windowed) OnNack(now time.Duration, _ float64)    { w.dropped = true; w.end(now) }

func (w *windowed) end(now time.Duration) {
	if now < w.next {
		return
	}
	if w.n >= leastSamples {
		before := w.inner.size()
		w.inner.update(w.sum/time.Duration(w.n), w.most, w.dropped)
		if w.state = window.Normal; w.inner.size() < before {
			w.state = window.Slow
		}
	}
	w.n, w.sum, w.most, w.dropped = 0, 0, 0, false
	w.next = now + sampleWindow
}

// NetflixVegas is the limit Vegas of Netflix' concurrency-limits, with its default settings.
type NetflixVegas struct{}

// Name returns "netflix_vegas".
func (NetflixVegas) Name() string { return "netflix_vegas" }

// Validate returns nil, because there are no options.
func (NetflixVegas) Validate() error { return nil }

// New returns a window for a worker.
func (NetflixVegas) New() window.Window { return &windowed{inner: newVegas(20, 1000)} }

// vegas changes its limit L so that the estimated queue stays between 3 lg L and 6 lg L. lg is the
// decimal logarithm, rounded down, and at least 1.
type vegas struct {
	limit, max float64
	smoothing  float64
	decrease   func(float64) float64
	noLoad     time.Duration
	probes     int
	jitter     float64
	rnd        *rand.Rand
}

const (
	vegasAlpha, vegasBeta = 3, 6
	// vegasProbe determines when the base is replaced. The base is usually the shortest round trip,
	// which stands for a round trip without a queue. As it may be outdated, the next round trip
	// becomes the new base after f * vegasProbe * limit updates. f is a random number from 0.5 to
	// 1.
	vegasProbe = 30
	vegasSeed  = 5681
)

func newVegas(initial, most float64) *vegas {
	v := &vegas{limit: initial, max: most, smoothing: 1, rnd: rand.New(rand.NewPCG(vegasSeed, 0))}
	v.decrease = func(l float64) float64 { return l - lg(l) }
	v.jitter = v.drawJitter()
	return v
}

func lg(l float64) float64 { return max(1, math.Floor(math.Log10(l))) }

func (v *vegas) drawJitter() float64 { return 0.5 + v.rnd.Float64()/2 }
func (v *vegas) size() float64       { return v.limit }
func (v *vegas) reason() string      { return fmt.Sprintf("base round trip %v", v.noLoad) }

func (v *vegas) update(rtt time.Duration, inFlight float64, dropped bool) {
	v.probes++
	if v.jitter*vegasProbe*v.limit <= float64(v.probes) {
		v.jitter, v.probes = v.drawJitter(), 0
		v.noLoad = rtt
		return
	}
	if v.noLoad == 0 || rtt < v.noLoad {
		v.noLoad = rtt
		return
	}
	queue := math.Ceil(v.limit * (1 - float64(v.noLoad)/float64(rtt)))
	next := v.limit
	step := lg(v.limit)
	switch {
	case dropped:
		next = v.decrease(v.limit)
	case 2*inFlight < v.limit:
		return
	case queue <= step:
		next += vegasBeta * step
	case queue < vegasAlpha*step:
		next += step
	case queue > vegasBeta*step:
		next = v.decrease(v.limit)
	default:
		return
	}
	next = max(1, min(v.max, next))
	v.limit += v.smoothing * (next - v.limit)
}

// NetflixGradient2 is the limit Gradient2 of Netflix' concurrency-limits. Zero fields mean its
// default settings.
type NetflixGradient2 struct {
	Initial, Min, Max float64 // 0 means 20, 20 and 200
}

// Name returns "netflix_gradient2".
func (NetflixGradient2) Name() string { return "netflix_gradient2" }

// Validate returns an error if a limit is negative.
func (g NetflixGradient2) Validate() error {
	if g.Initial < 0 || g.Min < 0 || g.Max < 0 {
		return fmt.Errorf("netflix_gradient2: initial %g, min %g, max %g: want positive ones",
			g.Initial, g.Min, g.Max)
	}
	return nil
}

// New returns a window for a worker.
func (g NetflixGradient2) New() window.Window {
	return &windowed{inner: &gradient2{limit: cmp.Or(g.Initial, 20), min: cmp.Or(g.Min, 20),
		max: cmp.Or(g.Max, 200)}}
}

const (
	gradientQueue     = 4
	gradientTolerance = 1.5
	gradientSmoothing = 0.2
	longWindow        = 600
	longWarmup        = 10
)

// gradient2 compares the present round trip with a moving mean of many round trips. If the present
// one is much longer than the mean, gradient2 lowers its limit.
type gradient2 struct {
	limit, min, max float64
	long, sum       float64 // seconds
	n               int
}

func (g *gradient2) size() float64  { return g.limit }
func (g *gradient2) reason() string { return fmt.Sprintf("long round trip %.4g s", g.long) }

func (g *gradient2) update(rtt time.Duration, inFlight float64, _ bool) {
	short := rtt.Seconds()
	if g.n < longWarmup {
		g.n++
		g.sum += short
		g.long = g.sum / float64(g.n)
	} else {
		const weight = 2.0 / (longWindow + 1)
		g.long = g.long*(1-weight) + short*weight
	}
	long := g.long
	if long/short > 2 {
		g.long *= 0.95
	}
	if inFlight < g.limit/2 {
		return
	}
	gradient := max(0.5, min(1, gradientTolerance*long/short))
	next := g.limit*gradient + gradientQueue
	g.limit = max(g.min, min(g.max, g.limit*(1-gradientSmoothing)+next*gradientSmoothing))
}
