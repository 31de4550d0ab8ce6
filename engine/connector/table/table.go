// Package table implements the source table, which reads the rows of tables, views and queries of
// SQLite, PostgreSQL, and MySQL or MariaDB.
//
// Rows come in the order of columns that are unique together, in pages. Each page is an index scan
// that starts after the last row. A row's place (Position.Key) encodes the values of these columns,
// so that the byte order of places is the order of the rows. Rows with equal times on both sides of
// a page boundary are therefore neither lost nor repeated. At the end of the table the source
// follows it: it polls at growing intervals while no rows come, or waits for notifications.
//
// Some transactions commit their rows after later rows were visible. The source waits for such rows
// if the database reports open transactions, or for a lag. It finds the others, the late rows, by
// searching the last rows again, and hands them out as a separate partition.
//
// The engine opens one reader per route. The source never writes to the database, never reads
// uncommitted rows, and stops at a row that has NULL in a column of the order.
package table

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/penstock-io/penstock/retry"
	"github.com/penstock-io/penstock/stream"
)

// source is the shared, immutable part of the readers of all routes.
type source struct {
	o        Options
	h        stream.Host
	location string                   // the database without its password, for messages
	connect  func() (database, error) // creates a database, which connects on first use
}

// New returns a source; Open connects.
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

// Open implements stream.Source. It waits for a database that is not running yet.
func (s *source) Open(ctx context.Context, o stream.OpenOptions) (stream.Reader, error) {
	r := &reader{
		s: s, o: o, started: time.Now(), pace: pacing(s.o.Poll),
		pool:   newWorkerPool(s.o.Connections),
		tables: make(map[string]*reading), durable: make(map[string]stream.Position),
	}
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

// list opens the partitions that exist in the database and are not open yet.
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

// openSubject describes a table and opens its partitions at their stored positions.
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
