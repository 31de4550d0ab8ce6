//go:build unix

package endtoend

import (
	"database/sql"
	"fmt"
	"net/url"
	"slices"
	"testing"

	"github.com/penstock-io/penstock/engine/connector/connectortest"
)

// failingDatabase is a PostgreSQL server that the tested engines (members) reach through one
// network link. Some statements that write to the table `lines` are slow. Others fail, at once or
// at the commit of their transaction.
type failingDatabase struct {
	server *connectortest.Server
	link   *connectortest.Link
	db     *sql.DB // without the link
}

// failingTable makes a table whose inserts are disturbed at random. 3 % of the statements fail as
// in a deadlock, 3 % take 200 ms, and 1 % take longer than statementTimeout. 5 % of the
// transactions with 100 rows fail at their commit.
const failingTable = `
CREATE TABLE lines (message TEXT, key TEXT);
CREATE SEQUENCE failures; -- a rollback does not reset it
CREATE FUNCTION disturb() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE x float := random();
BEGIN
	IF x < 0.07 THEN PERFORM nextval('failures'); END IF;
	IF x < 0.03 THEN RAISE EXCEPTION 'disturbed' USING ERRCODE = '40P01';
	ELSIF x < 0.06 THEN PERFORM pg_sleep(0.2);
	ELSIF x < 0.07 THEN PERFORM pg_sleep(30);
	END IF;
	RETURN NULL;
END $$;
CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
	PERFORM nextval('failures');
	RAISE EXCEPTION 'refused at commit' USING ERRCODE = '40001';
END $$;
CREATE TRIGGER disturb BEFORE INSERT ON lines FOR EACH STATEMENT EXECUTE FUNCTION disturb();
CREATE CONSTRAINT TRIGGER refuse AFTER INSERT ON lines DEFERRABLE INITIALLY DEFERRED
	FOR EACH ROW WHEN (random() < 0.0005) EXECUTE FUNCTION refuse();`

// statementTimeout is the limit of the members' statements, in milliseconds.
const statementTimeout = 1000

func startFailingDatabase(t *testing.T) *failingDatabase {
	t.Helper()
	d := &failingDatabase{server: connectortest.StartServer(t, "postgres", "psql")}
	d.link = connectortest.NewLink(t, d.server.Address())
	d.db = openPostgres(t, d.server.URL)
	d.db.SetMaxOpenConns(1) // the fault "ended sessions" must not end an idle one
	connectortest.Execute(t, d.db, failingTable)
	return d
}

// sink returns the sink of a pipeline and the options of its flow control, as text of a config. The
// maximum time of an attempt is shorter than most stalls of the network link. So a member sends a
// batch again although the first transaction of the batch may still commit.
func (d *failingDatabase) sink(t *testing.T) string {
	t.Helper()
	u, err := url.Parse(d.server.URL)
	if err != nil {
		t.Fatal(err)
	}
	u.Host = d.link.Address()
	u.RawQuery += fmt.Sprint("&statement_timeout=", statementTimeout)
	return fmt.Sprintf(`
    sink: { postgres: { url: %q, table: lines, workers: 2 } }
    flow: { timeout: 2s }
    retry: { base: 20ms, max: 500ms }`, u) + copySettings
}

// faults are the disturbances of the database.
func (d *failingDatabase) faults() []fault {
	return []fault{
		{"stalled database", 0, func(g *copies) {
			d.link.Stall()
			g.produceFor(g.moment())
			d.link.Heal()
		}},
		{"cut database", 0, func(g *copies) {
			d.link.Cut()
			g.produceFor(g.moment())
			d.link.Heal()
		}},
		{"kill of the database", 0, func(g *copies) {
			d.server.Kill(g.t)
			d.server.Start(g.t)
		}},
		{"locked table", 0, func(g *copies) {
			tx, err := d.db.BeginTx(g.t.Context(), nil)
			if err != nil {
				g.t.Fatal(err)
			}
			defer func() { _ = tx.Rollback() }()
			const lock = `LOCK TABLE lines IN ACCESS EXCLUSIVE MODE`
			if _, err := tx.ExecContext(g.t.Context(), lock); err != nil {
				g.t.Fatal(err)
			}
			g.produceFor(g.moment())
		}},
		{"ended sessions", 0, func(g *copies) {
			connectortest.Execute(g.t, d.db, `SELECT pg_terminate_backend(pid)
				FROM pg_stat_activity
				WHERE backend_type = 'client backend' AND pid <> pg_backend_pid()`)
		}},
	}
}

// check fails unless each acknowledged record is in the table once and the table was disturbed.
func (d *failingDatabase) check(g *copies) {
	g.t.Helper()
	g.exactly(connectortest.Column(g.t, d.db, `SELECT message FROM lines`))
	disturbed := number(d.db, `SELECT last_value FROM failures WHERE is_called`)
	if disturbed == 0 {
		g.t.Error("no transaction was disturbed: the test shows nothing")
	}
	g.t.Logf("%d transactions were disturbed", disturbed)
}

// chaosFailingPostgres kills and suspends engines while their database fails.
func chaosFailingPostgres(t *testing.T) {
	d := startFailingDatabase(t)
	to := d.sink(t)
	g := startCopies(t, func(string) string { return to }, 3)
	g.disturb(slices.Concat(kafkaFaults[:2], d.faults()))
	awaitLag(t, g.admin, g.tick.C)
	g.stop()
	d.check(g)
}
