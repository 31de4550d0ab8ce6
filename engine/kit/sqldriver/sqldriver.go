// Package sqldriver calls a database/sql driver without package database/sql. That package has a
// pool of connections, takes locks for each call, and starts a goroutine for a query. With a small
// database, this costs as much as the work of the database itself.
//
// The package runs statements and reads the rows of their results. It does not retry, and is not
// specific to a database. The caller opens and closes the connections.
package sqldriver

import (
	"context"
	"database/sql/driver"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
)

// Conn is a connection of a driver that runs statements with arguments without preparing them
// first. Only one goroutine at a time may use it.
type Conn interface {
	driver.Conn
	driver.ExecerContext
	driver.QueryerContext
}

// Direct returns an open connection as a Conn. If its driver lacks a method of Conn, Direct closes
// the connection and returns an error.
func Direct(opened driver.Conn) (Conn, error) {
	c, ok := opened.(Conn)
	if !ok {
		return nil, errors.Join(fmt.Errorf("the driver's %T lacks ExecContext or QueryContext",
			opened), opened.Close())
	}
	return c, nil
}

// IsDisconnected reports whether err is an error of the network, which includes timeouts, or means
// that the connection to a server was closed. Another connection may succeed.
func IsDisconnected(err error) bool {
	_, network := errors.AsType[net.Error](err)
	return network || errors.Is(err, driver.ErrBadConn) || errors.Is(err, io.EOF) ||
		errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, net.ErrClosed)
}

func named(args []driver.Value) []driver.NamedValue {
	out := make([]driver.NamedValue, len(args))
	for i, a := range args {
		out[i] = driver.NamedValue{Ordinal: i + 1, Value: a}
	}
	return out
}

// Exec runs a statement. It returns the number of changed rows as reported by the driver.
func Exec(ctx context.Context, c Conn, sql string,
	args ...driver.Value) (affected int64, err error) {
	r, err := c.ExecContext(ctx, sql, named(args))
	if err != nil {
		return 0, err
	}
	return r.RowsAffected()
}

// Query runs a statement and calls the function row with the values of each row, until row returns
// false. The values are valid until the next call. If head is not nil, Query calls it before the
// first row, so that it can read the columns of the result. An error of head, row or the database
// ends the query and is returned.
func Query(
	ctx context.Context, c Conn, head func(driver.Rows) error,
	row func(v []driver.Value) (more bool, err error),
	sql string, args ...driver.Value,
) (err error) {
	rows, err := c.QueryContext(ctx, sql, named(args))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, rows.Close()) }()
	if head != nil {
		if err := head(rows); err != nil {
			return err
		}
	}
	v := make([]driver.Value, len(rows.Columns()))
	for {
		err := rows.Next(v)
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
		if more, err := row(v); err != nil || !more {
			return err
		}
	}
}

// Text returns a value as text. It accepts every type that drivers use. For NULL it returns "".
func Text(v driver.Value) string {
	switch x := v.(type) {
	case []byte:
		return string(x)
	case string:
		return x
	case nil:
		return ""
	}
	return fmt.Sprint(v)
}

// Scan stores the values of a row in dest, which has pointers to string, int64, bool or []byte.
// Bytes are copied.
func Scan(row []driver.Value, dest ...any) (err error) {
	for i, d := range dest {
		switch d := d.(type) {
		case *string:
			*d = Text(row[i])
		case *[]byte:
			*d = []byte(Text(row[i]))
		case *bool:
			*d = Text(row[i]) == "1" || Text(row[i]) == "true"
		case *int64:
			n, ok := row[i].(int64)
			if !ok {
				n, err = strconv.ParseInt(Text(row[i]), 10, 64)
			}
			*d = n
		default:
			err = fmt.Errorf("BUG: a row is scanned into a %T", d)
		}
		if err != nil {
			return fmt.Errorf("column %d: %w", i+1, err)
		}
	}
	return nil
}
