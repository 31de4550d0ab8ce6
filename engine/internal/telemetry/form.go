//penstock:pure

package telemetry

import (
	"math"
	"strconv"
	"time"

	dto "github.com/prometheus/client_model/go"
)

// The types below are OTLP messages in JSON, as defined in
// https://github.com/open-telemetry/opentelemetry-proto. Integers of 64 bits are strings, and ids
// are hexadecimal.

type attribute struct {
	Key   string `json:"key"`
	Value value  `json:"value"`
}

type value struct {
	String string `json:"stringValue"`
}

// attributes returns pairs of keys and values.
func attributes(pairs ...string) []attribute {
	out := make([]attribute, 0, len(pairs)/2)
	for i := 0; i+1 < len(pairs); i += 2 {
		out = append(out, attribute{pairs[i], value{pairs[i+1]}})
	}
	return out
}

type resource struct {
	Attributes []attribute `json:"attributes"`
}

type scope struct {
	Name    string `json:"name"`
	Version string `json:"version"`
}

type metricRequest struct {
	ResourceMetrics []resourceMetrics `json:"resourceMetrics"`
}

type resourceMetrics struct {
	Resource     resource       `json:"resource"`
	ScopeMetrics []scopeMetrics `json:"scopeMetrics"`
}

type scopeMetrics struct {
	Scope   scope    `json:"scope"`
	Metrics []metric `json:"metrics"`
}

type metric struct {
	Name        string  `json:"name"`
	Description string  `json:"description,omitempty"`
	Sum         *points `json:"sum,omitempty"`
	Gauge       *points `json:"gauge,omitempty"`
	Histogram   *points `json:"histogram,omitempty"`
	Summary     *points `json:"summary,omitempty"`
}

// cumulative is the AggregationTemporality of values that count from the start.
const cumulative = 2

type points struct {
	DataPoints  []point `json:"dataPoints"`
	Temporality int     `json:"aggregationTemporality,omitempty"`
	Monotonic   bool    `json:"isMonotonic,omitempty"`
}

type point struct {
	Attributes []attribute `json:"attributes,omitempty"`
	Start      string      `json:"startTimeUnixNano,omitempty"`
	Time       string      `json:"timeUnixNano"`
	Double     *float64    `json:"asDouble,omitempty"`
	Count      string      `json:"count,omitempty"`
	Sum        *float64    `json:"sum,omitempty"`
	Buckets    []string    `json:"bucketCounts,omitempty"`
	Bounds     []float64   `json:"explicitBounds,omitempty"`
}

func nanos(t time.Time) string { return strconv.FormatInt(t.UnixNano(), 10) }

// metricRequest converts metrics to a request. It omits the quantiles of summaries, and values that
// JSON cannot represent, such as NaN.
func (e *Exporter) metricRequest(families []*dto.MetricFamily, now time.Time) metricRequest {
	list := make([]metric, 0, len(families))
	for _, f := range families {
		m := metric{Name: f.GetName(), Description: f.GetHelp()}
		p := &points{DataPoints: []point{}}
		for _, one := range f.GetMetric() {
			at := point{Time: nanos(now)}
			for _, l := range one.GetLabel() {
				at.Attributes = append(at.Attributes, attribute{l.GetName(), value{l.GetValue()}})
			}
			if at.take(f.GetType(), one) {
				if f.GetType() != dto.MetricType_GAUGE {
					at.Start = nanos(e.started)
				}
				p.DataPoints = append(p.DataPoints, at)
			}
		}
		switch f.GetType() {
		case dto.MetricType_COUNTER:
			p.Temporality, p.Monotonic, m.Sum = cumulative, true, p
		case dto.MetricType_HISTOGRAM:
			p.Temporality, m.Histogram = cumulative, p
		case dto.MetricType_SUMMARY:
			m.Summary = p
		default:
			m.Gauge = p
		}
		if len(p.DataPoints) > 0 {
			list = append(list, m)
		}
	}
	return metricRequest{[]resourceMetrics{{e.resource(),
		[]scopeMetrics{{scope{"penstock", e.o.Version}, list}}}}}
}

// take sets the value of the point. It reports whether there is a value that JSON can represent.
func (p *point) take(kind dto.MetricType, m *dto.Metric) bool {
	double := func(v float64) bool {
		p.Double = &v
		return !math.IsNaN(v) && !math.IsInf(v, 0)
	}
	switch kind {
	case dto.MetricType_COUNTER:
		return double(m.GetCounter().GetValue())
	case dto.MetricType_GAUGE:
		return double(m.GetGauge().GetValue())
	case dto.MetricType_UNTYPED:
		return double(m.GetUntyped().GetValue())
	case dto.MetricType_SUMMARY:
		p.Count = strconv.FormatUint(m.GetSummary().GetSampleCount(), 10)
		sum := m.GetSummary().GetSampleSum()
		p.Sum = &sum
		return !math.IsNaN(sum) && !math.IsInf(sum, 0)
	case dto.MetricType_HISTOGRAM:
		return p.histogram(m.GetHistogram())
	}
	return false
}

// histogram converts the cumulative counts of classic buckets to separate counts of the buckets.
// Example: the counts 2, 5, 9 become 2, 3, 4. It reports whether the sum of the observed values is
// a finite number.
func (p *point) histogram(h *dto.Histogram) bool {
	sum, before := h.GetSampleSum(), uint64(0)
	p.Count, p.Sum = strconv.FormatUint(h.GetSampleCount(), 10), &sum
	for _, b := range h.GetBucket() {
		if math.IsInf(b.GetUpperBound(), 1) {
			continue
		}
		p.Bounds = append(p.Bounds, b.GetUpperBound())
		p.Buckets = append(p.Buckets, strconv.FormatUint(b.GetCumulativeCount()-before, 10))
		before = b.GetCumulativeCount()
	}
	p.Buckets = append(p.Buckets, strconv.FormatUint(h.GetSampleCount()-before, 10))
	return !math.IsNaN(sum) && !math.IsInf(sum, 0)
}

type traceRequest struct {
	ResourceSpans []resourceSpans `json:"resourceSpans"`
}

type resourceSpans struct {
	Resource   resource     `json:"resource"`
	ScopeSpans []scopeSpans `json:"scopeSpans"`
}

type scopeSpans struct {
	Scope scope   `json:"scope"`
	Spans []*span `json:"spans"`
}

// span is the span of a batch, or of an attempt to deliver it.
type span struct {
	TraceID    string      `json:"traceId"`
	SpanID     string      `json:"spanId"`
	Parent     string      `json:"parentSpanId,omitempty"`
	Name       string      `json:"name"`
	Kind       int         `json:"kind"`
	Start      string      `json:"startTimeUnixNano"`
	End        string      `json:"endTimeUnixNano"`
	Attributes []attribute `json:"attributes"`
	Links      []link      `json:"links,omitempty"`
	Status     state       `json:"status"`
}

type link struct {
	TraceID string `json:"traceId"`
	SpanID  string `json:"spanId"`
}

type state struct {
	Code int `json:"code,omitempty"`
}

// Kinds of spans and their status codes.
const (
	kindInternal = 1
	kindClient   = 3
	statusOK     = 1
	statusError  = 2
)

func (e *Exporter) traceRequest(spans []*span) traceRequest {
	return traceRequest{[]resourceSpans{{e.resource(),
		[]scopeSpans{{scope{"penstock", e.o.Version}, spans}}}}}
}
