//go:build unix

package endtoend

import (
	"fmt"
	"syscall"
	"testing"
	"time"

	"github.com/penstock-io/penstock/engine/connector/connectortest"
)

// TestKillNATSSharedPostgres runs three programs that share a consumer and write to one table. The
// record's id is the key of the table. The test kills the programs, or suspends them for longer
// than ack_wait. A suspended program then delivers messages that another program has delivered
// meanwhile. Each message must be in the table once. The number of messages that were delivered
// more than once is logged.
func TestKillNATSSharedPostgres(t *testing.T) {
	t.Parallel()
	rnd := seeded(t)
	server := connectortest.StartServer(t, "postgres", "psql")
	db := openPostgres(t, server.URL)
	connectortest.Execute(t, db, `
CREATE TABLE lines (id TEXT PRIMARY KEY, message TEXT, copies INT NOT NULL DEFAULT 1);
CREATE FUNCTION repeated() RETURNS trigger LANGUAGE plpgsql AS
	$$ BEGIN NEW.copies := OLD.copies + 1; RETURN NEW; END $$;
CREATE TRIGGER repeated BEFORE UPDATE ON lines FOR EACH ROW EXECUTE FUNCTION repeated();`)
	s := startNATS(t)
	members := s.startShared(t, fmt.Sprintf(`
    processors: [{ set: { id: meta.id } }]
    sink: { postgres: { url: %q, table: lines, mode: upsert, key: [id], workers: 2 } }`,
		server.URL))
	strikes := 0
	arrived := s.disturbShared(t, members, rnd, func(m *member) {
		if strikes++; strikes%2 == 0 {
			m.restart()
			return
		}
		if err := m.cmd.Process.Signal(syscall.SIGSTOP); err != nil {
			t.Fatal(err)
		}
		<-time.After(2 * time.Second)
		if err := m.cmd.Process.Signal(syscall.SIGCONT); err != nil {
			t.Fatal(err)
		}
	})
	checkOnce(t, arrived, connectortest.Column(t, db, `SELECT message FROM lines`))
	t.Logf("%d messages have arrived more than once",
		number(db, `SELECT count(*) FROM lines WHERE copies > 1`))
}
