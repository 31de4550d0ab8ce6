package endtoend

import (
	"database/sql"
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/penstock-io/penstock/engine/connector/connectortest"
)

// side is a database on one side of a copy.
type side struct {
	db     *sql.DB
	source string // in the options of a table source
	sink   string // in the options of a sink
}

func sqliteSide(t *testing.T, dir string) side {
	path := filepath.Join(dir, "data.db")
	return side{connectortest.OpenSQLite(t, path), "sqlite: " + path,
		fmt.Sprintf("sqlite: { path: %q, %%s }", path)}
}

func postgresSide(t *testing.T, server *connectortest.Server) side {
	return side{openPostgres(t, server.URL), fmt.Sprintf("postgres: %q", server.URL),
		fmt.Sprintf("postgres: { url: %q, %%s }", server.URL)}
}

// copyConfig creates the config of a table copy.
func copyConfig(t *testing.T, dir string, from, to side, source, sink, more string) string {
	t.Helper()
	return write(t, filepath.Join(dir, "penstock.yaml"), fmt.Sprintf(`
state: ./state
pipelines:
  copy:
    source: { table: { %s, %s } }
    sink: { %s }
    retry: { base: 20ms, max: 200ms }
    checkpoint: { replay: 2MiB, sync: 50ms }
%s`, from.source, source, fmt.Sprintf(to.sink, sink), more))
}

// texts returns each row of a query as one text.
func texts(t *testing.T, db *sql.DB, query string) (all []string) {
	t.Helper()
	rows, err := db.Query(query)
	if err != nil {
		t.Fatalf("%s: %v", query, err)
	}
	defer rows.Close()
	names, err := rows.Columns()
	if err != nil {
		t.Fatal(err)
	}
	for rows.Next() {
		values := make([]sql.NullString, len(names))
		into := make([]any, len(names))
		for i := range values {
			into[i] = &values[i]
		}
		if err := rows.Scan(into...); err != nil {
			t.Fatal(err)
		}
		var parts []string
		for _, v := range values {
			if v.Valid {
				parts = append(parts, fmt.Sprintf("%q", v.String))
			} else {
				parts = append(parts, "NULL")
			}
		}
		all = append(all, strings.Join(parts, " "))
	}
	if err := rows.Err(); err != nil {
		t.Fatal(err)
	}
	return all
}

func same(t *testing.T, what string, got, want []string) {
	t.Helper()
	for i := range max(len(got), len(want)) {
		switch {
		case i >= len(got):
			t.Fatalf("%s: %d rows, want %d; missing %s", what, len(got), len(want), want[i])
		case i >= len(want):
			t.Fatalf("%s: %d rows, want %d; too many: %s", what, len(got), len(want), got[i])
		case got[i] != want[i]:
			t.Fatalf("%s: row %d is\n%s, want\n%s", what, i, got[i], want[i])
		}
	}
}

const allTypes = `CREATE TABLE src (id bigint PRIMARY KEY, i2 smallint, i4 integer, n numeric, n2 numeric(10,2),
	f8 double precision, f4 real, b boolean, t text, v varchar(20), by bytea, u uuid, d date, ts timestamp, tz timestamptz,
	iv interval, j json, jb jsonb, a integer[], ip inet)`

var typedRows = []string{
	`(1, -5, 7, 12345678901234567890.123456789, 1.10, 1.5e300, 0.1, true, 'plain', 'x', '\xdeadbeef',
		'123e4567-e89b-12d3-a456-426614174000', '2026-02-28', '2026-03-29 02:30:00', '2026-03-29 02:30:00.123456+05', '1 day 02:03',
		'{"b":1.10,  "a":[null]}', '{"x": 1}', '{1,NULL,3}', '10.0.0.1')`,
	`(2, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, ` +
		`NULL, NULL, NULL, NULL, NULL)`,
	`(3, 0, 0, 0.000, 0, 12, 0.25, false, E'tab\t quote" back\\slash\nline', '', '', NULL, 'infinity', '-infinity',
		'0044-03-15 00:00:00+00 BC', '0', '"text"', 'null', '{}', '::1')`,
	`(4, 1, 1, 1e-20, 99999999.99, -0.5, 1e20, true, 'ümläut ☃', 'é', '\x00', NULL, '0001-01-01', 'epoch',
		'9999-12-31 23:59:59.999999+00', '-1 mon', '[1,
		2]', '[]', '{}', '1.2.3.0/24')`,
}

// TestTableTypesKept copies a PostgreSQL table with columns of many types (allTypes) to another
// PostgreSQL table, which the sink creates. All values must stay the same.
func TestTableTypesKept(t *testing.T) {
	t.Parallel()
	server := connectortest.StartServer(t, "postgres", "psql")
	pg := postgresSide(t, server)
	connectortest.Execute(t, pg.db, allTypes)
	for _, r := range typedRows {
		connectortest.Execute(t, pg.db, "INSERT INTO src VALUES "+r)
	}
	config := copyConfig(t, t.TempDir(), pg, pg, "table: src",
		"table: dst, on_new_field: ignore", "")
	if res := once(t, config).Pipelines[0]; res.Delivered != int64(len(typedRows)) {
		t.Fatalf("%+v", res)
	}
	rows := "SELECT %[1]s::text FROM %[1]s ORDER BY id"
	same(t, "rows", texts(t, pg.db, fmt.Sprintf(rows, "dst")),
		texts(t, pg.db, fmt.Sprintf(rows, "src")))
	describe := `SELECT attname, format_type(atttypid, atttypmod) FROM pg_attribute
		WHERE attrelid = '%s'::regclass AND attnum > 0 ORDER BY attnum`
	same(t, "columns", texts(t, pg.db, fmt.Sprintf(describe, "dst")),
		texts(t, pg.db, fmt.Sprintf(describe, "src")))
	if again := once(t, config).Pipelines[0]; again.ReadRecords != 0 {
		t.Errorf("%d rows were read again", again.ReadRecords)
	}
}

// TestTableTypesAcross copies a table from PostgreSQL to SQLite and back. Values that both
// databases can represent must stay the same.
func TestTableTypesAcross(t *testing.T) {
	t.Parallel()
	server := connectortest.StartServer(t, "postgres", "psql")
	pg, lite := postgresSide(t, server), sqliteSide(t, t.TempDir())
	connectortest.Execute(t, pg.db, allTypes)
	for _, r := range typedRows {
		connectortest.Execute(t, pg.db, "INSERT INTO src VALUES "+r)
	}
	once(t, copyConfig(t, t.TempDir(), pg, lite, "table: src",
		"table: mid, mode: upsert, key: [id]", ""))
	once(t, copyConfig(t, t.TempDir(), lite, lite, "table: mid",
		"table: mid2, mode: upsert, key: [id]", ""))
	once(t, copyConfig(t, t.TempDir(), lite, pg, "table: mid2", "table: dst", ""))
	columns := `SELECT id, i2, i4, n::text, n2::text, f8, f4::text, b, t, v, by, u::text, d::text, ts::text, tz::text, iv::text, j::text,
		a::text FROM %s ORDER BY id`
	connectortest.Execute(t, pg.db, "SET timezone = 'UTC'")
	same(t, "rows", texts(t, pg.db, fmt.Sprintf(columns, "dst")),
		texts(t, pg.db, fmt.Sprintf(columns, "src")))
	same(t, "bytes in SQLite", texts(t, lite.db,
		"SELECT id, typeof(by), hex(by) FROM mid2 ORDER BY id"), []string{
		`"1" "blob" "DEADBEEF"`, `"2" "null" ""`, `"3" "blob" ""`, `"4" "blob" "00"`,
	})
}
