package telemetry

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	metricspb "go.opentelemetry.io/proto/otlp/collector/metrics/v1"
	tracepb "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	"github.com/penstock-io/penstock/flow/control"
)

// receiver parses requests with the types of opentelemetry-proto.
type receiver struct {
	t *testing.T
	*httptest.Server

	mu      sync.Mutex // guards the fields below
	status  int        // of the answers; 0 means 200
	body    string
	metrics []*metricspb.ExportMetricsServiceRequest
	traces  []*tracepb.ExportTraceServiceRequest
	tokens  []string
}

func newReceiver(t *testing.T) *receiver {
	r := &receiver{t: t}
	r.Server = httptest.NewServer(r)
	t.Cleanup(r.Close)
	return r
}

func (r *receiver) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	body, err := io.ReadAll(req.Body)
	r.mu.Lock()
	defer r.mu.Unlock()
	if err != nil || req.Method != http.MethodPost ||
		req.Header.Get("Content-Type") != "application/json" {
		r.t.Errorf("%s %s, %q: %v", req.Method, req.URL, req.Header.Get("Content-Type"), err)
	}
	r.tokens = append(r.tokens, req.Header.Get("Authorization"))
	parse := func(m proto.Message) {
		if err := protojson.Unmarshal(idsInBase64(r.t, body), m); err != nil {
			r.t.Errorf("%s: %v\n%.300s", req.URL, err, body)
		}
	}
	switch req.URL.Path {
	case "/base/v1/metrics":
		m := new(metricspb.ExportMetricsServiceRequest)
		parse(m)
		r.metrics = append(r.metrics, m)
	case "/base/v1/traces":
		m := new(tracepb.ExportTraceServiceRequest)
		parse(m)
		r.traces = append(r.traces, m)
	default:
		r.t.Errorf("asked for %s", req.URL)
	}
	if r.status != 0 {
		w.WriteHeader(r.status)
	}
	_, _ = io.WriteString(w, r.body) // the client may be gone
}

