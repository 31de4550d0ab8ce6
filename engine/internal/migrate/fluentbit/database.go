package fluentbit

import (
	"database/sql"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"

	_ "modernc.org/sqlite" // the driver

	"github.com/penstock-io/penstock/engine/internal/migrate"
	"github.com/penstock-io/penstock/vfs"
)

// database is the path of the SQLite file (option DB) in which an input stores its read positions.
type database struct{ path string }

// carry converts the positions of an input's files.
func (d database) carry(files vfs.FS, dir string) (migrate.Carried, error) {
	c := &migrate.Carrier{Files: files, Base: dir, Program: "Fluent Bit"}
	name := c.Path(d.path)
	list, err := read(name)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		c.Note("DB", migrate.Differs, "%s does not exist: the option start applies to every "+
			"file. To resume at Fluent Bit's positions, import on its machine after it has stopped",
			name)
		return c.Carried, nil
	case err != nil:
		return c.Carried, fmt.Errorf("DB %s: %w", name, err)
	}
	for _, at := range list {
		if err := c.Resume(at); err != nil {
			return c.Carried, err
		}
	}
	c.Note("DB", migrate.Differs, "%d of %d files resume at their positions in %s; data that "+
		"Fluent Bit had read but not delivered is lost unless its storage was drained",
		len(c.Marks), len(list), name)
	return c.Carried, nil
}

// read returns the newest position of each file. It reads a copy of the database, because opening a
// database with a write-ahead log changes it.
func read(name string) (list []migrate.StoredPosition, err error) {
	temp, err := os.MkdirTemp("", "penstock-import-")
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(temp)) }()
	copied := filepath.Join(temp, "db")
	if err := copyFile(name, copied); err != nil {
		return nil, err
	}
	if err := copyFile(name+"-wal", copied+"-wal"); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	db, err := sql.Open("sqlite", "file:"+(&url.URL{Path: copied}).EscapedPath())
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	rows, err := db.Query(`SELECT name, offset, inode FROM in_tail_files f WHERE NOT EXISTS
		(SELECT 1 FROM in_tail_files n WHERE n.inode = f.inode AND n.id > f.id) ORDER BY id`)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, rows.Close()) }()
	for rows.Next() {
		var at migrate.StoredPosition
		var inode int64
		if err := rows.Scan(&at.File, &at.Offset, &inode); err != nil {
			return nil, err
		}
		if at.Inode = uint64(inode); at.Inode != 0 {
			list = append(list, at)
		}
	}
	return list, rows.Err()
}

func copyFile(from, to string) (err error) {
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer in.Close()
	out, err := os.Create(to)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, out.Close()) }()
	n, err := io.Copy(out, io.LimitReader(in, migrate.MaxStored+1))
	if err == nil && n > migrate.MaxStored {
		err = fmt.Errorf("is larger than %d bytes", migrate.MaxStored)
	}
	return err
}
