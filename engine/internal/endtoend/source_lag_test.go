package endtoend

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/penstock-io/penstock/engine/connector/connectortest"
	"github.com/penstock-io/penstock/engine/internal/admin"
)

// TestSourceLag checks the backlog that two routes report. The backlog of a route with an available
// receiver falls to 0. If a receiver is down, the backlog of its route grows with the file,
// although that route does not read.
func TestSourceLag(t *testing.T) {
	t.Parallel()
	bin, err := program()
	if err != nil {
		t.Fatal(err)
	}
	dir, address := t.TempDir(), connectortest.FreeAddress(t)
	log, err := os.Create(filepath.Join(dir, "log"))
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	in := filepath.Join(dir, "down", "a.log")
	write(t, filepath.Join(dir, "idle", "a.log"), "one line\n")
	write(t, in, "one line\n")
	config := write(t, filepath.Join(dir, "penstock.yaml"), fmt.Sprintf(`
state: ./state
admin: %s
pipelines:
  idle:
    source: { tail: { include: ["./idle/*"], poll_max: 100ms } }
    sink: { file: { path: out } }
  down:
    source: { tail: { include: ["./down/*"], poll_max: 100ms } }
    batch: { bytes: 64KiB }
    memory: 1MiB
    sink: { http: { endpoints: ["http://%s/"] } }
`, address, connectortest.FreeAddress(t)))
	d := launch(t, log, bin, "run", config)
	const mebibyte = 1 << 20
	text := strings.Repeat(strings.Repeat("x", 1023)+"\n", 8*mebibyte/1024)
	for total := 8; total <= 16; total += 8 {
		appendText(t, in, text)
		least := int64(total-3) * mebibyte // the route holds about one
		eventually(t, fmt.Sprintf("a backlog of %d MiB is seen", total), func() bool {
			s, err := admin.Ask(t.Context(), address, "")
			return err == nil && len(s.Routes) == 2 && s.Routes[0].Delivered == 1 &&
				s.Routes[0].LeftBytes == 0 && s.Routes[1].LeftBytes >= least
		})
	}
	d.signal(syscall.SIGTERM)
	d.exit(20 * time.Second)
}
