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
	"github.com/penstock-io/penstock/stream"
	"github.com/penstock-io/penstock/vfs"
)

// busyWait bounds the wait of a statement for another program's transaction, in milliseconds.
const busyWait = 10_000

// openFile creates a missing file with mode 0600. It does not connect.
func openFile(files vfs.FS, path string) (*server, error) {
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
	return newServer(path, "&_pragma=journal_mode(WAL)&_pragma=synchronous(FULL)")
}

// newServer returns a server for an existing file. pragmas are further parameters of the
// connection.
func newServer(path, pragmas string) (*server, error) {
	full, err := filepath.Abs(path)
	if err != nil {
		return nil, err
	}
	at := (&url.URL{Path: filepath.ToSlash(full)}).EscapedPath()
	dsn := fmt.Sprintf("file:%s?mode=rw&_pragma=busy_timeout(%d)%s", at, busyWait, pragmas)
	return &server{path: full, dsn: dsn}, nil
}

// server implements sqlspan.Server for one connection, because SQLite allows one writer.
type server struct {
	path   string
	dsn    string
	closed error // error of the last closed connection
}

// Connect implements sqlspan.Server. It opens the database file.
func (s *server) Connect(context.Context) (*connection, error) {
	opened, err := new(sqlite.Driver).Open(s.dsn)
	if err != nil {
		return nil, fmt.Errorf("opening the database: %w", err)
	}
	c := &connection{inserts: make(map[int]driver.StmtExecContext)}
	c.BeginText = "BEGIN IMMEDIATE"
	if c.Conn, err = sqldriver.Direct(opened); err != nil {
		return nil, err
	}
	if c.file, err = os.Stat(s.path); err != nil {
		return nil, errors.Join(err, c.close())
	}
	return c, nil
}

// checkFile returns an error if the path no longer leads to the open file. SQLite itself would
// continue to write to the moved or deleted file.
func (s *server) checkFile(c *connection) error {
	now, err := os.Stat(s.path)
	if err == nil && os.SameFile(now, c.file) {
		return nil
	}
	return &stream.Misconfigured{Err: errors.New("the file was moved, replaced or deleted; " +
		"move it back, or restart penstock")}
}

// Alive implements sqlspan.Server. The file stays open until Close.
func (s *server) Alive(context.Context, *connection) bool { return true }

// Restore implements sqlspan.Server. It rolls back an open transaction. If this fails, or if err
// means that the connection is broken, Restore closes the connection and returns false. Package
// sqlspan then opens another one before the next use.
func (s *server) Restore(_ context.Context, c *connection, err error) bool {
	sound := !broken(err)
	if sound && c.Open() {
		undone := c.Rollback(forever())
		sound = undone == nil || noTransaction(undone)
	}
	if !sound {
		// Ignore an error of close: the connection has failed anyway, and all committed
		// data is in the file.
		_ = c.close()
	}
	return sound
}

// Close implements sqlspan.Server. It keeps the error, if any, for the Close method of the sink.
func (s *server) Close(c *connection) { s.closed = c.close() }

// connection is a driver connection with its prepared statements.
type connection struct {
	sqlspan.Direct
	file    os.FileInfo                    // identifies the open file, see checkFile
	inserts map[int]driver.StmtExecContext // by the number of rows
	args    []driver.NamedValue            // arguments of one statement, reused
}

// forever returns a context that never ends, for single statements. A canceled statement would
// leave the transaction in doubt. SQLite's busy_timeout bounds the waits of the statements.
func forever() context.Context { return context.Background() }

// hasEnded reports whether SQLite has rolled back the transaction of c by itself.
func (c *connection) hasEnded() bool {
	if _, err := c.Exec(forever(), "BEGIN"); err != nil {
		return false // a transaction is open
	}
	return c.Rollback(forever()) == nil
}

func (c *connection) close() error {
	var errs []error
	for _, s := range c.inserts {
		if closer, ok := s.(io.Closer); ok {
			errs = append(errs, closer.Close())
		}
	}
	return errors.Join(append(errs, c.Conn.Close())...)
}
