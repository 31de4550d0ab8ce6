//go:build unix

package endtoend

import (
	"fmt"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/penstock-io/penstock/engine/connector/connectortest"
)

// TestSuspendedReceiver suspends one of two receivers during the transaction in which it stores a
// batch of the sending engine. The engine must send the batch to the other receiver. That one must
// store it, although the open transaction has locked the ledger row of the batch's request. The
// suspended receiver then resumes, and must find that the batch is already stored.
func TestSuspendedReceiver(t *testing.T) {
	t.Parallel()
	p := sharedPair{server: connectortest.StartServer(t, "postgres", "psql")}
	p.db = openPostgres(t, p.server.URL)
	connectortest.Execute(t, p.db, `CREATE FUNCTION pass() RETURNS trigger LANGUAGE plpgsql AS
		$$BEGIN PERFORM pg_advisory_xact_lock_shared(1); RETURN NULL; END$$`)
	// The server computes the default when COPY begins, before it asks for rows.
	connectortest.Execute(t, p.db, `CREATE FUNCTION begins() RETURNS text LANGUAGE plpgsql
		IMMUTABLE AS $$BEGIN PERFORM pg_advisory_xact_lock_shared(2); RETURN ''; END$$`)
	t.Run("before the commit", func(t *testing.T) {
		p.resent(t, "commits", "SELECT pg_advisory_xact_lock(1)")
	})
	t.Run("before the rows", func(t *testing.T) {
		p.resent(t, "copies", "SELECT pg_advisory_xact_lock(2)")
	})
}

// resent suspends the process while its COPY waits for the lock.
func (p sharedPair) resent(t *testing.T, table, lock string) {
	connectortest.Execute(t, p.db,
		"CREATE TABLE "+table+" (message text, begun text DEFAULT begins())")
	connectortest.Execute(t, p.db, "CREATE TRIGGER pass AFTER INSERT ON "+table+
		" EXECUTE FUNCTION pass()")
	a := newSharedNode(t, p.server.URL, table, "")
	b := newSharedNode(t, p.server.URL, table, "")
	tx, err := p.db.Begin()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := tx.Exec(lock); err != nil {
		t.Fatal(err)
	}
	a.start(t)
	bin, err := program()
	if err != nil {
		t.Fatal(err)
	}
	sender := launch(t, nil, bin, "run", "--once", senderConfig(t, a, b))
	await(t, time.Minute, "the first process waits for the lock", func() bool {
		return number(p.db, `SELECT count(*) FROM pg_stat_activity
			WHERE wait_event_type = 'Lock' AND query LIKE 'COPY%`+table+`%'`) > 0
	})
	a.suspend(t)
	if err := tx.Rollback(); err != nil {
		t.Fatal(err)
	}
	b.start(t)
	begun := time.Now()
	if code := sender.exit(time.Minute); code != 0 {
		t.Errorf("the sender has ended with %d", code)
	}
	t.Logf("the batch was delivered %v after the suspension", time.Since(begun))
	hasOnce(t, p.db, table, sentLines)
	a.signal(t, syscall.SIGCONT)
	await(t, time.Minute, "the process that resumes finds its batch stored", func() bool {
		return strings.HasSuffix(a.duplicates(t), " 1\n")
	})
	hasOnce(t, p.db, table, sentLines)
	a.kill()
	b.kill()
}

const sentLines = 1000

// senderConfig returns the config of an engine that sends a file as one request to two processes.
func senderConfig(t *testing.T, a, b *sharedNode) string {
	dir := t.TempDir()
	write(t, filepath.Join(dir, "spool", "a.log"), textOf("line", sentLines))
	return write(t, filepath.Join(dir, "penstock.yaml"), fmt.Sprintf(`
state: ./state
pipelines:
  send:
    source: { spool_dir: { path: ./spool, finished: keep, quiet_period: 10ms } }
    sink: { http: { endpoints: [%q, %q], body: raw } }
    retry: { base: 20ms, max: 1s }
    flow: { timeout: 5s } # the first process is suspended before
`, a.url, b.url))
}
