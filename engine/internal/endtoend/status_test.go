package endtoend

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"

	"github.com/penstock-io/penstock/engine/connector/connectortest"
)

// start runs penstock until the end of the test, which drains it.
func start(t *testing.T, args ...string) {
	t.Helper()
	startInto(t, t.Output(), args...)
}

// startInto is like start, but penstock writes its output to out. startInto returns a function that
// drains penstock. If the test does not call this function, penstock drains at the end of the test.
func startInto(t *testing.T, out io.Writer, args ...string) (stop func()) {
	t.Helper()
	bin, err := program()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(bin, args...)
	cmd.Stderr, cmd.Stdout = out, out
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	stop = sync.OnceFunc(func() {
		_ = cmd.Process.Signal(syscall.SIGTERM)
		if err := cmd.Wait(); err != nil {
			t.Errorf("a drained run ended with %v", err)
		}
	})
	t.Cleanup(stop)
	return stop
}

// page requests an admin page; status 0 means no response.
func page(ctx context.Context, t *testing.T, url string) (status int, text string) {
	t.Helper()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return 0, err.Error()
	}
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	return res.StatusCode, string(body)
}

// until requests a page repeatedly until ok returns true, for at most 20 s.
func until(t *testing.T, url string, ok func(status int, text string) bool) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		status, text := page(ctx, t, url)
		if ok(status, text) {
			return text
		}
		select {
		case <-ctx.Done():
			t.Fatalf("%s is still not as it should be: %d %s", url, status, text)
		case <-tick.C:
		}
	}
}

// scrape parses the metrics with Prometheus' parser. It returns a function that returns the sum of
// the values of a metric family.
func scrape(t *testing.T, url string) func(name string) float64 {
	t.Helper()
	_, text := page(t.Context(), t, url)
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(strings.NewReader(text))
	if err != nil {
		t.Fatalf("%v in %s", err, text)
	}
	return func(name string) (sum float64) {
		t.Helper()
		f := families["penstock_"+name]
		if f == nil {
			t.Fatalf("no metric %s", name)
		}
		for _, m := range f.Metric {
			if f.GetType() == dto.MetricType_COUNTER {
				sum += m.Counter.GetValue()
			} else {
				sum += m.Gauge.GetValue()
			}
		}
		return sum
	}
}

// checkReasons checks the text of /readyz: the reason of a worker must have the URL of this worker.
func checkReasons(t *testing.T, text string) {
	t.Helper()
	for line := range strings.Lines(text) {
		worker, reason, found := strings.Cut(line, " is misconfigured: ")
		_, url, _ := strings.Cut(worker, ": worker ")
		if found && !strings.HasPrefix(reason, "POST "+url+": ") {
			t.Errorf("the reason is not one of worker %s: %s", url, reason)
		}
	}
}

// TestStatusOfAProcess checks that the metrics of a running process add up, and that the process
// shows readiness and the state of each worker. While the receiver refuses the token, the process
// must not be ready, and must settle no record. It recovers when the receiver accepts the token
// again.
func TestStatusOfAProcess(t *testing.T) {
	t.Parallel()
	var refuse atomic.Bool
	receiver := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		if refuse.Load() {
			w.WriteHeader(http.StatusUnauthorized)
		}
	}))
	defer receiver.Close()
	dir, address := t.TempDir(), connectortest.FreeAddress(t)
	config := write(t, filepath.Join(dir, "penstock.yaml"), fmt.Sprintf(`
admin: %s
pipelines:
  access:
    source: { spool_dir: { path: ./spool, quiet_period: 1ms } }
    sink: { http: { endpoints: ["%s/a", "%s/b"], bearer: s3cr3t-token } }
    batch: { records: 10, linger: 10ms }
    retry: { base: 10ms, max: 100ms }
`, address, receiver.URL, receiver.URL))
	write(t, filepath.Join(dir, "spool", "a.log"), strings.Repeat("a line of the log\n", 5000))
	start(t, "run", config)
	base := "http://" + address
	until(t, base+"/readyz", func(status int, _ string) bool { return status == 200 })
	addsUp(t, base+"/metrics", 5000)
	refuse.Store(true)
	write(t, filepath.Join(dir, "spool", "b.log"), strings.Repeat("another line\n", 100))
	text := until(t, base+"/readyz", func(status int, _ string) bool { return status == 503 })
	if !strings.Contains(text, " is misconfigured: ") || !strings.Contains(text, "401") {
		t.Errorf("not ready because: %s", text)
	}
	checkReasons(t, text)
	out, err := exec.Command(programOf(t), "status", "--json", config).Output()
	var status struct {
		Ready  bool
		Routes []struct {
			Dead, Delivered int64
			Workers         []struct {
				Name, State   string
				Misconfigured bool
			}
		}
	}
	if jsonErr := json.Unmarshal(out, &status); jsonErr != nil || err == nil || status.Ready ||
		len(status.Routes[0].Workers) != 2 {
		t.Errorf("status of a process that is not ready: %v, %v, %s", jsonErr, err, out)
	}
	if r := status.Routes[0]; r.Dead != 0 || r.Delivered != 5000 {
		t.Errorf("a wrong token settled records: %+v", r)
	}
	if strings.Contains(string(out), "s3cr3t") {
		t.Errorf("the status shows the token: %s", out)
	}
	refuse.Store(false)
	until(t, base+"/api/v1/status", func(_ int,
		text string) bool {
		return strings.Contains(text, `"delivered":5100`)
	})
	until(t, base+"/readyz", func(status int, _ string) bool { return status == 200 })
	for _, flag := range []string{"--json", "--tree", "--timeout=3s"} {
		out, err := exec.Command(programOf(t), "status", flag, address).CombinedOutput()
		if err != nil || !strings.Contains(string(out), receiver.URL+"/a") {
			t.Errorf("status %s: %v\n%s", flag, err, out)
		}
		t.Logf("%s", out)
	}
}

func programOf(t *testing.T) string {
	t.Helper()
	bin, err := program()
	if err != nil {
		t.Fatal(err)
	}
	return bin
}

// addsUp scrapes until the given number of records was delivered. In every scrape, the number of
// read records must equal the sum of the delivered, dead, dropped, in-flight and waiting records.
func addsUp(t *testing.T, url string, records float64) {
	t.Helper()
	for done := false; !done; {
		m := scrape(t, url)
		read, sum := m("read_records_total"), 0.0
		for _, name := range []string{
			"delivered_records_total", "dead_records_total", "dropped_records_total",
			"in_flight_records", "waiting_records",
		} {
			sum += m(name)
		}
		if read != sum {
			t.Fatalf("read %v, and the parts make %v", read, sum)
		}
		done = m("delivered_records_total") == records
	}
}
