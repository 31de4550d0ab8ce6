package endtoend

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/penstock-io/penstock/engine/connector/connectortest"
)

// program builds penstock once and returns its path.
var program = sync.OnceValues(func() (string, error) {
	dir, err := os.MkdirTemp("", "penstock-program-")
	if err != nil {
		return "", err
	}
	bin := filepath.Join(dir, "penstock")
	cmd := exec.Command("go", "build", "-o", bin,
		"github.com/penstock-io/penstock/engine/cmd/penstock")
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("building penstock: %v\n%s", err, out)
	}
	return bin, nil
})

func TestMain(m *testing.M) {
	if name := os.Getenv("PENSTOCK_BARE_PROGRAM"); name != "" {
		os.Exit(bareProgram(name))
	}
	if settings := os.Getenv("PENSTOCK_NATS_SERVER"); settings != "" {
		os.Exit(natsServerProgram(settings))
	}
	code := connectortest.RunWaiting(m)
	if os.Getenv("PENSTOCK_PUSH_URL") != "" {
		os.Exit(code) // a client of TestKillPush has not built the program
	}
	if bin, err := program(); err == nil {
		os.RemoveAll(filepath.Dir(bin))
	}
	os.Exit(code)
}

// routeResult is one pipeline in the last line of `run --once --json`.
type routeResult struct {
	Pipeline, Route          string
	Delivered, Dead, Dropped int64
	Waiting                  int64
	ReadRecords              int64 `json:"read_records"`
	ReadBytes                int64 `json:"read_bytes"`
	InFlight                 int64 `json:"in_flight"`
	Attempts, Redelivered    int64
}

// runResult is the last line of `run --once --json`.
type runResult struct {
	OK        bool
	Error     string
	Seconds   float64
	Pipelines []routeResult
}

// once runs `penstock run --once --json` on a config to its end.
func once(t testing.TB, config string) runResult {
	t.Helper()
	res, err := tryOnce(t, config)
	if err != nil {
		t.Fatal(err)
	}
	return res
}

func tryOnce(t testing.TB, config string) (runResult, error) {
	t.Helper()
	return tryWatched(t, config, nil)
}

// started runs the program to its end and returns it with its output.
func started(t testing.TB, config string) (cmd *exec.Cmd, out, errs *bytes.Buffer, err error) {
	t.Helper()
	bin, err := program()
	if err != nil {
		t.Fatal(err)
	}
	out, errs = new(bytes.Buffer), new(bytes.Buffer)
	cmd = exec.Command(bin, "run", "--once", "--json", config)
	cmd.Stdout, cmd.Stderr = out, errs
	return cmd, out, errs, cmd.Start()
}

// tryWatched is tryOnce, and calls watch, unless nil, with the process after its start.
func tryWatched(t testing.TB, config string, watch func(*os.Process)) (runResult, error) {
	t.Helper()
	cmd, out, errs, runErr := started(t, config)
	if runErr == nil {
		if watch != nil {
			watch(cmd.Process)
		}
		runErr = cmd.Wait()
	}
	lines := strings.Split(strings.TrimSpace(out.String()), "\n")
	var res runResult
	if err := json.Unmarshal([]byte(lines[len(lines)-1]), &res); err != nil {
		return res, fmt.Errorf("last line %q: %v\n%v\n%s", lines[len(lines)-1], err, runErr,
			errs.String())
	}
	if runErr != nil {
		return res, fmt.Errorf("%v: %s\n%s", runErr, res.Error, errs.String())
	}
	for _, p := range res.Pipelines {
		if sum := p.Delivered + p.Dead + p.Dropped + p.InFlight + p.Waiting; sum != p.ReadRecords {
			return res, fmt.Errorf("%s/%s: read %d records, accounts for %d", p.Pipeline, p.Route,
				p.ReadRecords, sum)
		}
	}
	return res, nil
}

// await waits until ok reports true, and fails the test after bound.
func await(t testing.TB, bound time.Duration, event string, ok func() bool) {
	t.Helper()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for deadline := time.Now().Add(bound); !ok(); <-tick.C {
		if time.Now().After(deadline) {
			t.Fatalf("waited %v for: %s", bound, event)
		}
	}
}

// eventually waits up to 30 s until ok reports true.
func eventually(t *testing.T, event string, ok func() bool) {
	t.Helper()
	await(t, 30*time.Second, event, ok)
}

// write creates a file with its folders.
func write(t testing.TB, path, text string) string {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func read(t *testing.T, path string) []byte {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// realLogs returns the files of PENSTOCK_DATA.
func realLogs(t *testing.T) []string {
	t.Helper()
	dir := os.Getenv("PENSTOCK_DATA")
	if dir == "" {
		t.Skip("skipped: PENSTOCK_DATA names no folder of real logs")
	}
	files, err := filepath.Glob(filepath.Join(dir, "*.log"))
	if err != nil || len(files) == 0 {
		t.Fatalf("PENSTOCK_DATA holds no *.log (%v)", err)
	}
	return files
}

// completeLines returns the contents of a file with a line end after the last record.
func completeLines(text []byte) []byte {
	if len(text) > 0 && text[len(text)-1] != '\n' {
		return append(text[:len(text):len(text)], '\n')
	}
	return text
}
