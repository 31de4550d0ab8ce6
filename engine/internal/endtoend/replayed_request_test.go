//go:build unix

package endtoend

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/penstock-io/penstock/engine/connector/connectortest"
)

// TestReplayedRequest replays dead letters of requests into a ledger that several processes share.
// A letter that the ledger has must not be delivered again. This must hold even if a kill has lost
// its progress in the state directory, and if the same batch contains new letters.
func TestReplayedRequest(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	data, state := filepath.Join(dir, "data.db"), filepath.Join(dir, "state")
	db := connectortest.OpenSQLite(t, data)
	connectortest.Execute(t, db, "PRAGMA journal_mode = WAL")
	connectortest.Execute(t, db, "CREATE TABLE lines (message text)")
	node := sharedNode{}
	address := connectortest.FreeAddress(t)
	node.url = "http://" + address + "/"
	node.config = write(t, filepath.Join(dir, "penstock.yaml"), fmt.Sprintf(`
state: ./state
pipelines:
  push:
    source: { http_server: { listen: %q } }
    sink: { sqlite: { path: %q, table: lines, columns: [message] } }
`, address, data))
	refuse := func(key, body string) {
		t.Helper()
		connectortest.Execute(t, db, `CREATE TRIGGER refuse BEFORE INSERT ON lines
			WHEN NEW.message LIKE 'bad%' BEGIN SELECT RAISE(ABORT, 'refused'); END`)
		node.start(t)
		node.post(t, key, body)
		node.kill()
		connectortest.Execute(t, db, "DROP TRIGGER refuse")
	}
	replay := func(want int64) {
		t.Helper()
		_, last := deadLetters(t, "replay", "--json", node.config)
		if last.Replayed != want {
			t.Errorf("%d letters replayed, want %d", last.Replayed, want)
		}
	}
	refuse("a", "good\nbad 1\n")
	saved := filepath.Join(dir, "saved")
	if err := os.CopyFS(saved, os.DirFS(state)); err != nil {
		t.Fatal(err)
	}
	replay(1)
	hasOnce(t, db, "lines", 2)

	if err := os.RemoveAll(state); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(saved, state); err != nil {
		t.Fatal(err)
	}
	refuse("b", "bad 2\n")
	replay(1)
	hasOnce(t, db, "lines", 3)
}
