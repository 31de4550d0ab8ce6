package table

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/penstock-io/penstock/engine/kit/sqldriver"
	"github.com/penstock-io/penstock/engine/kit/sqltable"
)

// postgres reads from PostgreSQL over the lowest layer of the driver. Values come as text formatted
// by the server. Keys come in binary form, except numeric ones.
type postgres struct {
	config   *pgconn.Config
	conn     *pgconn.PgConn // nil if not connected
	notify   string
	listener *pgconn.PgConn // listens for notifications; nil if not connected
}

// session has the settings of a connection: formats that do not depend on the locale, and read-only
// transactions.
var session = map[string]string{
	"timezone": "UTC", "datestyle": "ISO, YMD", "intervalstyle": "postgres", "bytea_output": "hex",
	"extra_float_digits": "1",
	"client_encoding":    "UTF8", "default_transaction_read_only": "on", "jit": "off",
}

func newPostgres(url, notify string) (database, error) {
	c, err := pgconn.ParseConfig(url)
	if err != nil {
		return nil, fmt.Errorf("url: %w", err)
	}
	maps.Copy(c.RuntimeParams, session)
	if c.RuntimeParams["application_name"] == "" {
		c.RuntimeParams["application_name"] = "penstock table"
	}
	return &postgres{config: c, notify: notify}, nil
}

// closeTimeout bounds the time to close a connection.
const closeTimeout = 2 * time.Second

func (d *postgres) close() error {
	for _, c := range []*pgconn.PgConn{d.conn, d.listener} {
		if c != nil {
			ctx, cancel := context.WithTimeout(context.Background(), closeTimeout)
			_ = c.Close(ctx) // read-only: nothing can be lost
			cancel()
		}
	}
	d.conn, d.listener = nil, nil
	return nil
}

func (d *postgres) connected(ctx context.Context) (*pgconn.PgConn, error) {
	if d.conn != nil && !d.conn.IsClosed() {
		return d.conn, nil
	}
	c, err := pgconn.ConnectConfig(ctx, d.config)
	d.conn = c
	return c, err
}

// query runs a query and calls row for each row. The arguments and values are texts.
func (d *postgres) query(ctx context.Context,
	row func(v [][]byte), sql string, args ...[]byte) error {
	return d.run(ctx, func(rr *pgconn.ResultReader) (more bool, err error) {
		row(rr.Values())
		return true, nil
	}, sql, args, nil, nil, nil)
}

// run runs a query and calls row for each row until row returns false. The other parameters are
// those of [pgconn.PgConn.ExecParams].
func (d *postgres) run(
	ctx context.Context, row func(rr *pgconn.ResultReader) (more bool, err error),
	sql string, args [][]byte, oids []uint32, formats, results []int16,
) error {
	c, err := d.connected(ctx)
	if err != nil {
		return err
	}
	rr := c.ExecParams(ctx, sql, args, oids, formats, results)
	for more := true; rr.NextRow(); {
		if more {
			more, err = row(rr)
		}
	}
	_, closed := rr.Close()
	return errors.Join(closed, err)
}

func (d *postgres) transient(err error) bool {
	if e, ok := errors.AsType[*pgconn.PgError](err); ok {
		return len(e.Code) >= 2 &&
			slices.Contains([]string{"08", "40", "53", "55", "57", "58"}, e.Code[:2])
	}
	_, unconnected := errors.AsType[*pgconn.ConnectError](err)
	return unconnected || sqldriver.IsDisconnected(err) || pgconn.SafeToRetry(err)
}

const undefinedTable, undefinedColumn, protocolViolation = "42P01", "42703", "08P01"

// explained returns an error of a statement that reads r, with a remedy added.
func explained(err error, r *relation) error {
	e, ok := errors.AsType[*pgconn.PgError](err)
	if !ok {
		return err
	}
	return r.readError(err, e.Code == undefinedTable, e.Code == undefinedColumn)
}

// from returns the SQL after FROM for a subject.
func from(s subject) (string, error) {
	if s.query != "" {
		return "(" + s.query + "\n)", nil
	}
	name, err := sqltable.ParseName(s.name, true)
	if err != nil {
		return "", err
	}
	return name.String(), nil
}

func (d *postgres) list(ctx context.Context) (names []string, err error) {
	err = d.query(ctx, func(v [][]byte) {
		names = append(names, string(v[0])+optionName(string(v[1])))
	},
		`SELECT CASE WHEN pg_table_is_visible(oid) THEN '' ELSE relnamespace::regnamespace::text || '.' END, relname FROM pg_class
		WHERE relkind IN ('r', 'p', 'v', 'm', 'f') AND relnamespace NOT IN ('pg_catalog'::regnamespace, 'information_schema'::regnamespace)
		AND NOT relispartition`)
	return names, err
}

