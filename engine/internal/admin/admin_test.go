package admin

import (
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"runtime"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/penstock-io/penstock/engine/status"
)

// picture is a status in which every part is set.
func picture() status.Status {
	s := status.Status{
		Version: 1, PID: 7, Program: "v0.1.0", Free: 1 << 30, Seconds: 3.5,
		Routes: []status.Route{{
			Pipeline: "access", Name: "main", Source: "spool_dir", Sink: "http", Health: "running",
			Processors:  []string{},
			LeftBytes:   12345,
			ReadRecords: 10, Delivered: 4, Dead: 1, Dropped: 2, InFlight: 1, Waiting: 2,
			Counters:       map[string]int64{"requests": 9},
			SourceCounters: map[string]int64{"files_vanished": 3},
			Workers: []status.Worker{{
				Name: "http://a/", State: "SLOW", Gate: "window", Window: 3.5, InFlight: 2,
				RoundTrip: 0.25, Throttled: 6,
			}},
		}},
		Sources: []status.Source{{Pipeline: "access", Name: "spool_dir",
			Counters: map[string]int64{"files_finished": 5}}},
	}
	s.Judge()
	return s
}

func handler(t *testing.T, o Options) http.Handler {
	t.Helper()
	if o.Status == nil {
		o.Status = picture
	}
	o.Live, o.Log = o.Status, slog.New(slog.DiscardHandler)
	return newServer(o).Handler()
}

func get(h http.Handler, url string, change func(*http.Request)) (int, string) {
	r := httptest.NewRequest(http.MethodGet, url, nil)
	if change != nil {
		change(r)
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	text, _ := io.ReadAll(w.Result().Body)
	return w.Code, string(text)
}

// TestMetricsLint checks that promlint accepts the metrics.
func TestMetricsLint(t *testing.T) {
	reg := prometheus.NewPedanticRegistry()
	reg.MustRegister(collector{picture})
	problems, err := testutil.GatherAndLint(reg)
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range problems {
		t.Errorf("%s: %s", p.Metric, p.Text)
	}
	if _, err := Registry(picture).Gather(); err != nil {
		t.Error(err)
	}
}

func TestMetricsValues(t *testing.T) {
	_, text := get(handler(t, Options{}), "http://127.0.0.1/metrics", nil)
	for _, want := range []string{
		`penstock_read_records_total{pipeline="access",route="main"} 10`,
		`penstock_waiting_records{pipeline="access",route="main"} 2`,
		`penstock_worker_window{pipeline="access",route="main",worker="http://a/"} 3.5`,
		`penstock_worker_state{pipeline="access",route="main",state="SLOW",worker="http://a/"} 1`,
		`penstock_worker_state{pipeline="access",route="main",state="OPEN",worker="http://a/"} 0`,
		`penstock_worker_gate{gate="window",pipeline="access",route="main",worker="http://a/"} 1`,
		`penstock_worker_gate{gate="breaker",pipeline="access",route="main",worker="http://a/"} 0`,
		`penstock_worker_throttles_total{pipeline="access",route="main",worker="http://a/"} 6`,
		`penstock_component_events_total{event="requests",pipeline="access",route="main"} 9`,
		`penstock_source_events_total{event="files_vanished",pipeline="access",route="main",source="spool_dir"} 3`,
		`penstock_source_events_total{event="files_finished",pipeline="access",route="",source="spool_dir"} 5`,
		`penstock_route_health{health="running",pipeline="access",route="main"} 1`,
		`penstock_ready 1`,
		`penstock_build_info{goversion="` + runtime.Version() + `",version="v0.1.0"} 1`,
		`penstock_source_lag_bytes{pipeline="access",route="main"} 12345`, "go_goroutines ",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("no line %s", want)
		}
	}
}

