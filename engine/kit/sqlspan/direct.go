package sqlspan

import (
	"context"
	"database/sql/driver"

	"github.com/penstock-io/penstock/engine/kit/sqldriver"
)

// Direct implements [Session] with one connection of a database/sql driver. It sends each statement
// by itself, so each takes at least one round trip to the server.
type Direct struct {
	Conn      sqldriver.Conn
	BeginText string // statement that begins a transaction

	open bool // a transaction is open
}

// Open reports whether a transaction is open.
func (d *Direct) Open() bool { return d.open }

// Exec runs a statement and returns the number of rows that it changed.
func (d *Direct) Exec(ctx context.Context, sql string,
	args ...driver.Value) (affected int64, err error) {
	return sqldriver.Exec(ctx, d.Conn, sql, args...)
}

// Begin implements Session.
func (d *Direct) Begin(ctx context.Context, statements ...*Statement) error {
	_, err := d.Exec(ctx, d.BeginText)
	if d.open = true; err != nil {
		return err
	}
	return d.Run(ctx, statements...)
}

// Commit implements Session.
func (d *Direct) Commit(ctx context.Context) error {
	_, err := d.Exec(ctx, "COMMIT")
	d.open = err != nil
	return err
}

// Rollback rolls back the transaction.
func (d *Direct) Rollback(ctx context.Context) error {
	_, err := d.Exec(ctx, "ROLLBACK")
	d.open = d.open && err != nil
	return err
}

// Run implements Session.
func (d *Direct) Run(ctx context.Context, statements ...*Statement) (err error) {
	for _, s := range statements {
		args := make([]driver.Value, len(s.Args))
		for i, a := range s.Args {
			args[i] = a
		}
		if s.Dest == nil {
			s.Affected, err = d.Exec(ctx, s.SQL, args...)
		} else {
			err = sqldriver.Query(ctx, d.Conn, nil, func(v []driver.Value) (more bool, err error) {
				err = sqldriver.Scan(v, s.Dest...)
				if err == nil && s.Row != nil {
					s.Row()
				}
				return true, err
			}, s.SQL, args...)
		}
		if err != nil {
			return err
		}
	}
	return nil
}
