//go:build unix

package endtoend

import (
	"fmt"
	"log/slog"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/penstock-io/penstock/engine"
	"github.com/penstock-io/penstock/engine/connector/all"
	"github.com/penstock-io/penstock/engine/connector/connectortest"
)

// TestRegistry delivers to worker processes that register at a NATS server. During the run, one
// process drains and one joins. The sender must follow these changes, and each record must arrive.
func TestRegistry(t *testing.T) {
	t.Parallel()
	nats, dir := startNATS(t), t.TempDir()
	worker := func(name string) *process {
		t.Helper()
		config := write(t, filepath.Join(dir, name+".yaml"), fmt.Sprintf(`
state: ./%s
pipelines:
  worker:
    sink: { file: { path: ./%s.log, format: raw } }
`, name, name))
		return launch(t, nil, programOf(t), "worker", "--listen", connectortest.FreeAddress(t),
			"--log-level", "error",
			"--registry", nats.url, "--subject", "workers.orders", config)
	}
	a := worker("a")
	config := write(t, filepath.Join(dir, "sender.yaml"), fmt.Sprintf(`
state: ./sender
pipelines:
  orders:
    source: { arrivals: { count: 1000000000, rate: 300, seed: 7 } }
    sink:
      http:
        endpoints: [{ nats: workers.orders }]
        discovery: { interval: 100ms, nats: { url: %q } }
        body: raw
    batch: { linger: 0s }
`, nats.url))
	c, err := engine.Load(config, append(all.Components(), arrivals)...)
	if err != nil {
		t.Fatal(err)
	}
	e, err := engine.New(c, engine.Options{Once: true, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- e.Run(t.Context()) }()
	workers := func(want int) {
		t.Helper()
		await(t, time.Minute, fmt.Sprint(want, " workers"), func() bool {
			s := e.Status()
			return len(s.Routes) == 1 && len(s.Routes[0].Workers) == want
		})
	}
	hasRecords := func(name string) {
		t.Helper()
		await(t, time.Minute, name+" has records", func() bool {
			return len(linesInFile(t, filepath.Join(dir, name+".log"))) >= 10
		})
	}
	workers(1)
	hasRecords("a")
	worker("b")
	workers(2)
	hasRecords("b")
	a.signal(syscall.SIGTERM)
	if code := a.exit(30 * time.Second); code != 0 {
		t.Errorf("the worker that drained exits with %d", code)
	}
	workers(1)
	e.Drain()
	if err := <-ended; err != nil {
		t.Fatal(err)
	}
	checkArrived(t, dir, int(e.Status().Routes[0].ReadRecords))
}

// checkArrived checks that each record is in the file of one of the two workers, and that each
// worker has got some records.
func checkArrived(t *testing.T, dir string, count int) {
	t.Helper()
	arrived := make(map[string]int)
	for _, name := range []string{"a", "b"} {
		lines := linesInFile(t, filepath.Join(dir, name+".log"))
		if len(lines) < 10 {
			t.Errorf("%s has %d records", name, len(lines))
		}
		for _, line := range lines {
			id, _, _ := strings.Cut(string(line), " ")
			arrived[id]++
		}
	}
	if len(arrived) != count {
		t.Errorf("%d of %d records arrived", len(arrived), count)
	}
}