// idsInBase64 converts the ids from hexadecimal, which OTLP uses, to base64, which protojson
// expects.
func idsInBase64(t *testing.T, body []byte) []byte {
	var v any
	d := json.NewDecoder(bytes.NewReader(body))
	d.UseNumber()
	if err := d.Decode(&v); err != nil {
		t.Fatal(err)
	}
	var walk func(v any)
	walk = func(v any) {
		switch v := v.(type) {
		case map[string]any:
			for key, member := range v {
				text, ok := member.(string)
				if !ok || !slices.Contains([]string{"traceId", "spanId", "parentSpanId"}, key) {
					walk(member)
					continue
				}
				raw, err := hex.DecodeString(text)
				if err != nil || len(raw) != map[bool]int{true: 16, false: 8}[key == "traceId"] {
					t.Errorf("%s is %q", key, text)
				}
				v[key] = base64.StdEncoding.EncodeToString(raw)
			}
		case []any:
			for _, member := range v {
				walk(member)
			}
		}
	}
	walk(v)
	out, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func (r *receiver) exporter(gather prometheus.Gatherer) *Exporter {
	return New(
		Options{URL: r.URL + "/base/", Token: "hunter2", Interval: time.Hour, Version: "1.2.3",
			Gather: gather, Log: slog.New(slog.DiscardHandler)},
	)
}

func TestMetrics(t *testing.T) {
	r := newReceiver(t)
	registry := prometheus.NewRegistry()
	e := r.exporter(registry)
	registry.MustRegister(e)
	c := prometheus.NewCounterVec(
		prometheus.CounterOpts{Name: "c_total", Help: "Counted."},
		[]string{"route"},
	)
	h := prometheus.NewHistogram(
		prometheus.HistogramOpts{Name: "h_seconds", Buckets: []float64{1, 2}},
	)
	g := prometheus.NewGauge(prometheus.GaugeOpts{Name: "g"})
	registry.MustRegister(c, h, g)
	c.WithLabelValues("p/main").Add(3)
	for _, v := range []float64{.5, 1.5, 1.6, 7} {
		h.Observe(v)
	}
	e.pushMetrics(t.Context())
	if len(r.metrics) != 1 || r.tokens[0] != "Bearer hunter2" {
		t.Fatalf("%d requests, tokens %q", len(r.metrics), r.tokens)
	}
	text := strings.ReplaceAll(protojson.Format(r.metrics[0]), ":  ", ": ")
	for _, want := range []string{
		`"service.name"`, `"stringValue": "penstock"`, `"c_total"`, `"Counted."`,
		`"stringValue": "p/main"`,
		`"asDouble": 3`, `"AGGREGATION_TEMPORALITY_CUMULATIVE"`, `"isMonotonic": true`,
		`"h_seconds"`,
		`"count": "4"`, `"sum": 10.6`, `"penstock_telemetry_pushes_total"`, `"asDouble": 0`,
	} {
		if !strings.Contains(text, want) {
			t.Errorf("there is no %s", want)
		}
	}
	for _, m := range r.metrics[0].ResourceMetrics[0].ScopeMetrics[0].Metrics {
		if d := m.GetHistogram().GetDataPoints(); m.Name == "h_seconds" &&
			(!slices.Equal(d[0].BucketCounts, []uint64{1, 2, 1}) ||
				!slices.Equal(d[0].ExplicitBounds, []float64{1, 2})) {
			t.Errorf("buckets %v", d[0])
		}
	}
	if t.Failed() {
		t.Log(text)
	}
}

// TestSpans checks the spans of a batch that fails, is retried, and is then split into two pieces,
// one of which is delivered. Each attempt and each batch must have a span, with the correct times,
// parents and status.
func TestSpans(t *testing.T) {
	r := newReceiver(t)
	e := r.exporter(prometheus.NewRegistry())
	started := time.Unix(1000, 0)
	tr := e.NewTracer("p/main", started, 1, 7)
	at := func(ms int, e control.Event, do ...control.Command) {
		e.Now = time.Duration(ms) * time.Millisecond
		name := ""
		if e.Kind == control.LaneUp {
			name = "http://h/in"
		}
		tr.Event(&e, do, name)
	}
	begin := func(seq, id uint64) control.Command {
		return control.Command{Kind: control.Start, Seq: seq, ID: id, Number: uint32(id)}
	}
	at(0, control.Event{Kind: control.LaneUp})
	at(1, control.Event{Kind: control.Offer, Seq: 1, Bytes: 100}, begin(1, 1))
	at(5, control.Event{Kind: control.Answer, ID: 1, Outcome: control.Retryable}, begin(1, 2))
	at(9, control.Event{Kind: control.Answer, ID: 2, Outcome: control.Rejected})
	at(9, control.Event{Kind: control.Piece, Parent: 1, Seq: 2, Outcome: control.Retryable})
	at(
		9,
		control.Event{Kind: control.Piece, Parent: 1, Seq: 3, Outcome: control.Rejected},
		begin(2, 3),
	)
	at(12, control.Event{Kind: control.Answer, ID: 3, Outcome: control.Delivered},
		control.Command{Kind: control.Settle, Seq: 2, ID: 3, Number: 1})
	at(
		13,
		control.Event{Kind: control.Tick},
		control.Command{Kind: control.Settle, Seq: 3, Lane: -1},
	)
	if len(tr.batches)+len(tr.attempts) > 0 {
		t.Errorf("left: %v, %v", tr.batches, tr.attempts)
	}
	e.pushSpans(t.Context())
	if len(r.traces) != 1 {
		t.Fatalf("%d requests", len(r.traces))
	}
	type seen struct {
		name         string
		from, to     int // ms
		links        int
		parent, root bool // has a parent; is in the trace of the first batch
		status       string
	}
	spans := r.traces[0].ResourceSpans[0].ScopeSpans[0].Spans
	var got []seen
	for _, s := range spans {
		got = append(got, seen{
			s.Name, int(s.StartTimeUnixNano/1e6) - 1e6, int(s.EndTimeUnixNano/1e6) - 1e6, len(s.Links),
			len(s.ParentSpanId) > 0, bytes.Equal(s.TraceId, spans[0].TraceId), s.Status.Code.String(),
		})
	}
	want := []seen{
		{"deliver", 1, 5, 0, true, true, "STATUS_CODE_ERROR"},
		{"deliver", 5, 9, 0, true, true, "STATUS_CODE_ERROR"},
		{"batch", 1, 9, 2, false, true, "STATUS_CODE_UNSET"},
		{"deliver", 9, 12, 0, true, true, "STATUS_CODE_OK"},
		{"batch", 9, 12, 1, true, true, "STATUS_CODE_OK"},
	}
	if !slices.Equal(got, want) {
		t.Errorf("spans\n%+v, want\n%+v", got, want)
	}
	if !bytes.Equal(spans[2].Links[1].SpanId, spans[1].SpanId) ||
		!bytes.Equal(spans[1].ParentSpanId, spans[2].SpanId) {
		t.Error("batch and attempts do not name each other")
	}
	if text := protojson.Format(spans[0]); !strings.Contains(text, "http://h/in") {
		t.Errorf("the attempt does not name its worker: %s", text)
	}
}

// TestDrops checks that a full queue and failed pushes drop and count spans, and never block.
func TestDrops(t *testing.T) {
	r := newReceiver(t)
	r.status = http.StatusServiceUnavailable
	e := r.exporter(prometheus.NewRegistry())
	for range maxQueued + 10 {
		e.add(&span{TraceID: strings.Repeat("1", 32), SpanID: strings.Repeat("1", 16),
			Start: "1", End: "2"})
	}
	if got := e.dropped.Load(); got != 10 {
		t.Errorf("%d spans dropped at a full queue, want 10", got)
	}
	e.pushSpans(t.Context())
	if d, f, left := e.dropped.Load(), e.failed.Load(), len(e.queue); d != 10+maxSpans || f != 1 ||
		left != maxQueued-maxSpans {
		t.Errorf("after a failed push: %d dropped, %d failed, %d wait", d, f, left)
	}
	r.mu.Lock()
	r.status, r.body = 0, `{"partialSuccess":{"rejectedSpans":"2","errorMessage":"too old"}}`
	r.mu.Unlock()
	e.pushSpans(t.Context())
	if s, d, f := e.sent.Load(), e.dropped.Load(), e.failed.Load(); s != maxSpans-2 ||
		d != 10+maxSpans+2 || f != 2 {
		t.Errorf("after a partial success: %d sent, %d dropped, %d failed", s, d, f)
	}
	for body, failed := range map[string]int64{
		`{"partialSuccess":{"rejectedSpans":1}}`:                        1,
		`{"partialSuccess":{"rejectedDataPoints":"3"}}`:                 1,
		`{"partialSuccess":{"rejectedSpans":"0","errorMessage":"old"}}`: 0,
		`{"partialSuccess":{}}`:                                         0,
	} {
		r.mu.Lock()
		r.body = body
		r.mu.Unlock()
		before := e.failed.Load()
		e.pushMetrics(t.Context())
		if n := e.failed.Load() - before; n != failed {
			t.Errorf("%s: %d failed pushes, want %d", body, n, failed)
		}
	}
	r.mu.Lock()
	r.body = "{}"
	r.mu.Unlock()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := e.Run(ctx); err != nil { // pushes the rest
		t.Error(err)
	}
	if s, d := e.sent.Load(), e.dropped.Load(); s+d != maxQueued+10 || len(e.queue) > 0 {
		t.Errorf("%d sent, %d dropped, %d wait; want %d in all", s, d, len(e.queue), maxQueued+10)
	}
}

// TestOpenBatches checks that batches beyond the limit are counted and not traced.
func TestOpenBatches(t *testing.T) {
	e := newReceiver(t).exporter(prometheus.NewRegistry())
	tr := e.NewTracer("p/main", time.Now(), 1, 1)
	for i := range maxOpen + 3 {
		tr.Event(&control.Event{Kind: control.Offer, Seq: uint64(i)}, nil, "")
	}
	if len(tr.batches) != maxOpen || e.dropped.Load() != 3 {
		t.Errorf("%d batches are traced, %d dropped", len(tr.batches), e.dropped.Load())
	}
	tr = e.NewTracer("p/main", time.Now(), .25, 1)
	for i := range 1000 {
		tr.Event(&control.Event{Kind: control.Offer, Seq: uint64(i)}, nil, "")
	}
	if n := len(tr.batches); n < 200 || n > 300 {
		t.Errorf("%d of 1000 batches are traced, want a quarter", n)
	}
}