// TestAccess checks the access to each page with and without a token.
func TestAccess(t *testing.T) {
	with := func(token string) func(*http.Request) {
		return func(r *http.Request) { r.Header.Set("Authorization", "Bearer "+token) }
	}
	open, locked := Options{}, Options{Token: "s3cret"}
	for _, c := range []struct {
		name   string
		o      Options
		url    string
		change func(*http.Request)
		want   int
	}{
		{"loopback", open, "http://127.0.0.1:7070/metrics", nil, 200},
		{"localhost", open, "http://localhost:7070/api/v1/status", nil, 200},
		{"IPv6", open, "http://[::1]:7070/", nil, 200},
		{"a name that a page made up", open, "http://evil.test/metrics", nil, 421},
		{"health by that name", open, "http://evil.test/healthz", nil, 421},
		{"a name that is given", Options{Hosts: []string{"box.test"}}, "http://box.test:7070/metrics", nil, 200},
		{"a token and no names", locked, "http://box.test/metrics", with("s3cret"), 200},
		{"a token and other names", Options{Token: "s3cret", Hosts: []string{"a.test"}},
			"http://box.test/metrics", with("s3cret"), 421},
		{"no token", locked, "http://127.0.0.1/metrics", nil, 401},
		{"a wrong token", locked, "http://127.0.0.1/api/v1/status", with("s3cre"), 401},
		{"health without", locked, "http://127.0.0.1/healthz", nil, 200},
		{"readiness without", locked, "http://127.0.0.1/readyz", nil, 200},
		{"no profiles", open, "http://127.0.0.1/debug/pprof/", nil, 404},
		{"profiles", Options{Pprof: true}, "http://127.0.0.1/debug/pprof/", nil, 200},
		{"profiles need the token", Options{Pprof: true, Token: "x"}, "http://127.0.0.1/debug/pprof/heap", nil, 401},
		{"writing", open, "http://127.0.0.1/metrics", func(r *http.Request) { r.Method = http.MethodPost }, 405},
		{"elsewhere", open, "http://127.0.0.1/else", nil, 404},
	} {
		if code, text := get(handler(t, c.o), c.url, c.change); code != c.want {
			t.Errorf("%s: %d, want %d: %.80s", c.name, code, c.want, text)
		}
	}
}

// TestCommandLine checks that the page with the command line does not show the text of a config or
// the password in a URL.
func TestCommandLine(t *testing.T) {
	before := os.Args
	t.Cleanup(func() { os.Args = before })
	for _, c := range []struct {
		args []string
		want string // arguments separated by spaces
	}{
		{[]string{"penstock", "run", "p.yaml"}, "penstock run p.yaml"},
		{[]string{"penstock", "run", "-c", "s3cret"}, "penstock run -c ***"},
		{[]string{"penstock", "run", "--once", "-cs3cret: x"}, "penstock run --once -c***"},
		{[]string{"penstock", "run", "-c=s3cret"}, "penstock run -c***"},
		{[]string{"penstock", "run", "--config", "a: s3cret", "--json"},
			"penstock run --config *** --json"},
		{[]string{"penstock", "run", "--config=a: s3cret"}, "penstock run --config=***"},
		{[]string{"penstock", "worker", "--registry", "nats://u:s3cret@a:4222"},
			"penstock worker --registry nats://***@a:4222"},
	} {
		os.Args = c.args
		h := handler(t, Options{Pprof: true})
		code, text := get(h, "http://127.0.0.1/debug/pprof/cmdline", nil)
		if got := strings.ReplaceAll(text, "\x00", " "); code != 200 || got != c.want {
			t.Errorf("%q: %d %q, want %q", c.args, code, got, c.want)
		}
	}
}

