//go:build linux

package faults

import (
	"context"
	"database/sql"
	"fmt"
	"strings"
	"sync/atomic"
	"time"

	_ "github.com/jackc/pgx/v5/stdlib"

	"github.com/penstock-io/penstock/engine/connector/connectortest"
)

// postgres is the server that the cases share, or nil if this machine has no server. Each case has
// its own database.
var postgres *connectortest.Server

var databases atomic.Int64

// badWires are faults of a connection to PostgreSQL after a number of bytes. For comparison: in the
// handshake, the client sends about 400 bytes and the server about 500. For a batch, the client
// sends about 8 KB.
var badWires = []struct {
	wireFault
	effect effect
}{
	{wireFault{name: "refuses", refuse: true, end: closeConn}, blocks},
	{wireFault{name: "resets at once", refuse: true, end: resetConn}, blocks},
	{wireFault{name: "accepts and hangs", refuse: true, end: hang}, blocks},
	{wireFault{name: "speaks HTTP", refuse: true, garbage: "HTTP/1.1 400 Bad Request\r\n\r\n",
		end: closeConn}, blocks},
	{wireFault{name: "closes in the handshake", after: 30, end: closeConn}, blocks},
	{wireFault{name: "closes in the greeting", answers: true, after: 100, end: closeConn}, blocks},
	{wireFault{name: "closes after the handshake", answers: true, after: 450, end: closeConn},
		blocks},
	{wireFault{name: "resets in a request", after: 6000, end: resetConn}, decides},
	{wireFault{name: "closes in a request", after: 9000, end: closeConn}, decides},
	{wireFault{name: "stops in a request", after: 9000, end: hang}, decides},
	{wireFault{name: "closes in an answer", answers: true, after: 1500, end: closeConn}, decides},
	{wireFault{name: "resets in an answer", answers: true, after: 2100, end: resetConn}, decides},
	{wireFault{name: "stops in an answer", answers: true, after: 1800, end: hang}, decides},
	{wireFault{name: "garbage in an answer", answers: true, after: 1900,
		garbage: strings.Repeat("\xff", 64),
		end:     closeConn}, decides},
	{wireFault{name: "a zero length in an answer", answers: true, after: 1900,
		garbage: "T\x00\x00\x00\x00",
		end:     closeConn}, decides},
	{wireFault{name: "half-closes the requests", after: 12_000, halfOnly: true}, decides},
	{wireFault{name: "trickles the requests", after: 2000, drip: time.Millisecond}, passes},
	{wireFault{name: "trickles the answers", answers: true, after: 500, drip: 5 * time.Millisecond},
		passes},
}

// badServers are SQL statements like those of an administrator or a failover. They run while rows
// are written. %s stands for the case's database.
var badServers = []struct {
	name   string
	every  time.Duration // 0 means once, after the first rows were written
	breaks string
	mend   string
	effect effect
}{
	{"all sessions terminated", 20 * time.Millisecond,
		`SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = '%s' AND pid <> ` +
			`pg_backend_pid()`, "",
		decides},
	{"all statements canceled", 5 * time.Millisecond,
		`SELECT pg_cancel_backend(pid) FROM pg_stat_activity WHERE datname = '%s' AND pid <> ` +
			`pg_backend_pid()`, "",
		decides},
	{"read-only database", 0, `ALTER DATABASE %s SET default_transaction_read_only = on`,
		`ALTER DATABASE %s RESET default_transaction_read_only`, decides},
	{"one connection only", 0, `ALTER DATABASE %s CONNECTION LIMIT 1`,
		`ALTER DATABASE %s CONNECTION LIMIT 100`,
		decides},
	{"statement timeout of 1 ms", 0, `ALTER DATABASE %s SET statement_timeout = '1ms'`,
		`ALTER DATABASE %s RESET statement_timeout`, decides},
}

