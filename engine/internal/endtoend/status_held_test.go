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

	"github.com/penstock-io/penstock/engine/connector/connectortest"
)

// TestHeldFiles deletes a file that two routes have not read to its end, because their receivers
// are down. The program keeps the file open. Metrics and status must count it as one deleted file
// that still takes disk space, and not as one for each route.
func TestHeldFiles(t *testing.T) {
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
admin: %[1]s
pipelines:
  access:
    source: { tail: { include: ["./in/*.log"], copy_wait: 100ms, gone_wait: 100ms } }
    routes:
      one: { sink: { http: { endpoints: ["%[2]s"] } }, memory: 1MiB, batch: { bytes: 64KiB } }
      two: { sink: { http: { endpoints: ["%[2]s"] } }, memory: 1MiB, batch: { bytes: 64KiB } }
`, address, receiver.URL))
	text := strings.Repeat("a line of the log\n", 200_000) // more than fits in memory
	path := write(t, filepath.Join(dir, "in", "first.log"), text)
	stop := startInto(t, io.Discard, "run", config)
	defer stop()
	metric := func(name string, n int) string {
		return fmt.Sprintf("penstock_source_held_%s{pipeline=\"access\",source=\"tail\"} %v\n",
			name, float64(n))
	}
	url := "http://" + address + "/metrics"
	until(t, url, func(_ int, page string) bool {
		read := func(route string) bool {
			return strings.Contains(page,
				fmt.Sprintf("penstock_read_records_total{pipeline=\"access\",route=%q} ", route)) &&
				!strings.Contains(page, fmt.Sprintf(
					"penstock_read_records_total{pipeline=\"access\",route=%q} 0\n", route))
		}
		return strings.Contains(page, metric("files", 0)) && read("one") && read("two")
	})
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	until(t, url, func(_ int, page string) bool {
		return strings.Contains(page, metric("files", 1)) &&
			strings.Contains(page, metric("bytes", len(text)))
	})
	for form, want := range map[string]string{
		"--json": `"held":{"files":1,"bytes":3600000,"oldest":"` + path + `"`,
		"--timeout=3s": "access: 1 deleted files take 3,600,000 bytes on disk " +
			"until they are read; " +
			"the oldest, " + path,
	} {
		out, err := exec.Command(programOf(t), "status", form, address).CombinedOutput()
		if err != nil || !strings.Contains(string(out), want) {
			t.Errorf("status %s: %v, without %q: %s", form, err, want, out)
		}
	}
	close(open)
	until(t, url, func(_ int, page string) bool {
		return strings.Contains(page, metric("files", 0))
	})
}
