package otlp_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/exporters/otlp/otlplog/otlploggrpc"
	"go.opentelemetry.io/otel/log"
	sdk "go.opentelemetry.io/otel/sdk/log"
	"go.opentelemetry.io/otel/sdk/log/logtest"
	collector "go.opentelemetry.io/proto/otlp/collector/logs/v1"
	common "go.opentelemetry.io/proto/otlp/common/v1"
	logs "go.opentelemetry.io/proto/otlp/logs/v1"
	resource "go.opentelemetry.io/proto/otlp/resource/v1"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/encoding/gzip"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/penstock-io/penstock/engine"
	"github.com/penstock-io/penstock/engine/connector/memory"
	"github.com/penstock-io/penstock/engine/connector/otlp"
	"github.com/penstock-io/penstock/engine/kit/ndjson"
	"github.com/penstock-io/penstock/stream"
)

const patience = 30 * time.Second

// service is an engine with the tested source and a sink that keeps records as JSON.
type service struct {
	e       *engine.Engine
	server  *otlp.Server
	address string
	ended   chan error
	stop    func()        // ends the run without a drain
	open    chan struct{} // the sink delivers after it is closed

	mu  sync.Mutex // guards the field below
	got []string
}

// run starts an engine. The source otlp gets the options, which are in YAML. If blocked is set, the
// sink delivers only after the channel s.open is closed.
func run(t *testing.T, options string, blocked bool) *service {
	t.Helper()
	s := &service{ended: make(chan error, 1), open: make(chan struct{})}
	if !blocked {
		close(s.open)
	}
	source := otlp.Source()
	create := source.New
	source.New = func(o any, h stream.Host) (any, error) {
		v, err := create(o, h)
		s.server, _ = v.(*otlp.Server)
		return v, err
	}
	sink := memory.NewSink(memory.SinkOptions{Workers: 4, Deliver: s.take})
	text := fmt.Sprintf(`
state: %q
pipelines:
  p:
    source: {otlp: {listen: "127.0.0.1:0", %s}}
    sink: memory
`, t.TempDir(), options)
	cfg, err := engine.Parse([]byte(text), source, sink.Component())
	if err != nil {
		t.Fatal(err)
	}
	log := slog.New(slog.NewTextHandler(t.Output(), nil))
	if s.e, err = engine.New(cfg, engine.Options{Log: log}); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	stopped := make(chan struct{})
	go func() {
		s.ended <- s.e.Run(ctx)
		close(stopped)
	}()
	s.stop = cancel
	t.Cleanup(func() { cancel(); <-stopped })
	select {
	case addr := <-s.server.Bound():
		s.address = addr.String()
	case <-time.After(patience):
		t.Fatal("the port was not opened")
	}
	return s
}

func (s *service) take(ctx context.Context, b *stream.Batch) error {
	select {
	case <-s.open:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, i := range b.AppendKept(nil) {
		s.got = append(s.got, string(ndjson.AppendRecord(nil, b, i)))
	}
	return nil
}

// records returns the delivered records.
func (s *service) records() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.got)
}

// client returns a client of the service, without TLS.
func (s *service) client(t *testing.T) collector.LogsServiceClient {
	t.Helper()
	return collector.NewLogsServiceClient(s.connect(t))
}