func postgresCases() (table []faultCase) {
	for i, wire := range badWires {
		for j, when := range []schedule{firstThree, everyThird, always} {
			mode := []string{"append", "upsert"}[(i+j)%2]
			from := sources[(i+j)%len(sources)]
			table = append(table, wireCase(wire.wireFault, wire.effect, when, mode, from))
		}
	}
	for _, s := range badServers {
		table = append(table, serverCase(s.name, s.breaks, s.mend, s.every, s.effect))
	}
	for i, wire := range badWires {
		table = append(table, tableCase(wire.wireFault, wire.effect,
			[]schedule{firstOne, everyThird}[i%2]))
	}
	return append(table, rowCases()...)
}

// database makes an empty database and returns its name and a connection to it.
func (r *rig) database() (name string, db *sql.DB) {
	if postgres == nil {
		r.fatalf("PENSTOCK_RECIPES starts no PostgreSQL")
	}
	name = fmt.Sprintf("case%d", databases.Add(1))
	r.execute(postgres.URL, "CREATE DATABASE "+name)
	db, err := sql.Open("pgx", strings.Replace(postgres.URL, "/postgres?",
		"/"+name+"?statement_timeout=0&", 1))
	r.check(err)
	// Keep no idle connections, because some cases terminate every session of their database.
	db.SetMaxIdleConns(-1)
	r.cleanup(func() { db.Close() })
	return name, db
}

func (r *rig) execute(url, statement string) {
	db, err := sql.Open("pgx", url)
	r.check(err)
	defer db.Close()
	if _, err := db.Exec(statement); err != nil {
		r.fatalf("%s: %v", statement, err)
	}
}

// through returns the URL of the shared server's database behind another address.
func through(address, name string) string {
	return "postgres://postgres@" + address + "/" + name + "?sslmode=disable&connect_timeout=2"
}

func serverAddress() string {
	_, rest, _ := strings.Cut(postgres.URL, "@")
	address, _, _ := strings.Cut(rest, "/")
	return address
}

// storedInTable counts the records in a PostgreSQL table. A record is in the column message or, if
// the source is a table, in the column line.
func storedInTable(db **sql.DB, column string) func(r *rig) tally {
	return func(r *rig) (got tally) {
		if err := rows(*db, "SELECT "+column+" FROM lines", &got); err != nil && !strings.Contains(err.Error(),
			"does not exist") {
			r.check(err)
		}
		return got
	}
}

func columnOf(from source) string {
	if from.name == "table" {
		return "line"
	}
	return "message"
}

func wireCase(wire wireFault, e effect, when schedule, mode string, from source) faultCase {
	var (
		db *sql.DB
		p  *proxy
	)
	column, sink := columnOf(from), `postgres: { url: "{postgres}", table: lines, workers: 2`
	if mode == "upsert" {
		sink += `, mode: upsert, key: [` + column + `], columns: { ` + column + `: text }`
	}
	d := delivery{
		source: from, sink: sink + ` }`, exactlyOnce: true, count: 1000,
		batch: "{ records: 50, linger: 20ms }",
	}
	d.stored = func(r *rig) tally { return storedInTable(&db, column)(r) }
	d.prepare = func(r *rig) {
		var name string
		name, db = r.database()
		p = r.proxyTo(serverAddress(), wire, when)
		r.write("penstock.yaml", strings.ReplaceAll(r.read("penstock.yaml"), "{postgres}",
			through(p.address(), name)))
	}
	d.heal = func(*rig) { p.heal() }
	if e == decides && when.name == "first three" && wire.end != hang {
		// Only the first three connections break. The sink then makes new ones, so the run must
		// deliver everything. Connections that hang are an exception: the server may still hold
		// their locks.
		e = blocks
	}
	c := d.as(fmt.Sprintf("postgres/%s/%s/%s/%s", wire.name, when.name, mode, from.name), e, when)
	c.slow = c.slow || wire.end == hang
	return c
}

