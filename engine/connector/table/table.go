// Package table reads the rows of tables, views and queries: the source table, for SQLite,
// PostgreSQL and MySQL or MariaDB.
//
// Rows come in the order of columns that are unique together, in pages, each an index scan from the
// place of the last. A row's place is the encoding of these columns' values (Position.Key), whose
// order byte by byte is the order of the rows; so rows of one time that fall on both sides of a
// page edge are neither lost nor repeated. After the end it follows: it asks ever more rarely while
// nothing comes, or is woken. Rows of transactions that commit late are waited for where the
// database tells of them, or for a lag, and else found by looking through the last rows again:
// those are a partition of their own.
//
// Its owner is the engine, which opens one reader a route. It never writes to the database, never
// reads a row that is not committed, and never goes past one that it cannot place.
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

// source is what the readers of all routes share: nothing but the options.
type source struct {
	o       Options
	h       stream.Host
	where   string                   // the database, for messages, without its password
	connect func() (database, error) // makes one connection, which opens nothing yet
}

// New returns a source that has touched nothing yet.
func New(o Options, h stream.Host) (stream.Source, error) {
	if err := o.Validate(); err != nil {
		return nil, err
	}
	s := &source{o: o, h: h}
	switch {
	case o.SQLite != "":
		s.where, s.connect = "sqlite "+o.SQLite, func() (database, error) { return newSQLite(o.SQLite) }
	case o.Postgres != "":
		s.where, s.connect = "postgres", func() (database, error) { return newPostgres(o.Postgres, o.Notify) }
	default:
		s.where, s.connect = "mysql", func() (database, error) { return newMySQL(o.MySQL) }
	}
	return s, nil
}

// Open implements stream.Source. It waits for a database that is not there yet.
func (s *source) Open(ctx context.Context, o stream.OpenOptions) (stream.Reader, error) {
	r := &reader{
		s: s, o: o, started: time.Now(), pace: pacing(s.o.Poll), crew: newCrew(s.o.Connections),
		tables: make(map[string]*reading), durable: make(map[string]stream.Position),
	}
	for range s.o.Connections {
		db, err := s.connect()
		if err != nil {
			return nil, errors.Join(fmt.Errorf("%s: %w", s.where, err), r.Close())
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
		if err = r.survive(r.waits, err); err == nil {
			err = retry.Sleep(ctx, r.hold-r.now())
		}
		if err != nil {
			return nil, errors.Join(err, r.Close())
		}
	}
}

// list opens the partitions that there are and were not known.
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

// openSubject looks at a table and finds the place from which it is read.
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
		r.s.h.Log().Warn("the database may give keys of deleted rows to new ones; if they cannot be told apart, the route stops",
			"table", s.name, "column", rel.reuse.column, "reason", rel.reuse.why, "remedy", rel.reuse.remedy)
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
