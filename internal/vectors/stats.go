package vectors

import (
	"cmp"
	"math"
	"slices"
	"strconv"
	"testing"
	"time"
)

// deviations is the number of standard errors by which a value measured from our draws may differ
// from that of the library. In a normal distribution, a share of 8e-11 of the values lies further
// from the mean than 6.5 standard errors. So if a run makes 10,000 comparisons, the probability
// that it refuses a correct policy is below 1e-6. Seeds are fixed, so each run gives the same
// result.
const deviations = 6.5

// beyond returns the number of our draws that may lie above the library's highest draw, or below
// its lowest. If all draws come from one distribution, at least k of our N draws lie beyond all S
// draws of the library with a probability of at most (N/(N+S))^k. beyond returns a k for which this
// is below 1e-9. The parameter theirs is S, and ours is N.
func beyond(theirs, ours int) int {
	return int(math.Ceil(math.Log(1e-9)/math.Log(float64(ours)/float64(ours+theirs)))) + 1
}

// Sample compares the random waits of one step, such as the third wait of a backoff, with those of
// the original library. It has the library's distribution and our own draws. The draws must have
// the range, mean, standard deviation, quantiles and atoms (frequent values) of the distribution,
// and the same correlation with the step before.
type Sample struct {
	samples int
	step    Step
	ours    []time.Duration
	before  []time.Duration // our draws of the step before; nil if steps are independent
}

// Check fails t if our draws differ from the library's distribution.
func (s Sample) Check(t *testing.T) {
	t.Helper()
	sorted := slices.Sorted(slices.Values(s.ours))
	if s.step.Min == s.step.Max { // constant, but for rare draws
		below, upTo := share(sorted, s.step.Min.Duration())
		if others, most := len(sorted)-(upTo-below), beyond(s.samples, len(sorted)); others > most {
			t.Errorf("n = %d: %v to %v, and %d of %d draws are not the %d ns that the library "+
				"always gave; want at most %d",
				s.step.N, sorted[0], sorted[len(sorted)-1], others, len(sorted), s.step.Min, most)
		}
		return
	}
	s.checkSupport(t, sorted)
	s.checkMoments(t)
	s.checkQuantiles(t, sorted)
	s.checkAtoms(t, sorted)
	s.checkCorrelation(t)
}

func (s Sample) checkSupport(t *testing.T, sorted []time.Duration) {
	t.Helper()
	below, _ := slices.BinarySearch(sorted, s.step.Min.Duration())
	_, above := share(sorted, s.step.Max.Duration())
	above = len(sorted) - above
	if most := beyond(s.samples, len(sorted)); below > most || above > most {
		t.Errorf("n = %d: of %d draws %d are below the library's lowest, %d ns, and %d above its "+
			"highest, %d ns; want at most %d",
			s.step.N, len(sorted), below, s.step.Min, above, s.step.Max, most)
	}
	// If 1 % of the library's draws lie within a twentieth of the range from an end, the library
	// has many draws near this end. Then even a single draw of ours that lies more than a fiftieth
	// of the range beyond the end is an error. Otherwise the library's extreme is accidental.
	// Example: a cap limits most draws to the same value, so only few draws are near the low end.
	width := float64(s.step.Max) - float64(s.step.Min)
	lo, hi := float64(sorted[0]), float64(sorted[len(sorted)-1])
	dense := func(key string, end Nanos) bool {
		q, ok := s.step.Quantiles[key]
		return ok && math.Abs(float64(q)-float64(end)) <= width/20
	}
	if dense("0.01", s.step.Min) && lo < float64(s.step.Min)-width/50 ||
		dense("0.99", s.step.Max) && hi > float64(s.step.Max)+width/50 {
		t.Errorf("n = %d: draws from %v to %v ns, want %d to %d ns", s.step.N, lo, hi, s.step.Min,
			s.step.Max)
	}
}

// checkMoments compares the mean and the standard deviation of our draws with those of the library.
// It does nothing if the library's lowest or highest value is the lowest or highest int64. This
// limit stands for all values beyond int64 (see [Nanos]), so mean and deviation say nothing.
func (s Sample) checkMoments(t *testing.T) {
	t.Helper()
	if cut(s.step.Min) || cut(s.step.Max) {
		return
	}
	mean, m2, m4 := moments(s.ours)
	n, m := float64(len(s.ours)), float64(s.samples)
	sd, want := math.Sqrt(m2), float64(s.step.Deviation)
	// If the distribution has a long thin tail, our draws may contain nearly no value from it.
	// Their standard deviation is then too small, and the library's is the better estimate.
	scale := 1.0
	if sd > 0 {
		scale = max(1, want/sd)
	}
	m2, m4 = m2*scale*scale, m4*scale*scale*scale*scale
	if off := deviations*math.Sqrt(m2/n+want*want/m) +
		1; math.Abs(mean-float64(s.step.Mean)) > off {
		t.Errorf("n = %d: mean %.0f ns, want %d within %.0f", s.step.N, mean, s.step.Mean, off)
	}
	// The variance of a sample variance is (m4 - m2^2)/n. The relative error of a deviation is half
	// of the relative error of its variance.
	if off := deviations*math.Sqrt(max(m4-m2*m2, 0)*(1/n+1/m))/(2*sd*scale) + 1 +
		sd*50/n; math.Abs(sd-want) > off {
		t.Errorf("n = %d: deviation %.0f ns, want %.0f within %.0f", s.step.N, sd, want, off)
	}
}

func cut(n Nanos) bool { return n == math.MaxInt64 || n == math.MinInt64 }