// describe implements database.
func (d *postgres) describe(ctx context.Context, s subject) (*relation, error) {
	r := &relation{name: s.String(), table: s.query == ""}
	var err error
	if r.from, err = from(s); err != nil {
		return nil, err
	}
	if r.columns, err = d.columns(ctx, r); err != nil || s.query != "" {
		return r, err
	}
	kind := ""
	err = d.query(ctx, func(v [][]byte) { r.version, kind = string(v[0]), string(v[1]) },
		`SELECT oid, relkind FROM pg_class WHERE oid = to_regclass($1)`, []byte(r.from))
	if err != nil {
		return nil, err
	}
	if r.table = kind == "r" || kind == "p"; !r.table {
		r.name = strings.Replace(r.name, "the table", "the view", 1)
		return r, nil
	}
	if err := d.constraints(ctx, r); err != nil {
		return nil, err
	}
	return r, d.sequences(ctx, r)
}

// constraints reads which columns may be NULL, how texts are compared, and which sets of columns
// are unique.
func (d *postgres) constraints(ctx context.Context, r *relation) error {
	err := d.query(ctx, func(v [][]byte) {
		if i := indexOf(r.columns, string(v[0])); i >= 0 {
			c := &r.columns[i]
			if c.nullable = string(v[1]) != "t"; string(v[2]) == "t" {
				c.collate = ""
			}
		}
	}, `SELECT attname, attnotnull, coalesce(nullif(CASE WHEN c.collname = 'default'
		THEN (SELECT CASE WHEN to_jsonb(d) ->> 'datlocprovider' = 'i' THEN 'ICU'
			ELSE datcollate END FROM pg_database d
		WHERE datname = current_database()) ELSE c.collname END, '')::text IN ('C', 'POSIX', 'C.UTF-8', 'C.utf8'), true)
		FROM pg_attribute LEFT JOIN pg_collation c ON c.oid = attcollation
		WHERE attrelid = $1::oid AND attnum > 0 AND NOT attisdropped`, []byte(r.version))
	if err != nil {
		return err
	}
	add := r.uniqueSets()
	return d.query(ctx, func(v [][]byte) {
		add(string(v[0]), string(v[1]), string(v[2]) == "t")
	}, `SELECT i.indexrelid, a.attname, i.indisprimary FROM pg_index i, unnest(i.indkey) WITH ORDINALITY k (attnum, n), pg_attribute a
		WHERE i.indrelid = $1::oid AND i.indisunique AND i.indisvalid AND i.indpred IS NULL AND i.indexprs IS NULL
		AND k.n <= i.indnkeyatts AND a.attrelid = i.indrelid AND a.attnum = k.attnum
		ORDER BY i.indisprimary DESC, i.indexrelid, k.n`, []byte(r.version))
}

// lastGiven implements database. It returns the last number of the sequence that belongs to the key
// column. known is false if there is none, or if the user may not read the sequence.
func (d *postgres) lastGiven(ctx context.Context, r *relation) (n int64, known bool, err error) {
	if !r.table {
		return 0, false, nil
	}
	err = d.query(ctx, func(v [][]byte) {
		last, invalid := strconv.ParseInt(string(v[0]), 10, 64) // NULL if nothing was returned yet
		n, known = last, invalid == nil
	}, `SELECT s.last_value FROM pg_sequences s, pg_depend d, pg_attribute a WHERE d.refobjid = $1::oid AND d.classid = 'pg_class'::regclass
		AND d.objid = to_regclass(format('%I.%I', s.schemaname, s.sequencename)) AND d.deptype IN ('a', 'i')
		AND a.attrelid = d.refobjid AND a.attnum = d.refobjsubid AND a.attname = $2`, []byte(r.version), []byte(r.keys.names[0]))
	return n, known, err
}

// sequences sets r.reuse for a column that is numbered by a sequence with CYCLE: such a sequence
// starts again from its first number.
func (d *postgres) sequences(ctx context.Context, r *relation) error {
	return d.query(ctx, func(v [][]byte) {
		r.reuse = reuse{string(v[0]), "its sequence has CYCLE", "ALTER SEQUENCE ... NO CYCLE"}
	}, `SELECT a.attname FROM pg_sequence s, pg_depend d, pg_attribute a WHERE d.refobjid = $1::oid AND d.objid = s.seqrelid
		AND d.classid = 'pg_class'::regclass AND d.deptype IN ('a', 'i') AND s.seqcycle
		AND a.attrelid = d.refobjid AND a.attnum = d.refobjsubid`, []byte(r.version))
}

