package httpserver_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	nethttp "net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/penstock-io/penstock/engine"
	"github.com/penstock-io/penstock/engine/connector/all"
	"github.com/penstock-io/penstock/engine/connector/httpserver"
	"github.com/penstock-io/penstock/engine/connector/memory"
	"github.com/penstock-io/penstock/engine/kit/ndjson"
	"github.com/penstock-io/penstock/stream"
)

// service is an engine with the tested source and a sink that keeps records as JSON lines.
type service struct {
	t      *testing.T
	e      *engine.Engine
	server *httpserver.Server
	url    string
	client *nethttp.Client
	ended  chan error

	mu      sync.Mutex // guards the fields below
	got     []string
	deliver func(ctx context.Context, b *stream.Batch) error // nil accepts everything
}

const patience = 30 * time.Second

// run starts an engine with a source on a free port. options are further options of the source in
// YAML.
func run(t *testing.T, options string, more ...string) *service {
	t.Helper()
	s := &service{t: t, ended: make(chan error, 1),
		client: &nethttp.Client{Timeout: patience, Transport: &nethttp.Transport{}}}
	source := httpserver.Source()
	create := source.New
	source.New = func(o any, h stream.Host) (any, error) {
		v, err := create(o, h)
		s.server, _ = v.(*httpserver.Server)
		return v, err
	}
	sink := memory.NewSink(memory.SinkOptions{Workers: 4, Deliver: s.take})
	text := fmt.Sprintf(`
state: %q
pipelines:
  p:
    source: {http_server: {listen: "127.0.0.1:0", %s}}
    sink: memory
    %s
`, t.TempDir(), options, strings.Join(more, "\n    "))
	cfg, err := engine.Parse([]byte(text), append(slices.DeleteFunc(all.Components(), func(c stream.Component) bool {
		return c.Name == source.Name && c.Role == source.Role
	}), source, sink.Component())...)
	if err != nil {
		t.Fatal(err)
	}
	if s.e, err = engine.New(cfg, engine.Options{Log: slog.New(slog.NewTextHandler(t.Output(), nil))}); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	stopped := make(chan struct{})
	go func() {
		s.ended <- s.e.Run(ctx)
		close(stopped)
	}()
	t.Cleanup(func() { cancel(); <-stopped; s.client.CloseIdleConnections() })
	bound, release := context.WithTimeout(t.Context(), patience)
	defer release()
	addr, err := s.server.Addr(bound)
	if err != nil {
		t.Fatal(err)
	}
	s.url = "http://" + addr.String()
	return s
}

