// Package table implements the source table. It reads the rows of tables, views and queries of
// SQLite, PostgreSQL, and MySQL or MariaDB.
//
// The rows are ordered by columns that are unique together (the option order_by). The source reads
// them in pages. Each page is one query for the rows after the last one. With an index on these
// columns, it is an index scan. The position of a row is its key: an encoding of these columns. The
// byte order of keys is the order of the rows. The key is unique, so that no row at a page boundary
// is lost or read twice, even if many rows have the same time. At the end of the table, the source
// polls for new rows at growing intervals, or waits for notifications of the database.
//
// A row may become visible late. Example: transaction A inserts row 7, B inserts row 8, and B
// commits first. If the database reports open transactions, the source reads row 8 only when A has
// ended. Otherwise it waits for a fixed time, the option lag. Rows that come even later are late
// rows: the source finds them by searching the last rows again, and hands them out as a separate
// partition.
//
// The engine opens one reader per route. The source never writes to the database and never reads
// uncommitted rows. It stops at a row with NULL in a column of order_by.
//
// # Terms
//
// A partition is a table, view or query, or a stripe of a table: the rows in which the first column
// of order_by has values in a range (the option split). A fetcher reads rows over one connection. A
// check asks whether a partition has new rows at its end. An observation is the last row that was
// visible at some time. The source remembers the rows that it has read last, and recognizes a late
// row because it is not among them. A journal is a file with the remembered rows of a partition.
package table

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/penstock-io/penstock/engine/kit/readers"
	"github.com/penstock-io/penstock/retry"
	"github.com/penstock-io/penstock/stream"
)

// source is the part that the readers of all routes share. It is immutable.
type source struct {
	o        Options
	h        stream.Host
	location string                   // the database without its password, for messages
	connect  func() (database, error) // returns a database, which connects on first use
}

// New returns a source. It does not connect.
func New(o Options, h stream.Host) (stream.Source, error) {
	if err := o.Validate(); err != nil {
		return nil, err
	}
	s := &source{o: o, h: h}
	switch {
	case o.SQLite != "":
		s.location, s.connect = "sqlite "+o.SQLite,
			func() (database, error) { return newSQLite(o.SQLite) }
	case o.Postgres != "":
		s.location, s.connect = "postgres",
			func() (database, error) { return newPostgres(o.Postgres, o.Notify) }
	default:
		s.location, s.connect = "mysql", func() (database, error) { return newMySQL(o.MySQL) }
	}
	return s, nil
}

// Shared implements stream.SharedSource.
func (s *source) Shared() error {
	switch {
	case s.o.SQLite != "":
		return errors.New("a SQLite file is on one machine")
	case s.o.Rescan > 0:
		return errors.New("rescan stores the last rows in the state directory of one machine; " +
			"write rescan: 0, with a lag if transactions commit late and the database hides them")
	}
	return nil
}

// Open implements stream.Source. It waits while the database is not available.
func (s *source) Open(ctx context.Context, o stream.OpenOptions) (stream.Reader, error) {
	r := &reader{
		s: s, o: o, started: time.Now(), pace: pacing(s.o.Poll),
		count:  readers.Counter(s.h, &o, nil),
		pool:   newWorkerPool(s.o.Connections),
		tables: make(map[string]*reading), durable: make(map[string]stream.Position),
	}
	r.count("rows_found_late", 0)
	for range s.o.Connections {
		db, err := s.connect()
		if err != nil {
			return nil, errors.Join(fmt.Errorf("%s: %w", s.location, err), r.Close())
		}
		r.free = append(r.free, &fetcher{db: db})
	}
	r.waits = r.free[0].db
	for {
		err := r.list(ctx, r.waits)
		if err == nil {
			return r, nil
		}
		if ctx.Err() != nil {
			return nil, errors.Join(context.Cause(ctx), r.Close())
		}
		if err = r.reconnectAfter(r.waits, err); err == nil {
			err = retry.Sleep(ctx, r.pausedUntil-r.now())
		}
		if err != nil {
			return nil, errors.Join(err, r.Close())
		}
	}
}

// list opens the partitions (tables and stripes of tables) in the database that are not open yet.
func (r *reader) list(ctx context.Context, db database) error {
	subjects := r.s.o.subjects()
	if slices.ContainsFunc(r.s.o.Tables, isGlob) {
		names, err := db.list(ctx)
		if err != nil {
			return err
		}
		slices.Sort(names)
		for _, n := range names {
			known := slices.ContainsFunc(subjects, func(s subject) bool { return s.name == n })
			if !known && r.s.o.matches(n) {
				subjects = append(subjects, subject{name: n})
			}
		}
	}
	for _, s := range subjects {
		if t := r.tables[s.name]; t != nil {
			if r.s.o.Split > 0 {
				if err := r.openStripes(ctx, db, t); err != nil {
					return err
				}
			}
			continue
		}
		if err := r.openSubject(ctx, db, s); err != nil {
			return err
		}
	}
	return nil
}

// openSubject opens the partitions of a table, view or query at their stored positions.
func (r *reader) openSubject(ctx context.Context, db database, s subject) error {
	rel, err := db.describe(ctx, s)
	if err == nil {
		err = rel.orderBy(r.s.o.OrderBy, r.s.o.Zone)
	}
	if err != nil {
		return err
	}
	if err := r.otherSplit(s.name); err != nil {
		return err
	}
	if rel.mayReuse() {
		r.s.h.Log().Warn("the database may reuse keys of deleted rows; if the rows cannot be "+
			"distinguished, the route stops",
			"table", s.name, "column", rel.reuse.column, "reason", rel.reuse.reason, "remedy",
			rel.reuse.remedy)
	}
	t := &reading{name: s.name, relation: rel, maker: newRowMaker(rel)}
	if r.s.o.Split == 0 {
		p, err := r.openPartition(t, partitionID(s.name), s.name, nil)
		if err != nil {
			return err
		}
		r.parts = append(r.parts, p)
	} else if err := r.openStripes(ctx, db, t); err != nil {
		return err
	}
	r.tables[s.name] = t
	return nil
}