// columns returns the columns without reading a row.
func (d *postgres) columns(ctx context.Context, r *relation) ([]column, error) {
	c, err := d.connected(ctx)
	if err != nil {
		return nil, err
	}
	st, err := c.Prepare(ctx, "", "SELECT * FROM "+r.from+" AS q", nil)
	if err != nil {
		return nil, explained(err, r)
	}
	if len(st.Fields) == 0 {
		return nil, fmt.Errorf("%s has no columns", r.name)
	}
	columns := make([]column, len(st.Fields))
	oids, modifiers := make([]string, len(columns)), make([]string, len(columns))
	for i, f := range st.Fields {
		columns[i] = column{name: f.Name, id: f.DataTypeOID, modifier: f.TypeModifier,
			nullable: true}
		oids[i], modifiers[i] = fmt.Sprint(f.DataTypeOID), fmt.Sprint(f.TypeModifier)
	}
	if err := r.distinct(columns); err != nil {
		return nil, err
	}
	i := 0
	err = d.query(ctx, func(v [][]byte) {
		columns[i].decl = string(v[0])
		describePostgres(&columns[i])
		i++
	}, `SELECT format_type(o, m) FROM unnest($1::oid[], $2::int[]) WITH ORDINALITY u (o, m, `+
		`n) ORDER BY n`,
		[]byte("{"+strings.Join(oids, ",")+"}"), []byte("{"+strings.Join(modifiers, ",")+"}"))
	return columns, err
}

// The ids of PostgreSQL's types, which are fixed in its catalog (pg_type.dat).
const (
	oidBool, oidBytea, oidInt8, oidInt2, oidInt4, oidText, oidOid = 16, 17, 20, 21, 23, 25, 26
	oidJSON, oidFloat4, oidFloat8, oidVarchar, oidDate            = 114, 700, 701, 1043, 1082
	oidTimestamp, oidTimestamptz, oidNumeric, oidUUID, oidJSONB   = 1114, 1184, 1700, 2950, 3802
	firstUserOid                                                  = 16384
)

// describePostgres sets the kind of a column's values, and whether the column can be a key.
func describePostgres(c *column) {
	c.standard = c.decl
	if c.id >= firstUserOid {
		c.standard = "text" // an enum or another user-defined type
	}
	switch c.id {
	case oidInt2, oidInt4, oidInt8, oidOid:
		c.kind, c.key = numberValue, keyInteger
	case oidNumeric:
		c.kind, c.key = numberValue, keyNumber
	case oidFloat4, oidFloat8:
		c.kind, c.key = numberValue, keyFloat
	case oidBool:
		c.kind = boolValue
	case oidJSON, oidJSONB:
		c.kind = jsonValue
	case oidText, oidVarchar:
		c.key, c.collate = keyBytes, ` COLLATE "C"`
	case oidUUID, oidBytea:
		c.key = keyBytes
	case oidTimestamptz, oidDate:
		c.key = keyInteger
	case oidTimestamp:
		c.key, c.zoneless = keyInteger, true
	}
	if c.key == 0 {
		c.noKey = fmt.Sprintf("its type is %s; order_by accepts numbers, text, bytea, uuid, "+
			"date and timestamptz", c.decl)
	}
}

// binaryKey decodes a value in the binary form of its type.
func binaryKey(id uint32, b []byte) (v keyValue, ok bool) {
	switch {
	case id == oidInt2 && len(b) == 2:
		return keyValue{kind: keyInteger, n: int64(int16(binary.BigEndian.Uint16(b)))}, true
	case id == oidOid && len(b) == 4:
		return keyValue{kind: keyInteger, n: int64(binary.BigEndian.Uint32(b))}, true
	case (id == oidInt4 || id == oidDate) && len(b) == 4:
		return keyValue{kind: keyInteger, n: int64(int32(binary.BigEndian.Uint32(b)))}, true
	case (id == oidInt8 || id == oidTimestamp || id == oidTimestamptz) && len(b) == 8:
		return keyValue{kind: keyInteger, n: int64(binary.BigEndian.Uint64(b))}, true
	case id == oidFloat8 && len(b) == 8:
		return keyValue{kind: keyFloat, f: math.Float64frombits(binary.BigEndian.Uint64(b))}, true
	case id == oidFloat4 && len(b) == 4:
		return keyValue{kind: keyFloat, f: float64(
			math.Float32frombits(binary.BigEndian.Uint32(b)))}, true
	}
	return v, false
}

// argument encodes the value of a key as an argument of a query, in the binary form of its type. A
// numeric is encoded as text, because its binary form is complex.
func argument(id uint32, v keyValue) (value []byte, format int16) {
	switch id {
	case oidInt2:
		return binary.BigEndian.AppendUint16(nil, uint16(v.n)), 1
	case oidInt4, oidDate, oidOid:
		return binary.BigEndian.AppendUint32(nil, uint32(v.n)), 1
	case oidInt8, oidTimestamp, oidTimestamptz:
		return binary.BigEndian.AppendUint64(nil, uint64(v.n)), 1
	case oidFloat8:
		return binary.BigEndian.AppendUint64(nil, math.Float64bits(v.f)), 1
	case oidFloat4:
		return binary.BigEndian.AppendUint32(nil, math.Float32bits(float32(v.f))), 1
	case oidNumeric:
		return []byte(v.s), 0
	}
	return []byte(v.s), 1
}
