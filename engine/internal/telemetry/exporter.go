// Package telemetry pushes metrics and spans to an OpenTelemetry receiver, as JSON over HTTP
// (https://opentelemetry.io/docs/specs/otlp/#otlphttp).
//
// An [Exporter] never delays deliveries. Spans wait in a queue of limited length. If spans do not
// fit, or a push of them fails, they are counted and dropped. Counters are cumulative, so a failed
// push of metrics loses no counts. A [Tracer] makes the spans of one route from the events of its
// flow control.
package telemetry

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"strings"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/penstock-io/penstock/stream"
)

const (
	maxQueued   = 4096             // maximum number of spans that wait for a push
	maxSpans    = 512              // maximum number of spans in a push
	spanWait    = time.Second      // maximum time to wait for more spans before a push
	pushTimeout = 10 * time.Second // timeout of a push
	lastTimeout = 3 * time.Second  // timeout of the last pushes, when the process ends
	maxAnswer   = 16 << 10         // maximum bytes of a response that are read
)

// Options of an Exporter.
type Options struct {
	URL      string // base URL, without /v1/metrics
	Token    string // bearer token; empty for none
	Interval time.Duration
	Version  string // version of the program
	Gather   prometheus.Gatherer
	Log      *slog.Logger
}

// Exporter pushes metrics and spans while Run is running. It implements prometheus.Collector for
// its own counters: the spans that were sent and dropped, the pushes, and the failed pushes.
type Exporter struct {
	o       Options
	client  *http.Client
	started time.Time
	queue   chan *span

	sent, dropped, pushes, failed atomic.Int64
	failing                       bool // the last push has failed; used by Run only
}

// New returns an exporter; Run starts it.
func New(o Options) *Exporter {
	return &Exporter{o: o, started: time.Now(), queue: make(chan *span, maxQueued),
		client: &http.Client{
			Timeout: pushTimeout,
			CheckRedirect: func(*http.Request, []*http.Request) error {
				return http.ErrUseLastResponse
			},
		}}
}

// add adds a span to the queue, or drops it if the queue is full. It never waits.
func (e *Exporter) add(s *span) {
	select {
	case e.queue <- s:
	default:
		e.dropped.Add(1)
	}
}

// Run pushes metrics at each interval, and spans soon after they have ended. When ctx is done, it
// pushes the spans in the queue and the metrics one last time.
func (e *Exporter) Run(ctx context.Context) error {
	metrics := time.NewTicker(e.o.Interval)
	defer metrics.Stop()
	spans := time.NewTicker(spanWait)
	defer spans.Stop()
	for {
		select {
		case <-metrics.C:
			e.pushMetrics(ctx)
		case <-spans.C:
			e.pushSpans(ctx)
		case <-ctx.Done():
			last, cancel := context.WithTimeout(context.WithoutCancel(ctx), lastTimeout)
			defer cancel()
			e.pushSpans(last)
			e.pushMetrics(last)
			return nil
		}
	}
}

// pushSpans pushes the spans in the queue. If a push fails, its spans are dropped, or only those
// that the receiver has rejected. The spans in the queue wait for the next call.
func (e *Exporter) pushSpans(ctx context.Context) {
	for {
		var batch []*span
		for len(batch) < maxSpans && len(e.queue) > 0 {
			batch = append(batch, <-e.queue)
		}
		if len(batch) == 0 {
			return
		}
		err := e.push(ctx, "/v1/traces", e.traceRequest(batch))
		lost := int64(0)
		if partial, ok := errors.AsType[*rejectedError](err); ok {
			lost = min(partial.count, int64(len(batch)))
		} else if err != nil {
			lost = int64(len(batch))
		}
		e.dropped.Add(lost)
		e.sent.Add(int64(len(batch)) - lost)
		if err != nil {
			return
		}
	}
}

func (e *Exporter) pushMetrics(ctx context.Context) {
	families, err := e.o.Gather.Gather()
	if err != nil {
		e.report(err)
		return
	}
	_ = e.push(ctx, "/v1/metrics", e.metricRequest(families, time.Now())) // push counts the error
}

// push sends one request, and passes the result to report.
func (e *Exporter) push(ctx context.Context, path string, request any) error {
	e.pushes.Add(1)
	err := e.post(ctx, path, request)
	e.report(err)
	return err
}