func (s *service) take(ctx context.Context, b *stream.Batch) error {
	s.mu.Lock()
	deliver := s.deliver
	s.mu.Unlock()
	if deliver != nil {
		if err := deliver(ctx, b); err != nil {
			return err
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, i := range b.AppendKept(nil) {
		s.got = append(s.got, string(ndjson.AppendRecord(nil, b, i)))
	}
	return nil
}

// setDeliver replaces the deliver function of the sink.
func (s *service) setDeliver(f func(context.Context, *stream.Batch) error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.deliver = f
}

// records returns the records that have arrived, sorted.
func (s *service) records() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Sorted(slices.Values(s.got))
}

// answer is a response with its body.
type answer struct {
	status int
	header nethttp.Header
	body   string
}

// post sends a body. Each of headers is "NAME: VALUE".
func (s *service) post(path string, body io.Reader, headers ...string) answer {
	s.t.Helper()
	a, err := s.try(path, body, headers...)
	if err != nil {
		s.t.Fatal(err)
	}
	return a
}

// persist sends a request again while it is answered with 503, for at most 30 seconds.
func (s *service) persist(path, body string, headers ...string) answer {
	s.t.Helper()
	end := time.Now().Add(30 * time.Second)
	for {
		a := s.post(path, strings.NewReader(body), headers...)
		if a.status != 503 || time.Now().After(end) {
			return a
		}
	}
}

func (s *service) try(path string, body io.Reader, headers ...string) (answer, error) {
	r, err := nethttp.NewRequest(nethttp.MethodPost, s.url+path, body)
	if err != nil {
		return answer{}, err
	}
	for _, h := range headers {
		name, value, _ := strings.Cut(h, ": ")
		r.Header.Set(name, value)
	}
	resp, err := s.client.Do(r)
	if err != nil {
		return answer{}, err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	return answer{resp.StatusCode, resp.Header, string(text)}, err
}

// want checks a response and the records that have arrived.
func (s *service) want(a answer, status int, body string, records ...string) {
	s.t.Helper()
	if a.status != status || !strings.Contains(a.body, body) {
		s.t.Errorf("answered %d %q, want %d with %q", a.status, a.body, status, body)
	}
	if got := s.records(); !slices.Equal(got, records) {
		s.t.Errorf("arrived\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(records, "\n"))
	}
}

func TestLines(t *testing.T) {
	s := run(t, "format: lines")
	s.want(s.post("/", strings.NewReader("a\nb\r\n\nlast")), 200, `{"records":4}`,
		`{"message":""}`, `{"message":"a"}`, `{"message":"b"}`, `{"message":"last"}`)
	s.want(s.post("/", nil), 200, `{"records":0}`, s.records()...)
}

// TestAnsweredWhenDelivered checks that a response means that the record is at the receiver, even
// if the receiver is slow and checkpoints are rare.
func TestAnsweredWhenDelivered(t *testing.T) {
	s := run(t, "format: lines", "checkpoint: {sync: 1m}")
	var group sync.WaitGroup
	for client := range 8 {
		group.Go(func() {
			for i := range 20 {
				text := fmt.Sprintf("client %d record %d", client, i)
				a, err := s.try("/", strings.NewReader(text))
				if err != nil || a.status != 200 {
					t.Errorf("%s: %v %v", text, a, err)
				}
				if !slices.Contains(s.records(), fmt.Sprintf(`{"message":%q}`, text)) {
					t.Errorf("%q was answered and has not arrived", text)
				}
			}
		})
	}
	group.Wait()
}

// TestDeadline checks requests that are not settled by their deadline. A request that no worker has
// got is withdrawn. For other requests, the response states that the outcome is unknown. If the
// client repeats such a request with the same key, it gets the result.
func TestDeadline(t *testing.T) {
	t.Parallel()
	s := run(t, "format: lines, deadline: 400ms", "batch: {records: 1}", "flow: {timeout: 60s, abandon: 120s}")
	open := make(chan struct{})
	s.setDeliver(func(ctx context.Context, _ *stream.Batch) error {
		select {
		case <-open:
			return nil
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	})
	stuck := s.post("/", strings.NewReader("stuck"), "Idempotency-Key: one")
	for stuck.header.Get(httpserver.StateHeader) == "untaken" { // the machine was busy
		stuck = s.post("/", strings.NewReader("stuck"), "Idempotency-Key: one")
	}
	s.want(stuck, 503, "outcome unknown")
	if stuck.header.Get(httpserver.StateHeader) != "unknown" || stuck.header.Get("Retry-After") == "" {
		t.Errorf("header %v", stuck.header)
	}
	// Requests for which no worker has a place are withdrawn.
	untaken := 0
	for i := range 40 {
		a, err := s.try("/", strings.NewReader(fmt.Sprintf("later %d\n%s", i, strings.Repeat("x\n", 40))))
		if err != nil || a.status != 503 {
			t.Fatalf("%v %v", a, err)
		}
		if a.header.Get(httpserver.StateHeader) == "untaken" {
			untaken++
			break
		}
	}
	if untaken == 0 {
		t.Error("no request was withdrawn")
	}
	close(open)
	if a := s.persist("/", "stuck", "Idempotency-Key: one"); a.status != 200 {
		t.Errorf("the repeated request was answered with %d %s", a.status, a.body)
	}
	again := s.post("/", strings.NewReader("another body"), "Idempotency-Key: one")
	if again.status != 422 {
		t.Errorf("another body under the same key was answered with %d", again.status)
	}
	count := 0
	for _, r := range s.records() {
		if r == `{"message":"stuck"}` {
			count++
		}
	}
	if count != 1 {
		t.Errorf("the record with the key arrived %d times", count)
	}
}

// TestDuplicatesJoin checks that concurrent requests with the same key are delivered once.
func TestDuplicatesJoin(t *testing.T) {
	s := run(t, "format: lines")
	gate := make(chan struct{})
	s.setDeliver(func(context.Context, *stream.Batch) error {
		<-gate
		return nil
	})
	var group sync.WaitGroup
	begun := make(chan struct{}, 10)
	for range 10 {
		group.Go(func() {
			begun <- struct{}{}
			if a, err := s.try("/", strings.NewReader("once"), "Idempotency-Key: k"); err != nil || a.status != 200 {
				t.Errorf("%v %v", a, err)
			}
		})
	}
	for range 10 {
		<-begun
	}
	close(gate)
	group.Wait()
	if got := s.records(); len(got) != 1 {
		t.Errorf("%d records arrived, want 1", len(got))
	}
}

// TestDuplicatesCount checks that a repeated request counts against the memory of the source while
// it waits for the response to the first request.
func TestDuplicatesCount(t *testing.T) {
	s := run(t, "format: lines", "flow: {timeout: 60s, abandon: 120s}")
	reached, gate := make(chan struct{}), make(chan struct{})
	first, open := sync.OnceFunc(func() { close(reached) }), sync.OnceFunc(func() { close(gate) })
	defer open()
	s.setDeliver(func(context.Context, *stream.Batch) error {
		first()
		<-gate
		return nil
	})
	const size = 1 << 20
	body := bytes.Repeat([]byte(strings.Repeat("x", 1023)+"\n"), size>>10)
	var group sync.WaitGroup
	send := func() {
		group.Go(func() {
			a, err := s.try("/", bytes.NewReader(body), "Idempotency-Key: k")
			if err != nil || a.status != 200 {
				t.Errorf("%v %v", a, err)
			}
		})
	}
	send()
	<-reached
	const repeats = 5
	for range repeats {
		send()
	}
	deadline := time.Now().Add(patience)
	for s.server.Held() < (1+repeats)*size {
		if time.Now().After(deadline) {
			t.Fatalf("%d bytes are held for %d requests of %d bytes", s.server.Held(), 1+repeats,
				size)
		}
		<-time.After(time.Millisecond)
	}
	// after this answer, the others have long begun to wait
	s.want(s.post("/", strings.NewReader("other"), "Idempotency-Key: k"), 422, "another body")
	if held := s.server.Held(); held < (1+repeats)*size {
		t.Errorf("%d bytes are held for %d waiting requests of %d bytes", held, 1+repeats, size)
	}
	open()
	group.Wait()
}

// TestFull checks that requests wait while the memory of the source is full, and are refused if it
// is still full at their deadline.
func TestFull(t *testing.T) {
	t.Parallel()
	s := run(t, "format: lines, memory: 8MiB, max_body: 4MiB, deadline: 300ms", "flow: {timeout: 60s, abandon: 120s}")
	gate := make(chan struct{})
	open := sync.OnceFunc(func() { close(gate) })
	defer open() // a blocked delivery would block the end of the engine
	s.setDeliver(func(context.Context, *stream.Batch) error {
		<-gate
		return nil
	})
	body := bytes.Repeat([]byte(strings.Repeat("x", 1023)+"\n"), 3<<10)
	untaken := 0
	for range 6 {
		a, err := s.try("/", bytes.NewReader(body))
		if err != nil {
			continue // the rest of a large body is not read
		}
		if a.status != 503 {
			t.Fatalf("answered %d %s", a.status, a.body)
		}
		if a.header.Get(httpserver.StateHeader) == "untaken" {
			untaken++
		}
	}
	if held := s.server.Held(); held > 8<<20 {
		t.Errorf("%d bytes are held", held)
	}
	if untaken == 0 {
		t.Error("no request was refused")
	}
	open()
	if a := s.persist("/", "small", "Idempotency-Key: k"); a.status != 200 {
		t.Errorf("after the jam: %d %s", a.status, a.body)
	}
}

// TestDeadLetterCounts checks that a request is answered as complete if the receiver refuses one of
// its records. That record becomes a dead letter.
func TestDeadLetterCounts(t *testing.T) {
	s := run(t, "format: lines")
	s.setDeliver(func(_ context.Context, b *stream.Batch) error {
		for _, i := range b.AppendKept(nil) {
			if string(b.Text(i)) == "bad" {
				return &stream.Rejected{Err: errors.New("never")}
			}
		}
		return nil
	})
	s.want(s.post("/", strings.NewReader("a\nbad\nb")), 200, `{"records":3}`, `{"message":"a"}`, `{"message":"b"}`)
	if dead := s.e.Status().Routes[0].Dead; dead != 1 {
		t.Errorf("%d dead letters", dead)
	}
}

// TestDrain checks that a drain finishes requests in progress and refuses new ones.
func TestDrain(t *testing.T) {
	s := run(t, "format: lines")
	gate, arrived := make(chan struct{}), make(chan struct{})
	open, once := sync.OnceFunc(func() { close(gate) }), sync.OnceFunc(func() { close(arrived) })
	defer open() // a blocked delivery would block the end of the engine
	s.setDeliver(func(context.Context, *stream.Batch) error {
		once()
		<-gate
		return nil
	})
	first := make(chan answer, 1)
	go func() {
		a, _ := s.try("/", strings.NewReader("first"))
		first <- a
	}()
	select {
	case <-arrived:
	case a := <-first:
		t.Fatalf("answered before its delivery: %d %s", a.status, a.body)
	}
	s.e.Drain()
	<-s.server.Draining()
	if a := s.post("/", strings.NewReader("late")); a.status != 503 ||
		a.header.Get(httpserver.StateHeader) != "untaken" {
		t.Errorf("while draining: %d %v", a.status, a.header)
	}
	open()
	if a := <-first; a.status != 200 {
		t.Errorf("the request in work was answered with %d %s", a.status, a.body)
	}
	if err := <-s.ended; err != nil {
		t.Error(err)
	}
	if got := s.records(); !slices.Equal(got, []string{`{"message":"first"}`}) {
		t.Errorf("arrived %q", got)
	}
}

func TestTokens(t *testing.T) {
	s := run(t, "format: lines, tokens: {alpha: secret-of-alpha, beta: secret-of-beta}")
	for _, c := range []struct {
		header string
		status int
	}{
		{"X: y", 401}, {"Authorization: Bearer secret-of-gamma", 401}, {"Authorization: Bearer ", 401},
		{"Authorization: Bearer secret-of-alpha", 200}, {"Authorization: bearer secret-of-beta", 200},
		{"Authorization: ApiKey secret-of-beta", 200}, {"Authorization: Basic dXNlcjpzZWNyZXQtb2YtYWxwaGE=", 200},
	} {
		a := s.post("/", strings.NewReader("x"), c.header)
		if a.status != c.status {
			t.Errorf("%s: %d %s, want %d", c.header, a.status, a.body, c.status)
		}
	}
	// Keys are separate for each client.
	for _, client := range []string{"alpha", "beta"} {
		a := s.post("/", strings.NewReader("of "+client), "Authorization: Bearer secret-of-"+client,
			"Idempotency-Key: same")
		if a.status != 200 {
			t.Errorf("%s: %d %s", client, a.status, a.body)
		}
	}
}

func TestOnceIsRefused(t *testing.T) {
	text := `{state: ` + t.TempDir() + `, pipelines: {p: {source: {http_server: {listen: "127.0.0.1:0"}}, sink: drop}}}`
	cfg, err := engine.Parse([]byte(text), all.Components()...)
	if err != nil {
		t.Fatal(err)
	}
	e, err := engine.New(cfg, engine.Options{Once: true, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	if err := e.Run(t.Context()); err == nil || !strings.Contains(err.Error(), "without --once") {
		t.Errorf("Run = %v", err)
	}
}

// TestIDsOfKeys checks that record ids depend on the key and the client, and not on the server.
// Requests with the same key from the same client have the same ids at every server.
func TestIDsOfKeys(t *testing.T) {
	t.Parallel()
	const options = "format: lines, tokens: {a: token-of-a-client, b: token-of-b-client}"
	ids := func(token, key string) string {
		s := run(t, options, "processors: [set: {id: meta.id}]")
		a := s.post("/", strings.NewReader("one\ntwo\n"), "Idempotency-Key: "+key,
			"Authorization: Bearer "+token)
		if a.status != 200 {
			t.Fatalf("%v", a)
		}
		return strings.Join(s.records(), " ")
	}
	one := ids("token-of-a-client", "k")
	if again := ids("token-of-a-client", "k"); again != one || !strings.Contains(one, "request-") {
		t.Errorf("ids %s at one server, %s at another", one, again)
	}
	for _, other := range []string{ids("token-of-a-client", "k2"), ids("token-of-b-client", "k")} {
		if other == one {
			t.Errorf("another key or client has the ids %s too", other)
		}
	}
}