// TestReady checks the conditions of readiness, and which clients may see the reasons.
func TestReady(t *testing.T) {
	for _, c := range []struct {
		name, want string
		change     func(*status.Status)
	}{
		{"all is well", "", func(*status.Status) {}},
		{"quiet for less than a minute", "", func(s *status.Status) { s.Routes[0].QuietSeconds = 59.9 }},
		{"stall", "access/main: stall: nothing settled for 1m1s while 3 records wait",
			func(s *status.Status) { s.Routes[0].QuietSeconds = 61 }},
		{
			"misconfigured", "access/main: worker http://a/ is misconfigured: 401",
			func(s *status.Status) { s.Routes[0].Workers[0].Misconfigured, s.Routes[0].LastFault = true, "401" },
		},
		{
			"reason of the worker", "access/main: worker http://a/ is misconfigured: POST: 401",
			func(s *status.Status) {
				s.Routes[0].LastFault = "http://b/: misconfigured: POST: 404"
				w := &s.Routes[0].Workers[0]
				w.Misconfigured, w.LastFault = true, "misconfigured: POST: 401"
			},
		},
		{"full disk", "disk: 1000 bytes are free on the file system of the state directory",
			func(s *status.Status) { s.Free = 1000 }},
		{"unknown disk", "", func(s *status.Status) { s.Free = -1 }},
		{"stopped", "access/main: stopped: guard", func(s *status.Status) {
			r := &s.Routes[0]
			r.Health, r.Error = "stopped", "guard"
		}},
		{"draining", "access/main: draining", func(s *status.Status) { s.Routes[0].Health = "draining" }},
		{"finished", "", func(s *status.Status) { s.Routes[0].Health, s.Routes[0].QuietSeconds = "finished", 100 }},
	} {
		status := func() status.Status { s := picture(); c.change(&s); s.Judge(); return s }
		code, text := get(handler(t, Options{Status: status}), "http://127.0.0.1/readyz", nil)
		want, body := 200, "ready\n"
		if c.want != "" {
			want, body = 503, "not ready\n"+c.want+"\n"
		}
		if code != want || text != body {
			t.Errorf("%s: %d %q, want %d %q", c.name, code, text, want, body)
		}
		_, text = get(handler(t, Options{Status: status, Token: "x"}), "http://127.0.0.1/readyz", nil)
		if strings.Contains(text, "access") {
			t.Errorf("%s: said to who has no token: %q", c.name, text)
		}
	}
}

func TestStatusForm(t *testing.T) {
	_, text := get(handler(t, Options{}), "http://127.0.0.1/api/v1/status", nil)
	var back status.Status
	if err := json.Unmarshal([]byte(text), &back); err != nil ||
		back.Routes[0].Workers[0].State != "SLOW" || !back.Ready {
		t.Errorf("%v: %s", err, text)
	}
	for _, name := range []string{
		`"problems":[]`, `"routes":[{"pipeline":"access"`,
		`"watermark_age_seconds"`, `"round_trip_seconds":0.25`,
	} {
		if !strings.Contains(text, name) {
			t.Errorf("no %s in %s", name, text)
		}
	}
}

// TestListen checks that Close may be called twice. Listen must return an error with a remedy if
// the port is in use, or if other machines could reach the port and no token is set.
func TestListen(t *testing.T) {
	o := Options{Address: "127.0.0.1:0", Status: picture, Live: picture, Log: slog.New(slog.DiscardHandler)}
	s, err := Listen(o)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	o.Address = s.Addr()
	if _, err := Listen(o); err == nil || !strings.Contains(err.Error(), "give `admin:` another port") {
		t.Errorf("a taken port gives %v", err)
	}
	for range 2 {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}
	again, err := Listen(o)
	if err != nil {
		t.Fatalf("after Close: %v", err)
	}
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- again.Run(ctx) }()
	if res, err := http.Get("http://" + again.Addr() + "/healthz"); err != nil {
		t.Error(err)
	} else {
		res.Body.Close()
	}
	stop()
	if err := <-ended; err != nil {
		t.Errorf("Run = %v", err)
	}
	o.Address = "0.0.0.0:0"
	if _, err := Listen(o); err == nil || !strings.Contains(err.Error(), "set a token") {
		t.Errorf("an open port without a token gives %v", err)
	}
}
