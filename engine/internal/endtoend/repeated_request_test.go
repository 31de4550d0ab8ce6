package endtoend

import (
	"fmt"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/penstock-io/penstock/engine/connector/connectortest"
)

// TestRepeatedRequest repeats a request with its key in two ways. The first repetition goes to the
// same process, which was killed and started again. Its ledger recognizes the request. The second
// repetition goes to another process, which has a ledger of its own. It delivers the records again
// with the same ids, and a unique key on the id keeps each record once.
func TestRepeatedRequest(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	data := filepath.Join(dir, "data.db")
	db := connectortest.OpenSQLite(t, data)
	connectortest.Execute(t, db, "PRAGMA journal_mode = WAL")
	connectortest.Execute(t, db, "CREATE TABLE appended (key text, message text)")
	connectortest.Execute(t, db, "CREATE TABLE upserted (key text PRIMARY KEY, message text)")
	node := func(name, table, mode string) (config, url string) {
		address := connectortest.FreeAddress(t)
		return write(t, filepath.Join(dir, name, "penstock.yaml"), fmt.Sprintf(`
state: ./state
pipelines:
  push:
    source: { http_server: { listen: %q } }
    processors: [ { set: { key: meta.id } } ]
    sink:
      sqlite: { path: %q, table: %s, columns: [key, message], mode: %s, ledger: %s }
`, address, data, table, mode, name)), "http://" + address + "/"
	}
	post := func(url string) {
		t.Helper()
		await(t, time.Minute, "the request is answered with 200", func() bool {
			r, err := http.NewRequest(http.MethodPost, url, strings.NewReader("one\ntwo\n"))
			if err != nil {
				t.Fatal(err)
			}
			r.Header.Set("Idempotency-Key", "k")
			answer, err := http.DefaultClient.Do(r)
			if err != nil {
				return false // it does not listen yet
			}
			_ = answer.Body.Close()
			return answer.StatusCode == http.StatusOK
		})
	}
	for _, c := range []struct {
		table, mode string
		other       bool // the request is repeated to another process
	}{
		{"appended", "append", false},
		{"upserted", "upsert, key: [key]", true},
	} {
		config, url := node("a-"+c.table, c.table, c.mode)
		first := startEngine(t, config)
		post(url)
		_ = first.Process.Kill()
		_ = first.Wait()
		if c.other {
			config, url = node("b-"+c.table, c.table, c.mode)
		}
		second := startEngine(t, config)
		post(url)
		_ = second.Process.Kill()
		_ = second.Wait()
		if n := number(db, "SELECT count(*) FROM "+c.table); n != 2 {
			t.Errorf("%d rows in %s, want each of 2 records once", n, c.table)
		}
	}
}
