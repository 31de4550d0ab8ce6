package table

import (
	"cmp"
	"context"
	"database/sql/driver"
	"errors"
	"fmt"
	"io"
	"log"
	"slices"
	"strconv"
	"strings"

	"github.com/go-sql-driver/mysql"

	"github.com/penstock-io/penstock/engine/kit/sqldriver"
	"github.com/penstock-io/penstock/engine/kit/sqltable"
)

// mysqlServer reads from MySQL or MariaDB. It uses the driver directly, with the text protocol.
type mysqlServer struct {
	polled
	connector driver.Connector
	database  string
	conn      sqldriver.Conn // nil if not connected
}

func newMySQL(dsn string) (database, error) {
	c, err := mysql.ParseDSN(dsn)
	if err != nil {
		return nil, errors.New("the address is not of the form tcp(host:port)/database, " +
			"with user:password and an @ before it")
	}
	c.InterpolateParams, c.ParseTime, c.Logger = true, false, log.New(io.Discard, "", 0)
	if c.Params == nil {
		c.Params = make(map[string]string)
	}
	c.Params["time_zone"] = "'+00:00'"
	c.Params["autocommit"] = "1" // otherwise the first query begins a snapshot that never changes
	for _, k := range []string{"client", "connection", "results"} {
		c.Params["character_set_"+k] = "utf8mb4"
	}
	connector, err := mysql.NewConnector(c)
	if err != nil {
		return nil, err
	}
	return &mysqlServer{connector: connector, database: c.DBName}, nil
}

func (d *mysqlServer) close() error {
	if d.conn == nil {
		return nil
	}
	_ = d.conn.Close() // read-only: nothing can be lost
	d.conn = nil
	return nil
}

// query runs a statement and calls the function row for each row, until the function returns false.
// The values are valid until the next call. If the connection has failed, or a response was not
// read completely, the next query uses a new connection.
func (d *mysqlServer) query(
	ctx context.Context, head func(driver.Rows) error, row func(v []driver.Value) (bool, error),
	sql string, args ...driver.Value,
) (err error) {
	if d.conn == nil {
		opened, err := d.connector.Connect(ctx)
		if err != nil {
			return err
		}
		if d.conn, err = sqldriver.Direct(opened); err != nil {
			return err
		}
		if _, err = sqldriver.Exec(ctx, d.conn, "SET SESSION TRANSACTION READ ONLY"); err != nil {
			return errors.Join(err, d.close())
		}
	}
	defer func() {
		if _, said := errors.AsType[*mysql.MySQLError](err); err != nil && !said {
			_ = d.close()
		}
	}()
	return sqldriver.Query(ctx, d.conn, head, row, sql, args...)
}

func (d *mysqlServer) transient(err error) bool {
	if e, ok := errors.AsType[*mysql.MySQLError](err); ok {
		// The transient errors of the server: too many connections, a shutdown, network errors,
		// lock waits, deadlocks, a killed query, or a table that was redefined meanwhile.
		return slices.Contains([]uint16{1040, 1053, 1080, 1158, 1159, 1160, 1161, 1203, 1205, 1213,
			1226, 1317, 1412, 1927}, e.Number)
	}
	return sqldriver.IsDisconnected(err) || errors.Is(err, mysql.ErrInvalidConn) ||
		errors.Is(err, mysql.ErrMalformPkt) || errors.Is(err, mysql.ErrPktSync)
}

// tick quotes a name with backticks, as in MySQL's syntax.
func tick(name string) string { return "`" + strings.ReplaceAll(name, "`", "``") + "`" }

func (d *mysqlServer) list(ctx context.Context) (names []string, err error) {
	err = d.query(ctx, nil, sequence(func(v []driver.Value) {
		names = append(names, optionName(sqldriver.Text(v[0])))
	}),
		`SELECT table_name FROM information_schema.tables WHERE table_schema = `+
			`DATABASE() ORDER BY 1`)
	return names, err
}

// described returns an error of a statement that reads r, with a remedy added.
func (d *mysqlServer) described(err error, r *relation) error {
	e, ok := errors.AsType[*mysql.MySQLError](err)
	if !ok || d.transient(err) {
		return err
	}
	return r.readError(err, e.Number == 1146, e.Number == 1054)
}

