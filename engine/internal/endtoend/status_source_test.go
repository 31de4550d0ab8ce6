package endtoend

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/penstock-io/penstock/engine/connector/connectortest"
)

// TestSourceCounters checks that a file deleted before its first read is counted for its route. The
// count is in the metrics, in both forms of the status, and in the final summary. The counters
// exist from the start.
func TestSourceCounters(t *testing.T) {
	t.Parallel()
	open := make(chan struct{})
	receiver := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		select {
		case <-open:
		case <-r.Context().Done():
		}
	}))
	defer receiver.Close()
	dir, address := t.TempDir(), connectortest.FreeAddress(t)
	config := write(t, filepath.Join(dir, "penstock.yaml"), fmt.Sprintf(`
admin: %s
pipelines:
  access:
    source: { tail: { include: ["./in/*.log"], copy_wait: 100ms } }
    sink: { http: { endpoints: ["%s"] } }
    batch: { bytes: 64KiB, linger: 10ms }
    memory: 1MiB
`, address, receiver.URL))
	// more than fits in memory
	write(t, filepath.Join(dir, "in", "first.log"), strings.Repeat("a line of the log\n", 200_000))
	gone := write(t, filepath.Join(dir, "in", "second.log"), "nobody will have read this\n")
	hour := time.Now().Add(-time.Hour)
	// the oldest file is read first
	if err := os.Chtimes(filepath.Join(dir, "in", "first.log"), hour, hour); err != nil {
		t.Fatal(err)
	}
	var summary strings.Builder
	stop := startInto(t, &summary, "run", config)
	metric := func(event string, n int) string {
		const of = "penstock_source_events_total{event=%q,pipeline=\"access\",route=\"main\",source=\"tail\"} %d\n"
		return fmt.Sprintf(of, event, n)
	}
	const nothing = "penstock_read_records_total{pipeline=\"access\",route=\"main\"} 0\n"
	// wait until a record has been read; by then both files have been listed
	until(t, "http://"+address+"/metrics", func(_ int, text string) bool {
		return strings.Contains(text, metric("files_vanished", 0)) &&
			!strings.Contains(text, nothing)
	})
	if err := os.Remove(gone); err != nil {
		t.Fatal(err)
	}
	close(open)
	text := until(t, "http://"+address+"/metrics", func(_ int, text string) bool {
		return strings.Contains(text, metric("files_vanished", 1))
	})
	if !strings.Contains(text, metric("bytes_vanished", 27)) ||
		!strings.Contains(text, metric("files_replaced", 0)) {
		t.Errorf("the other counters: %s", text)
	}
	for form, want := range map[string]string{
		"--json": `"files_vanished":1`, "--timeout=3s": "access/main  tail    " +
			"files_vanished      1\n",
	} {
		out, err := exec.Command(programOf(t), "status", form, address).CombinedOutput()
		if err != nil || !strings.Contains(string(out), want) {
			t.Errorf("status %s: %v, without %q: %s", form, err, want, out)
		}
	}
	stop()
	if want := "access/main, met by tail: bytes_vanished 27, files_vanished 1\n"; !strings.Contains(
		summary.String(), want) {
		t.Errorf("no line %q in %s", want, summary.String())
	}
}