func (s *service) connect(t *testing.T, more ...grpc.DialOption) *grpc.ClientConn {
	t.Helper()
	plain := grpc.WithTransportCredentials(insecure.NewCredentials())
	c, err := grpc.NewClient(s.address, append([]grpc.DialOption{plain}, more...)...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c
}

func within(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	t.Cleanup(cancel)
	return ctx
}

// request returns a request with a record for each text.
func request(texts ...string) *collector.ExportLogsServiceRequest {
	scope := &logs.ScopeLogs{}
	for _, text := range texts {
		body := &common.AnyValue{Value: &common.AnyValue_StringValue{StringValue: text}}
		scope.LogRecords = append(scope.LogRecords, &logs.LogRecord{Body: body})
	}
	return &collector.ExportLogsServiceRequest{
		ResourceLogs: []*logs.ResourceLogs{{ScopeLogs: []*logs.ScopeLogs{scope}}},
	}
}

// retryInfo returns the wait that a status asks for, or 0.
func retryInfo(err error) time.Duration {
	for _, d := range status.Convert(err).Details() {
		if info, ok := d.(*errdetails.RetryInfo); ok {
			return info.GetRetryDelay().AsDuration()
		}
	}
	return 0
}

// TestExporter checks records sent by the exporter of OpenTelemetry's SDK.
func TestExporter(t *testing.T) {
	s := run(t, "token: the-right-token", false)
	exporter, err := otlploggrpc.New(within(t),
		otlploggrpc.WithEndpoint(s.address), otlploggrpc.WithInsecure(), otlploggrpc.WithCompressor("gzip"),
		otlploggrpc.WithHeaders(map[string]string{"authorization": "Bearer the-right-token"}))
	if err != nil {
		t.Fatal(err)
	}
	const batches, each = 20, 50
	for i := range batches {
		var records []sdk.Record
		for k := range each {
			f := logtest.RecordFactory{
				Severity: log.SeverityWarn, Body: attribute.StringValue(fmt.Sprintf("%d.%d", i, k)),
				Attributes: []attribute.KeyValue{attribute.Int("n", k)},
				Timestamp:  time.Unix(1_700_000_000, 5),
			}
			records = append(records, f.NewRecord())
		}
		if err := exporter.Export(within(t), records); err != nil {
			t.Fatal(err)
		}
		if got := len(s.records()); got != (i+1)*each {
			t.Fatalf("answered with %d of %d records delivered", got, (i+1)*each)
		}
	}
	if err := exporter.Shutdown(within(t)); err != nil {
		t.Error(err)
	}
	for _, want := range []string{
		`"timestamp":"2023-11-14T22:13:20.000000005Z"`, `"severity":"WARN"`, `"severity_number":13`,
		`"body":"0.0"`, `"attributes":{"n":0}`,
	} {
		if got := s.records()[0]; !strings.Contains(got, want) {
			t.Errorf("record %s, want %s in it", got, want)
		}
	}
}

// TestAnswersWhenSettled checks that a request is answered after its delivery, and not before.
func TestAnswersWhenSettled(t *testing.T) {
	s := run(t, "", true)
	answered := make(chan error, 1)
	go func() {
		_, err := s.client(t).Export(within(t), request("one"))
		answered <- err
	}()
	waitFor(t, "the sink has the record", func() bool {
		bytes, _ := s.server.Unread()
		return bytes == 0 && s.server.Held() > 0 && s.server.Held() < 4<<20
	})
	select {
	case err := <-answered:
		t.Fatalf("answered before its delivery: %v", err)
	default:
	}
	close(s.open)
	if err := <-answered; err != nil {
		t.Error(err)
	}
}

func waitFor(t *testing.T, what string, holds func() bool) {
	t.Helper()
	end := time.NewTimer(patience)
	defer end.Stop()
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for !holds() {
		select {
		case <-tick.C:
		case <-end.C:
			t.Fatalf("never: %s", what)
		}
	}
}

// TestFull checks a source with slow receivers: its memory is bounded, and requests are refused
// with a retryable status.
func TestFull(t *testing.T) {
	const memory, clients = 8 << 20, 40
	s := run(t, "memory: 8MiB, max_message: 2MiB, deadline: 600ms", true)
	client := s.client(t)
	text := strings.Repeat("x", 1<<20-200)
	errs := make(chan error, clients)
	for range clients {
		go func() {
			_, err := client.Export(within(t), request(text))
			errs <- err
		}()
	}
	seen := map[codes.Code]int{}
	for range clients {
		err := <-errs
		seen[status.Code(err)]++
		if after := retryInfo(err); after < time.Second || after > time.Minute {
			t.Errorf("%v: retry after %v", err, after)
		}
	}
	if seen[codes.ResourceExhausted] == 0 || seen[codes.Unavailable] == 0 ||
		seen[codes.ResourceExhausted]+seen[codes.Unavailable] != clients {
		t.Errorf("codes %v, want ResourceExhausted and Unavailable", seen)
	}
	if held := s.server.Held(); held > memory {
		t.Errorf("%d bytes are held, at most %d are allowed", held, memory)
	}
	close(s.open)
	waitFor(t, "the source has room again", func() bool { return s.server.Held() == 0 })
	if _, err := client.Export(within(t), request("after")); err != nil {
		t.Error(err)
	}
}

func TestRefusals(t *testing.T) {
	s := run(t, "max_message: 64KiB, max_record: 1KiB", false)
	conn := s.connect(t)
	client := collector.NewLogsServiceClient(conn)
	_, err := client.Export(within(t), request(strings.Repeat("x", 65<<10)))
	if status.Code(err) != codes.ResourceExhausted || retryInfo(err) != 0 {
		t.Errorf("message over the limit: %v", err)
	}
	large := request(strings.Repeat("x", 65<<10))
	_, err = client.Export(within(t), large, grpc.UseCompressor(gzip.Name))
	if status.Code(err) != codes.ResourceExhausted || retryInfo(err) != 0 {
		t.Errorf("compressed message over the limit: %v", err)
	}
	mixed := request("short", strings.Repeat("x", 2<<10), "short too")
	answer, err := client.Export(within(t), mixed)
	partial := answer.GetPartialSuccess()
	if err != nil || partial.GetRejectedLogRecords() != 1 ||
		!strings.HasPrefix(partial.GetErrorMessage(), "log record 2 has") {
		t.Errorf("record over the limit: %v, %v", answer, err)
	}
	if got := s.records(); len(got) != 2 {
		t.Errorf("arrived %q", got)
	}
	deep := bytes.Repeat([]byte{0x0a, 0x7f}, 200)
	for name, message := range map[string][]byte{"garbage": {0xff, 0xff}, "nested": deep} {
		err = conn.Invoke(within(t), collector.LogsService_Export_FullMethodName, &message,
			new([]byte), grpc.ForceCodecV2(otlp.RawCodecForTest{}))
		if status.Code(err) != codes.InvalidArgument {
			t.Errorf("%s: %v", name, err)
		}
	}
	slow := run(t, "read_timeout: 200ms", false)
	call, err := slow.connect(t).NewStream(within(t), &grpc.StreamDesc{ClientStreams: true},
		collector.LogsService_Export_FullMethodName)
	if err != nil {
		t.Fatal(err)
	}
	err = call.RecvMsg(&collector.ExportLogsServiceResponse{}) // no message was sent
	if status.Code(err) != codes.Canceled {
		t.Errorf("slow message: %v", err)
	}
	waitFor(t, "all room is free",
		func() bool { return s.server.Held() == 0 && slow.server.Held() == 0 })
}

// TestRecordsBeyondMemory checks that a request is refused if its records take more memory than the
// source may use. They do so because each record repeats the attributes of the resource.
func TestRecordsBeyondMemory(t *testing.T) {
	s := run(t, "memory: 16MiB", false)
	big := request(make([]string, 1000)...)
	big.ResourceLogs[0].Resource = &resource.Resource{Attributes: []*common.KeyValue{{
		Key: "a", Value: &common.AnyValue{Value: &common.AnyValue_StringValue{
			StringValue: strings.Repeat("x", 100<<10)}},
	}}}
	client := s.client(t)
	_, err := client.Export(within(t), big)
	if status.Code(err) != codes.InvalidArgument || retryInfo(err) != 0 ||
		!strings.Contains(err.Error(), "take more than 16MiB (memory)") {
		t.Errorf("answered %v", err)
	}
	if _, err := client.Export(within(t), request("small")); err != nil {
		t.Error(err)
	}
	if held := s.server.Held(); held != 0 {
		t.Errorf("%d bytes are still held", held)
	}
}

func TestToken(t *testing.T) {
	s := run(t, "tokens: {shop: the-right-token}", false)
	client := s.client(t)
	for value, want := range map[string]codes.Code{
		"": codes.Unauthenticated, "Bearer wrong-token": codes.Unauthenticated,
		"Basic the-right-token": codes.Unauthenticated, "Bearer the-right-token": codes.OK,
	} {
		ctx := within(t)
		if value != "" {
			ctx = metadata.AppendToOutgoingContext(ctx, "authorization", value)
		}
		if _, err := client.Export(ctx, request("one")); status.Code(err) != want {
			t.Errorf("%q: %v, want %v", value, err, want)
		}
	}
	if got := s.records(); len(got) != 1 {
		t.Errorf("arrived %q", got)
	}
}

// TestConnections checks that an idle connection is closed for a new one.
func TestConnections(t *testing.T) {
	s := run(t, "connections: 2", false)
	for range 5 {
		if _, err := s.client(t).Export(within(t), request("one")); err != nil {
			t.Error(err)
		}
	}
	silent, err := net.Dial("tcp", s.address)
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	if _, err := s.client(t).Export(within(t), request("one")); err != nil {
		t.Error(err)
	}
}

// exportWaiting exports a record to a source with a blocked sink. It returns when a route has read
// the record, with a channel that gets the answer.
func exportWaiting(t *testing.T, s *service, client collector.LogsServiceClient) <-chan error {
	t.Helper()
	answered := make(chan error, 1)
	go func() {
		_, err := client.Export(within(t), request("one"))
		answered <- err
	}()
	waitFor(t, "a route has read the record", func() bool {
		bytes, _ := s.server.Unread()
		return bytes == 0 && s.server.Held() > 0 && s.server.Held() < 4<<20
	})
	return answered
}

// TestDrain checks that a drain finishes requests in progress and refuses new ones.
func TestDrain(t *testing.T) {
	s := run(t, "", true)
	client := s.client(t)
	answered := exportWaiting(t, s, client)
	s.e.Drain()
	waitFor(t, "the source drains", s.server.IsDraining)
	if _, err := client.Export(within(t), request("two")); status.Code(err) != codes.Unavailable ||
		retryInfo(err) == 0 {
		t.Errorf("request during a drain: %v", err)
	}
	close(s.open)
	if err := errors.Join(<-answered, <-s.ended); err != nil {
		t.Error(err)
	}
	if got := s.records(); len(got) != 1 {
		t.Errorf("arrived %q", got)
	}
}

func TestOptions(t *testing.T) {
	for options, want := range map[string]string{
		`listen: "0.0.0.0:1"`:                         "set a token, or tls.client_ca",
		`listen: "0.0.0.0:1", token: long-enough`:     "set tls.cert and tls.key",
		`listen: "127.0.0.1:1", max_message: 100MiB`:  "otlp.max_message is 100MiB, want 1B",
		`listen: "127.0.0.1:1", deadline: 1ms`:        "otlp.deadline is 1ms, want 100ms to 1h0m0s",
		`listen: "127.0.0.1:1", token: short`:         "otlp.token: has fewer than 8 characters",
		`listen: "127.0.0.1:1", connections: 0`:       "otlp.connections is 0, want 1 to",
		`listen: "127.0.0.1:1", tls: {key: /nothing}`: "otlp.tls.cert is missing",
		`listen: "127.0.0.1:1", ack: soon`:            `otlp.ack: there is no "soon"`,
		`listen: "127.0.0.1:1", max_record: 0B`:       "otlp.max_record is 0B",
	} {
		text := fmt.Sprintf("pipelines: {p: {source: {otlp: {%s}}, sink: memory}}", options)
		sink := memory.NewSink(memory.SinkOptions{})
		_, err := engine.Parse([]byte(text), otlp.Source(), sink.Component())
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", options, err, want)
		}
	}
}