// describe implements database.
func (d *mysqlServer) describe(ctx context.Context, s subject) (*relation, error) {
	r := &relation{name: s.String(), from: "(" + s.query + "\n)"}
	if s.query == "" {
		name, err := sqltable.ParseName(s.name, true)
		if err != nil && !strings.Contains(s.name, `"`) { // several dots: the first ends the database
			name.Schema, name.Table, _ = strings.Cut(s.name, ".")
			err = nil
		}
		if err != nil {
			return nil, err
		}
		r.schema, r.plain = cmp.Or(name.Schema, d.database), name.Table
		r.from = tick(r.schema) + "." + tick(r.plain)
		if err := d.tableKind(ctx, r); err != nil {
			return nil, err
		}
	}
	var err error
	if r.columns, err = d.columns(ctx, r); err != nil || !r.table {
		return r, err
	}
	if err := d.constraints(ctx, r); err != nil {
		return nil, err
	}
	return r, d.numbering(ctx, r)
}

// numbering sets r.reuse for an AUTO_INCREMENT column if the server may generate a number twice.
// MySQL before 8.0 and MariaDB before 10.2.4 do so. After a restart they continue from the greatest
// number in the table, even if rows with greater numbers were read and deleted.
func (d *mysqlServer) numbering(ctx context.Context, r *relation) error {
	column, version := "", ""
	err := d.query(ctx, nil, sequence(func(v []driver.Value) {
		column, version = sqldriver.Text(v[0]), sqldriver.Text(v[1])
	}),
		`SELECT column_name, VERSION() FROM information_schema.columns WHERE table_schema = ? AND table_name = ?
		AND extra LIKE '%auto_increment%'`, r.schema, r.plain)
	if err == nil && column != "" && resetsAutoIncrement(version) {
		r.reuse = reuse{column, "this version of the server reuses numbers after a restart",
			"MySQL 8.0 or MariaDB 10.2.4"}
	}
	return err
}

// resetsAutoIncrement reports whether this server version keeps the next AUTO_INCREMENT only in
// memory, so that a restart loses it.
func resetsAutoIncrement(version string) bool {
	var major, minor, patch int
	if n, _ := fmt.Sscanf(version, "%d.%d.%d", &major, &minor, &patch); n < 3 {
		return false
	}
	if strings.Contains(strings.ToLower(version), "mariadb") {
		return major*10000+minor*100+patch < 100204
	}
	return major < 8
}

// lastGiven implements database. MySQL may return a cached, older number.
func (d *mysqlServer) lastGiven(ctx context.Context, r *relation) (n int64, known bool, err error) {
	if !r.table {
		return 0, false, nil
	}
	err = d.query(ctx, nil, sequence(func(v []driver.Value) {
		next, err := strconv.ParseInt(sqldriver.Text(v[0]), 10, 64)
		n, known = next-1, err == nil
	}), `SELECT auto_increment FROM information_schema.tables WHERE table_schema = ? AND `+
		`table_name = ?`, r.schema, r.plain)
	return n, known, err
}

func (d *mysqlServer) tableKind(ctx context.Context, r *relation) error {
	kind := ""
	err := d.query(ctx, nil, sequence(func(v []driver.Value) { kind = sqldriver.Text(v[0]) }),
		`SELECT table_type FROM information_schema.tables WHERE table_schema = ? AND `+
			`table_name = ?`, r.schema, r.plain)
	switch {
	case err != nil:
		return d.described(err, r)
	case kind == "":
		return r.notFound()
	case kind == "VIEW":
		r.name = strings.Replace(r.name, "the table", "the view", 1)
	}
	r.table = kind == "BASE TABLE"
	return nil
}

// columns returns the columns of r without reading a row.
func (d *mysqlServer) columns(ctx context.Context, r *relation) (columns []column, err error) {
	err = d.query(ctx, func(rows driver.Rows) error {
		columns, err = mysqlColumns(rows, len(rows.Columns()))
		return err
	}, func([]driver.Value) (bool, error) { return false, nil },
		"SELECT q.* FROM "+r.from+" AS q LIMIT 0")
	if err != nil {
		return nil, d.described(err, r)
	}
	return columns, r.distinct(columns)
}

// mysqlColumns describes the first n columns of a result.
func mysqlColumns(rows driver.Rows, n int) ([]column, error) {
	typed, ok := rows.(interface {
		driver.RowsColumnTypeDatabaseTypeName
		driver.RowsColumnTypePrecisionScale
	})
	if !ok {
		return nil, errors.New("the MySQL driver does not report column types")
	}
	columns := make([]column, n)
	for i, name := range rows.Columns()[:n] {
		columns[i] = column{name: name, decl: strings.ToLower(typed.ColumnTypeDatabaseTypeName(i)),
			nullable: true}
		precision, scale, ok := typed.ColumnTypePrecisionScale(i)
		decimal := ok && columns[i].decl == "decimal"
		if decimal {
			columns[i].decl = fmt.Sprintf("decimal(%d,%d)", precision, scale)
		}
		if describeMySQL(&columns[i]); decimal {
			// The driver's precision of an unsigned column is too small by 1. For tables,
			// constraints sets the exact type.
			columns[i].standard = fmt.Sprintf("numeric(%d,%d)", min(precision+1, maxDecimal), scale)
		}
	}
	return columns, nil
}

