package endtoend

import (
	"fmt"
	"net/http"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/penstock-io/penstock/engine/connector/connectortest"
)

// TestGuardAndInput runs the program as a daemon that parses JSON. If the first line is not JSON,
// this does not stop the route. Hundreds of such lines stop it until the input changes. The route
// then restarts by itself and delivers the good records.
func TestGuardAndInput(t *testing.T) {
	t.Parallel()
	bin, err := program()
	if err != nil {
		t.Fatal(err)
	}
	for _, source := range []string{"spool_dir: { path: ./in, quiet_period: 10ms, finished: keep }",
		`tail: { include: ["./in/*.log"] }`} {
		dir := t.TempDir()
		address := connectortest.FreeAddress(t)
		out := filepath.Join(dir, "out.txt")
		config := write(t, filepath.Join(dir, "penstock.yaml"), fmt.Sprintf(`
state: ./state
admin: %s
pipelines:
  job:
    source: { %s }
    processors: [{ parse: { format: json } }]
    sink: { file: { path: ./out.txt } }
`, address, source))
		in := filepath.Join(dir, "in")
		write(t, filepath.Join(in, "a.log"), "no json\n")
		d := launch(t, nil, bin, "run", config)
		ready := func() bool {
			status, _ := page(t.Context(), t, "http://"+address+"/readyz")
			return status == http.StatusOK
		}
		dead := func() bool {
			status, text := page(t.Context(), t, "http://"+address+"/metrics")
			return status == http.StatusOK &&
				strings.Contains(text, `dead_records_total{pipeline="job",route="main"} 1`)
		}
		eventually(t, "the first line is dead", dead)
		if !ready() {
			t.Errorf("%s: one bad line has stopped the route", source)
		}
		write(t, filepath.Join(in, "b.log"), strings.Repeat("no json\n", 500))
		eventually(t, "500 bad lines stop the route", func() bool { return !ready() })
		select {
		case <-d.ended:
			t.Fatalf("%s: the guard has ended the process", source)
		case <-time.After(100 * time.Millisecond):
		}
		write(t, filepath.Join(in, "c.log"), strings.Repeat("{\"good\":1}\n", 20))
		eventually(t, "the good lines are delivered",
			func() bool { return sizeOf(out) == 20*int64(len("{\"good\":1}\n")) })
		eventually(t, "the route is ready again", ready)
		d.signal(syscall.SIGTERM)
		if code := d.exit(20 * time.Second); code != 0 {
			t.Errorf("%s: exit code %d", source, code)
		}
	}
}
