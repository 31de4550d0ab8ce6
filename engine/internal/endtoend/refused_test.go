package endtoend

import (
	"database/sql"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	_ "modernc.org/sqlite"

	"github.com/penstock-io/penstock/engine/connector/connectortest"
)

// TestEveryRecordRefused runs the program with receivers that refuse every record. It must exit
// with an error, however few the records are.
func TestEveryRecordRefused(t *testing.T) {
	t.Parallel()
	const table = `CREATE TABLE refused (message text CHECK (message LIKE 'never%'))`
	sinks := map[string]func(t *testing.T, dir string) string{
		"http": func(t *testing.T, _ string) string {
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter,
				_ *http.Request) {
				http.Error(w, "no", http.StatusBadRequest)
			}))
			t.Cleanup(server.Close)
			return fmt.Sprintf("http: { endpoints: [%q] }", server.URL)
		},
		"sqlite": func(t *testing.T, dir string) string {
			path := filepath.Join(dir, "out.db")
			db, err := sql.Open("sqlite", path)
			if err != nil {
				t.Fatal(err)
			}
			defer db.Close()
			connectortest.Execute(t, db, table)
			return "sqlite: { path: ./out.db, table: refused }"
		},
		"exec": func(t *testing.T, _ string) string {
			return "exec: { command: [sh, -c, 'cat >/dev/null; exit 65'], env: [PATH] }"
		},
		"postgres": func(t *testing.T, _ string) string {
			server := connectortest.StartServer(t, "postgres", "psql")
			connectortest.Execute(t, openPostgres(t, server.URL), table)
			return fmt.Sprintf("postgres: { url: %q, table: refused }", server.URL)
		},
	}
	for name, sink := range sinks {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			config := write(t, filepath.Join(dir, "penstock.yaml"), fmt.Sprintf(`
state: ./state
pipelines:
  refused:
    source: { spool_dir: { path: ./spool, finished: keep, quiet_period: 10ms } }
    sink: { %s }
`, sink(t, dir)))
			for n, records := range []int{1, 6, 1500, 6, 1500, 1500} {
				if err := os.RemoveAll(filepath.Join(dir, "state")); err != nil {
					t.Fatal(err)
				}
				path := filepath.Join(dir, "spool", "a.log")
				write(t, path, strings.Repeat(fmt.Sprintf("run %d\n", n), records))
				res, err := tryOnce(t, config)
				if err == nil || res.OK || res.Error == "" {
					t.Errorf("run %d: %d records were refused; want an error: %+v", n, records, res)
				} else if len(res.Pipelines) == 0 || res.Pipelines[0].Dead == 0 {
					t.Errorf("no record is dead: %v", err)
				}
			}
		})
	}
}