// report counts an error. It logs the first of consecutive errors, and the success after them.
func (e *Exporter) report(err error) {
	if err != nil {
		e.failed.Add(1)
	}
	switch {
	case err != nil && !e.failing:
		e.o.Log.Warn("telemetry push failed; further failures are only counted",
			"error", stream.MaskURLs(err.Error()))
	case err == nil && e.failing:
		e.o.Log.Info("telemetry push succeeded again")
	}
	e.failing = err != nil
}

func (e *Exporter) post(ctx context.Context, path string, request any) (err error) {
	body, err := json.Marshal(request)
	if err != nil {
		return err
	}
	url := strings.TrimRight(e.o.URL, "/") + path
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, url, bytes.NewReader(body))
	if err != nil {
		return err
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("User-Agent", "penstock/"+e.o.Version)
	if e.o.Token != "" {
		req.Header.Set("Authorization", "Bearer "+e.o.Token)
	}
	res, err := e.client.Do(req)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, res.Body.Close()) }()
	if res.StatusCode/100 != 2 {
		return fmt.Errorf("POST %s: %s", url, res.Status)
	}
	answer, _ := io.ReadAll(io.LimitReader(res.Body, maxAnswer)) // only for a partial success
	if partial := rejectedIn(answer); partial.count > 0 {
		return fmt.Errorf("POST %s: %w", url, partial)
	} else if partial.message != "" {
		e.o.Log.Debug("telemetry receiver warns", "message", partial.message)
	}
	return nil
}

// rejectedError means that the receiver has rejected some of the spans or data points of a push.
type rejectedError struct {
	count   int64
	message string // of the receiver; may be empty
}

// Error returns the count and the receiver's message.
func (e *rejectedError) Error() string { return fmt.Sprintf("%d rejected: %q", e.count, e.message) }

// rejectedIn returns the partial success in a response. If the count is 0, the receiver has
// accepted everything, and the message is a warning.
func rejectedIn(answer []byte) *rejectedError {
	var r struct {
		PartialSuccess struct {
			RejectedSpans      json.Number `json:"rejectedSpans"` // a number, or its text
			RejectedDataPoints json.Number `json:"rejectedDataPoints"`
			ErrorMessage       string      `json:"errorMessage"`
		} `json:"partialSuccess"`
	}
	if json.Unmarshal(answer, &r) != nil {
		return &rejectedError{} // not a response of OTLP
	}
	p := &r.PartialSuccess
	spans, _ := p.RejectedSpans.Int64() // 0 if it is missing
	points, _ := p.RejectedDataPoints.Int64()
	return &rejectedError{spans + points, p.ErrorMessage}
}

// Counters of an Exporter.
var (
	sentDesc = prometheus.NewDesc("penstock_telemetry_spans_total",
		"Spans that the telemetry receiver has accepted.", nil, nil)
	droppedDesc = prometheus.NewDesc("penstock_telemetry_spans_dropped_total",
		"Spans dropped because too many were open or queued, or a push failed.", nil, nil)
	pushesDesc = prometheus.NewDesc("penstock_telemetry_pushes_total",
		"Pushes of metrics or spans that were started.", nil, nil)
	failedDesc = prometheus.NewDesc("penstock_telemetry_push_failures_total",
		"Pushes that failed.", nil, nil)
)

// Describe implements prometheus.Collector.
func (e *Exporter) Describe(to chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{sentDesc, droppedDesc, pushesDesc, failedDesc} {
		to <- d
	}
}

// Collect implements prometheus.Collector.
func (e *Exporter) Collect(to chan<- prometheus.Metric) {
	for d, n := range map[*prometheus.Desc]int64{
		sentDesc: e.sent.Load(), droppedDesc: e.dropped.Load(),
		pushesDesc: e.pushes.Load(), failedDesc: e.failed.Load(),
	} {
		to <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, float64(n))
	}
}

// resource returns the description of this process.
func (e *Exporter) resource() resource {
	host, err := os.Hostname()
	if err != nil {
		host = "unknown"
	}
	return resource{
		Attributes: attributes("service.name", "penstock", "service.version", e.o.Version,
			"service.instance.id", fmt.Sprintf("%s:%d", host, os.Getpid())),
	}
}