// mysqlStandard maps types of MySQL to those of PostgreSQL. Only TIMESTAMP has a time zone, because
// it is a point in time. TIME becomes an interval, because it may exceed 24 hours.
var mysqlStandard = map[string]string{
	"tinyint": "smallint", "smallint": "smallint", "mediumint": "integer", "int": "integer",
	"bigint": "bigint", "year": "integer",
	"unsigned tinyint": "smallint", "unsigned smallint": "integer", "unsigned mediumint": "integer",
	"unsigned int":    "bigint",
	"unsigned bigint": "numeric(20,0)", "float": "real", "double": "double precision", "date": "date",
	"time":     "interval",
	"datetime": "timestamp without time zone", "timestamp": "timestamp with time zone",
	"json": "json",
	"bit":  "bytea", "binary": "bytea", "varbinary": "bytea",
	"geometry": "bytea", "vector": "bytea",
	"blob": "bytea", "tinyblob": "bytea", "mediumblob": "bytea", "longblob": "bytea",
}

// maxDecimal is the maximum precision of a DECIMAL.
const maxDecimal = 65

// describeMySQL sets the kind of a column's values, and whether the column can be a key. Times are
// compared as texts.
func describeMySQL(c *column) {
	word, _, _ := strings.Cut(c.decl, "(")
	c.standard = mysqlStandard[word]
	switch {
	case word == "decimal":
		c.kind, c.key = numberValue, keyNumber
	case strings.HasSuffix(word, "int") || word == "year":
		c.kind, c.key = numberValue, keyInteger
		if word == "unsigned bigint" {
			c.key = keyUnsigned
		}
	case word == "float", word == "double":
		c.kind = numberValue
	case word == "json":
		c.kind = jsonValue
	case c.standard == "bytea":
		c.kind = bytesValue
		if word == "binary" || word == "varbinary" {
			c.key = keyBytes
		}
	case word == "date", word == "timestamp":
		c.key = keyBytes
	case word == "datetime":
		c.key, c.zoneless = keyBytes, true
	case c.standard == "":
		c.standard = "text"
	}
	if c.key == 0 {
		c.noKey = fmt.Sprintf("its type is %s; order_by accepts whole numbers, decimal, date, "+
			"timestamp, binary and varbinary (in a query also CAST(... AS BINARY)), because "+
			"they have a byte order", c.decl)
	}
}

// constraints reads which columns may be NULL, the types of DECIMAL columns, and which sets of
// columns are unique.
func (d *mysqlServer) constraints(ctx context.Context, r *relation) error {
	err := d.query(ctx, nil, sequence(func(v []driver.Value) {
		if i := indexOf(r.columns, sqldriver.Text(v[0])); i >= 0 {
			c := &r.columns[i]
			if c.nullable = sqldriver.Text(v[1]) != "NO"; c.key == keyNumber {
				c.standard = "numeric(" + sqldriver.Text(v[2]) + ")"
			}
		}
	}), `SELECT column_name, is_nullable, concat(numeric_precision, ',', numeric_scale)
		FROM information_schema.columns WHERE table_schema = ? AND table_name = ?`, r.schema, r.plain)
	if err != nil {
		return err
	}
	add := r.uniqueSets()
	return d.query(ctx, nil, sequence(func(v []driver.Value) {
		index := sqldriver.Text(v[0])
		add(index, sqldriver.Text(v[1]), index == "PRIMARY")
	}), `SELECT index_name, column_name FROM information_schema.statistics WHERE table_schema = ? AND table_name = ? AND non_unique = 0
		AND NOT EXISTS (SELECT 1 FROM information_schema.statistics s WHERE s.table_schema = statistics.table_schema
			AND s.table_name = statistics.table_name AND s.index_name = statistics.index_name
			AND (s.sub_part IS NOT NULL OR s.column_name IS NULL))
		ORDER BY index_name <> 'PRIMARY', index_name, seq_in_index`, r.schema, r.plain)
}
