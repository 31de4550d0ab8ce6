package endtoend

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/penstock-io/penstock/engine/connector/connectortest"
)

// TestUnreadable runs the program with --once repeatedly, each time with fewer file descriptors.
// The program must either deliver everything or exit with an error. It must never exit with 0 when
// nothing was delivered.
func TestUnreadable(t *testing.T) {
	t.Parallel() // it mostly waits
	for name, source := range map[string]string{
		"spool_dir": "spool_dir: {path: ./in, quiet_period: 10ms, finished: keep, recursive: true}",
		"tail":      `tail: { include: ["./in/**/*.log"] }`,
	} {
		t.Run(name, func(t *testing.T) {
			failed, done := 0, 0
			for _, limit := range []int{40, 14, 12, 11, 10, 9, 8, 7} {
				dir := t.TempDir()
				config := write(t, filepath.Join(dir, "penstock.yaml"), fmt.Sprintf(`
state: ./state
pipelines:
  job:
    source: { %s }
    sink: { file: { path: ./out.txt, format: raw } }
`, source))
				for n := range 3 {
					for _, folder := range []string{"", "a", "a/b/c"} {
						write(t, filepath.Join(dir, "in", folder, fmt.Sprintf("%d.log", n)),
							"a line\n")
					}
				}
				bin, err := program()
				if err != nil {
					t.Fatal(err)
				}
				d := launch(t, nil, "sh", "-c",
					fmt.Sprintf(`ulimit -n %d; exec "$0" run --once "$1"`, limit), bin, config)
				if code := d.exit(time.Minute); code != 0 {
					failed++
				} else if done++; sizeOf(filepath.Join(dir, "out.txt")) != 9*7 {
					t.Errorf("%d descriptors: exit code 0 and %d bytes delivered", limit,
						sizeOf(filepath.Join(dir, "out.txt")))
				}
			}
			if failed == 0 || done == 0 {
				t.Errorf("%d runs failed, %d did not: the test shows nothing", failed, done)
			}
		})
	}
}

// TestFolderVanishes deletes the source directory of a running program. The program must then not
// be ready, and must name the directory.
func TestFolderVanishes(t *testing.T) {
	t.Parallel() // it mostly waits
	bin, err := program()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	address := connectortest.FreeAddress(t)
	config := spoolJob(t, dir, "file: { path: ./out.txt, format: raw }", "")
	launch(t, nil, bin, "run", "--admin", address, config)
	eventually(t, "it delivers", func() bool {
		return sizeOf(filepath.Join(dir, "out.txt")) == 5000*7
	})
	if err := os.RemoveAll(filepath.Join(dir, "spool")); err != nil {
		t.Fatal(err)
	}
	eventually(t, "it is not ready, and says why", func() bool {
		status, text := page(t.Context(), t, "http://"+address+"/readyz")
		return status == http.StatusServiceUnavailable &&
			strings.Contains(text, filepath.Join(dir, "spool"))
	})
	if err := os.Mkdir(filepath.Join(dir, "spool"), 0o755); err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(dir, "spool", "b.log"), "one more\n")
	eventually(t, "it delivers again", func() bool {
		return sizeOf(filepath.Join(dir, "out.txt")) == 5000*7+9
	})
}