func moments(list []time.Duration) (mean, m2, m4 float64) {
	for _, d := range list {
		mean += float64(d) / float64(len(list))
	}
	for _, d := range list {
		x := (float64(d) - mean) * (float64(d) - mean)
		m2 += x / float64(len(list))
		m4 += x * x / float64(len(list))
	}
	return mean, m2, m4
}

// checkQuantiles compares the share of our draws below each of the library's quantiles with the
// share that the quantile stands for. This needs no density of the distribution, so it is right for
// distributions with atoms, too.
func (s Sample) checkQuantiles(t *testing.T, sorted []time.Duration) {
	t.Helper()
	for key, value := range s.step.Quantiles {
		q, err := strconv.ParseFloat(key, 64)
		if err != nil {
			t.Fatalf("quantile %q: %v", key, err)
		}
		below, upTo := share(sorted, value.Duration())
		low, high := float64(below)/float64(len(sorted)), float64(upTo)/float64(len(sorted))
		if q < low && !sameShare(low, q, len(sorted), s.samples) ||
			q > high && !sameShare(high, q, len(sorted), s.samples) {
			t.Errorf("n = %d: quantile %s is %d ns in the library, ours are %.4f below and "+
				"%.4f up to it", s.step.N, key, value, low, high)
		}
	}
}

// share returns the number of draws below v and the number of draws up to and including v.
func share(sorted []time.Duration, v time.Duration) (below, upTo int) {
	below, _ = slices.BinarySearch(sorted, v)
	upTo, _ = slices.BinarySearchFunc(sorted, v, func(d, v time.Duration) int {
		if d <= v {
			return -1
		}
		return cmp.Compare(d, v)
	})
	return below, upTo
}

// sameShare reports whether the share a of n draws and the share b of m draws can be estimates of
// the same probability. They may differ by 6.5 standard errors (deviations) and a few draws.
func sameShare(a, b float64, n, m int) bool {
	p := (a*float64(n) + b*float64(m)) / (float64(n) + float64(m))
	off := deviations*math.Sqrt(p*(1-p)*(1/float64(n)+1/float64(m))) + 8/float64(n)
	return math.Abs(a-b) <= off
}

// checkAtoms compares the atoms of our draws with those of the library. An atom is a value with
// more than 0.5 % of the draws. A value with a share near 0.5 % may be an atom only in our draws,
// or only in the library's.
func (s Sample) checkAtoms(t *testing.T, sorted []time.Duration) {
	t.Helper()
	listed := map[time.Duration]float64{}
	for _, a := range s.step.Atoms {
		listed[a.Value.Duration()] += a.Share
	}
	for v, want := range listed {
		below, upTo := share(sorted, v)
		if got := float64(upTo-below) / float64(len(sorted)); !sameShare(got, want, len(sorted),
			s.samples) {
			t.Errorf("n = %d: %d ns has a share of %.4f, want %.4f", s.step.N, v, got, want)
		}
	}
	for i := 0; i < len(sorted); {
		_, upTo := share(sorted, sorted[i])
		got := float64(upTo-i) / float64(len(sorted))
		_, ok := listed[sorted[i]]
		if v := sorted[i]; !ok && cut(Nanos(v)) &&
			(Nanos(v) == s.step.Min || Nanos(v) == s.step.Max) {
			// All our draws beyond int64 become the lowest or highest int64. The values of the
			// library beyond int64 are kept apart, so each may be too rare to be listed as an atom.
			// checkQuantiles covers the share of all of them.
			ok = true
		}
		if !ok && got > 0.005 && !sameShare(got, 0.005, len(sorted), s.samples) {
			t.Errorf("n = %d: %d ns has a share of %.4f, in the library below 0.005", s.step.N,
				sorted[i], got)
		}
		i = upTo
	}
}

// checkCorrelation compares our draws with those of the library by a correlation (Pearson's): that
// of the delays of this step with the delays of the step before. The standard error of the
// correlation is computed from its influence function, so that it is right for skewed
// distributions, too.
func (s Sample) checkCorrelation(t *testing.T) {
	t.Helper()
	if s.step.Corr == nil || len(s.before) != len(s.ours) {
		return
	}
	n := float64(len(s.ours))
	meanA, varA, _ := moments(s.before)
	meanB, varB, _ := moments(s.ours)
	if varA == 0 || varB == 0 {
		t.Errorf("n = %d: no variance, want a correlation of %v", s.step.N, *s.step.Corr)
		return
	}
	r := 0.0
	for i := range s.ours {
		r += (float64(s.before[i]) - meanA) * (float64(s.ours[i]) - meanB) / math.Sqrt(
			varA*varB) / n
	}
	spread := 0.0
	for i := range s.ours {
		a, b := (float64(s.before[i])-meanA)/math.Sqrt(varA),
			(float64(s.ours[i])-meanB)/math.Sqrt(varB)
		x := a*b - r*(a*a+b*b)/2
		spread += x * x / n
	}
	// The spread of independent draws is 1. If a value is so rare that no pair has it twice, the
	// measured spread is much smaller.
	if math.Abs(*s.step.Corr) <= deviations/math.Sqrt(float64(s.samples)) {
		spread = max(spread, 1)
	}
	if off := deviations*math.Sqrt(spread*(1/n+1/float64(s.samples))) +
		1e-4; math.Abs(r-*s.step.Corr) > off {
		t.Errorf("n = %d: correlation with the step before %.4f, want %v within %.4f", s.step.N, r,
			*s.step.Corr, off)
	}
}