func serverCase(name, breaks, mend string, every time.Duration, e effect) faultCase {
	var (
		db       *sql.DB
		database string
	)
	d := delivery{
		sink: `postgres: { url: "{postgres}", table: lines, workers: 2 }`, exactlyOnce: true,
		count: 20_000,
		batch: "{ records: 50, linger: 20ms }",
	}
	d.stored = func(r *rig) tally { return storedInTable(&db, "message")(r) }
	d.prepare = func(r *rig) {
		database, db = r.database()
		r.write("penstock.yaml", strings.ReplaceAll(r.read("penstock.yaml"), "{postgres}",
			through(serverAddress(),
				database)))
	}
	disturb := func(r *rig, statement string) {
		if strings.Contains(statement, "%s") {
			statement = fmt.Sprintf(statement, database)
		}
		r.execute(postgres.URL, statement)
	}
	d.during = func(r *rig, p *process) {
		until(hangLimit, func() bool {
			var n int
			err := db.QueryRowContext(context.Background(), "SELECT count(*) FROM lines").Scan(&n)
			return err == nil && n > 0 || !p.running()
		})
		if every > 0 {
			stop := time.Now().Add(2 * time.Second)
			whileRunning(p, every, func() {
				if time.Now().Before(stop) {
					disturb(r, breaks)
				}
			})
			return
		}
		disturb(r, breaks)
		disturb(r, badServers[0].breaks)
	}
	d.heal = func(r *rig) {
		if mend != "" {
			disturb(r, mend)
		}
	}
	return d.as("postgres-server/"+name, e, always)
}

// tableCase reads a PostgreSQL table through a broken connection.
func tableCase(wire wireFault, e effect, when schedule) faultCase {
	var p *proxy
	d := delivery{
		source: source{"postgres", `table: { postgres: "{postgres}", table: lines, poll: 50ms }`,
			func(*rig,
				[]string) {
			}},
		sink: `file: { path: ./out.log, format: raw }`, stored: storedIn("out.log"),
		exactlyOnce: true, stall: "20s",
	}
	d.prepare = func(r *rig) {
		name, db := r.database()
		_, err := db.Exec("CREATE TABLE lines (id bigserial PRIMARY KEY, line text)")
		r.check(err)
		_, err = db.Exec("INSERT INTO lines (line) SELECT unnest($1::text[])", records(0, 2000, 20))
		r.check(err)
		p = r.proxyTo(serverAddress(), wire, when)
		r.write("penstock.yaml", strings.ReplaceAll(r.read("penstock.yaml"), "{postgres}",
			through(p.address(), name)))
	}
	d.heal = func(*rig) { p.heal() }
	if when.name == "first one" {
		e = blocks // the later connections work
	}
	c := d.as(fmt.Sprintf("postgres-source/%s/%s", wire.name, when.name), e, when)
	c.slow = c.slow || wire.end == hang
	return c
}

// rowCases are tables that refuse rows.
func rowCases() (table []faultCase) {
	for _, x := range []struct {
		name, ddl string
		dead      int
		effect    effect
	}{
		{"a constraint refuses one row in ten",
			`CREATE TABLE lines (message text CHECK (message NOT LIKE 'r____7_:%'))`, 100, passes},
		{"a constraint refuses every row", `CREATE TABLE lines (message text CHECK (message = ''))`,
			50, rejects},
		{"a trigger refuses every row",
			`CREATE FUNCTION no() RETURNS trigger LANGUAGE plpgsql AS $$BEGIN RAISE 'no'; END$$;
			CREATE TABLE lines (message text); CREATE TRIGGER t BEFORE INSERT ON lines FOR EACH ROW EXECUTE FUNCTION no()`, 50, rejects},
		{"a column is too narrow", `CREATE TABLE lines (message varchar(10))`, 50, rejects},
		{"an unwritable view", `CREATE VIEW lines AS SELECT 'a'::text AS message WHERE ` +
			`false LIMIT 1`, 0, blocks},
	} {
		var db *sql.DB
		d := delivery{
			sink: `postgres: { url: "{postgres}", table: lines, workers: 2, columns: ` +
				`[message] }`,
			exactlyOnce:  true,
			count:        1000,
			keepsFailing: true, dead: x.dead,
		}
		d.stored = func(r *rig) tally { return storedInTable(&db, "message")(r) }
		d.prepare = func(r *rig) {
			var name string
			name, db = r.database()
			_, err := db.Exec(x.ddl)
			r.check(err)
			r.write("penstock.yaml", strings.ReplaceAll(r.read("penstock.yaml"), "{postgres}",
				through(serverAddress(),
					name)))
		}
		table = append(table, d.as("postgres-rows/"+x.name, x.effect, always))
	}
	return table
}
