package sqlite

import (
	"context"
	"database/sql/driver"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
	"path/filepath"

	"modernc.org/sqlite"

	"github.com/penstock-io/penstock/engine/kit/sqldriver"
	"github.com/penstock-io/penstock/engine/kit/sqlspan"
	"github.com/penstock-io/penstock/vfs"
)

// file is the database's file with the one connection to it. Who has its token may use the connection.
type file struct {
	dsn   string
	token chan *connection // holds the connection, nil where it has to be opened anew; closed: no more
}

// busyWait is how long a statement waits for another program's transaction, in milliseconds.
const busyWait = 10_000

// openFile makes the file where it is missing, only for its owner, and opens nothing yet.
func openFile(files vfs.FS, path string) (*file, error) {
	folder, name := filepath.Split(filepath.Clean(path))
	dir, err := files.MakeDir(filepath.Clean(folder), 0o700)
	if err != nil {
		return nil, err
	}
	f, err := dir.OpenFile(name, os.O_RDWR|os.O_CREATE, 0o600)
	if err == nil {
		err = errors.Join(f.Close(), dir.Sync())
	}
	if err = errors.Join(err, dir.Close()); err != nil {
		return nil, err
	}
	full, err := filepath.Abs(path)
	if err != nil {
		return nil, err
	}
	at := (&url.URL{Path: filepath.ToSlash(full)}).EscapedPath()
	d := &file{
		dsn: fmt.Sprintf("file:%s?_pragma=busy_timeout(%d)&_pragma=journal_mode(WAL)&_pragma=synchronous(FULL)", at, busyWait),
		// one connection for one writer: SQLite has no more to give
		token: make(chan *connection, 1),
	}
	d.token <- nil
	return d, nil
}

// use calls f with the connection to itself. A connection whose file can no longer be trusted is replaced before the next use.
func (d *file) use(ctx context.Context, f func(c *connection) error) (err error) {
	var c *connection
	select {
	case got, open := <-d.token:
		if !open {
			return sqlspan.ErrStopped
		}
		c = got
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	defer func() { d.token <- c }()
	if c == nil {
		if c, err = connect(d.dsn); err != nil {
			return err
		}
	}
	err = f(c)
	if broken(err) {
		_ = c.close() // it has failed, and so may this; what was committed is in the file
		c = nil
	}
	return err
}

// close waits for who uses the connection and frees it.
func (d *file) close() error {
	c, open := <-d.token
	if !open {
		return nil
	}
	close(d.token)
	if c == nil {
		return nil
	}
	return c.close()
}

// connection is a driver's connection with what was prepared over it.
type connection struct {
	conn    sqldriver.Conn
	inserts map[insertForm]driver.StmtExecContext
	args    []driver.NamedValue // of one statement, used again
}

func connect(dsn string) (*connection, error) {
	opened, err := new(sqlite.Driver).Open(dsn)
	if err != nil {
		return nil, fmt.Errorf("opening the database: %w", err)
	}
	conn, err := sqldriver.Direct(opened)
	if err != nil {
		return nil, err
	}
	return &connection{conn: conn, inserts: make(map[insertForm]driver.StmtExecContext)}, nil
}

// forever is the context of single statements: they are short, and one that was broken off would leave a transaction in doubt.
// SQLite's own busy_timeout bounds their waits.
func forever() context.Context { return context.Background() }

func (c *connection) exec(sql string, args ...driver.Value) (affected int64, err error) {
	return sqldriver.Exec(forever(), c.conn, sql, args...)
}

// query calls row with each row; its values are valid until the next one.
func (c *connection) query(row func(v []driver.Value) error, sql string, args ...driver.Value) error {
	return sqldriver.Each(forever(), c.conn, row, sql, args...)
}

// transaction runs f in a transaction that takes the write lock at once.
func (c *connection) transaction(f func() error) error {
	if _, err := c.exec("BEGIN IMMEDIATE"); err != nil {
		return err
	}
	err := f()
	if err == nil {
		if _, err = c.exec("COMMIT"); err == nil {
			return nil
		}
	}
	if _, undone := c.exec("ROLLBACK"); undone != nil && !noTransaction(undone) {
		return &brokenError{errors.Join(err, undone)}
	}
	return err
}

func (c *connection) close() error {
	var errs []error
	for _, s := range c.inserts {
		if closer, ok := s.(io.Closer); ok {
			errs = append(errs, closer.Close())
		}
	}
	return errors.Join(append(errs, c.conn.Close())...)
}
