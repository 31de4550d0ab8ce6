package parked

import (
	"context"
	"database/sql"
	"errors"
	"strings"
	"time"
)

const columns = `d.id, p.name, d.num, d.keyset, d.sub, d.state, d.attempt, d.forced, d.start, d.due, d.ended, d.weight,
	h.name, d.key, d.url, d.method, d.header, d.signer, d.file, d.body, d.record,
	d.waits, d.location, d.accepted, d.polls, d.found`

const joined = " FROM deliveries d JOIN partitions p ON p.id = d.part JOIN hosts h ON h.id = d.host "

// querier is a connection or a transaction.
type querier interface {
	QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
	QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row
}

func query(
	ctx context.Context, from querier, where string, args ...any,
) (out []*Delivery, err error) {
	rows, err := from.QueryContext(ctx, "SELECT "+columns+joined+where, args...)
	if err != nil {
		return nil, err
	}
	return deliveriesOf(rows, MaxPage, nil)
}

// deliveriesOf reads deliveries from the rows of a query, and closes the rows. It returns at most
// limit deliveries, and only those for which wanted returns true. A nil wanted selects all.
func deliveriesOf(
	rows *sql.Rows, limit int, wanted func(*Delivery) bool,
) (out []*Delivery, err error) {
	defer rows.Close()
	for len(out) < limit && rows.Next() {
		d := new(Delivery)
		var start, due, ended, accepted int64
		var waits string
		o := &d.Operation
		err := rows.Scan(
			&d.ID, &d.Partition, &d.Position.Num, &d.Position.Key, &d.Sub, &d.State, &d.Attempt,
			&d.Forced, &start, &due, &ended, &d.Weight, &d.Host, &d.Key, &d.URL, &d.Method,
			&d.Header, &d.Signer, &d.File, &d.Body, &d.Record, &waits, &o.Location, &accepted,
			&o.Polls, &o.Found,
		)
		if err == nil {
			d.Waits, err = readWaits(waits)
		}
		if err != nil {
			return nil, err
		}
		if d.Polled() {
			o.Host, o.Accepted = d.Host, time.UnixMilli(accepted)
		}
		d.Row.Start, d.Due = time.UnixMilli(start), time.UnixMilli(due)
		d.Progress.Start = d.Row.Start
		if ended > 0 {
			d.Ended = time.UnixMilli(ended)
		}
		if wanted == nil || wanted(d) {
			out = append(out, d)
		}
	}
	return out, rows.Err()
}

// readStatements are the prepared queries that run for each delivery.
type readStatements struct{ due, next, retried *sql.Stmt }

// dueQuery has no LIMIT, because SQLite recompiles a statement whenever a parameter of LIMIT is
// bound. Instead, the caller stops reading when it has enough rows. SQLite reads the rows in the
// order of an index, so the rows that are not read cost nothing.
const dueQuery = "SELECT " + columns + joined +
	"WHERE d.host = ? AND d.state = 0 AND d.due <= ? ORDER BY d.due"

func (r *readStatements) all() statementList {
	return statementList{
		{&r.due, dueQuery}, {&r.retried, retriedQuery},
		{&r.next, "SELECT min(due) FROM deliveries WHERE host = ? AND state = 0 AND due > ?"},
	}
}

// Due returns at most limit waiting deliveries of a host that are due at now, the earliest first.
func (s *Store) Due(
	ctx context.Context, host int64, now time.Time, limit int,
) ([]*Delivery, error) {
	rows, err := s.reads.due.QueryContext(ctx, host, now.UnixMilli())
	if err != nil {
		return nil, err
	}
	return deliveriesOf(rows, limit, nil)
}

// Next returns the earliest due time after the given time among the waiting deliveries of a host.
// It returns false if there is none.
func (s *Store) Next(ctx context.Context, host int64, after time.Time) (time.Time, bool, error) {
	var due sql.NullInt64
	err := s.reads.next.QueryRowContext(ctx, host, after.UnixMilli()).Scan(&due)
	return time.UnixMilli(due.Int64), due.Valid, err
}

// HostPage is a page of the hosts of a store.
type HostPage struct {
	Hosts []Host // hosts with waiting deliveries, and their earliest due times
	After int64  // argument for the next page; zero at the end of the store
}

// Hosts examines the next n hosts of the store, and returns those with waiting deliveries. The
// argument after is zero for the first page, and HostPage.After of the preceding page for a later
// one. Hosts makes one index search for each of the n hosts.
func (s *Store) Hosts(ctx context.Context, after int64, n int) (out HostPage, err error) {
	rows, err := s.read.QueryContext(ctx, `SELECT id, name,
		(SELECT min(due) FROM deliveries WHERE host = hosts.id AND state = 0)
		FROM hosts WHERE id > ? ORDER BY id LIMIT ?`, after, n)
	if err != nil {
		return out, err
	}
	defer rows.Close()
	seen := 0
	for ; rows.Next(); seen++ {
		var h Host
		var due sql.NullInt64
		if err := rows.Scan(&h.ID, &h.Name, &due); err != nil {
			return out, err
		}
		out.After = h.ID
		if due.Valid {
			h.Due = time.UnixMilli(due.Int64)
			out.Hosts = append(out.Hosts, h)
		}
	}
	if seen < n {
		out.After = 0
	}
	return out, rows.Err()
}

// Host returns the host with the given name, and the earliest due time of its waiting deliveries.
// It returns false if the host has no waiting delivery.
func (s *Store) Host(ctx context.Context, name string) (h Host, ok bool, err error) {
	var due sql.NullInt64
	err = s.read.QueryRowContext(ctx, `SELECT id,
		(SELECT min(due) FROM deliveries WHERE host = hosts.id AND state = 0)
		FROM hosts WHERE name = ?`, name).Scan(&h.ID, &due)
	if errors.Is(err, sql.ErrNoRows) {
		return h, false, nil
	}
	h.Name, h.Due = name, time.UnixMilli(due.Int64)
	return h, due.Valid, err
}

// Find returns the newest delivery with the given key for which wanted returns true. A nil wanted
// selects all. If there is no such delivery, the error is a *NotFoundError.
func (s *Store) Find(
	ctx context.Context, key string, wanted func(*Delivery) bool,
) (*Delivery, error) {
	rows, err := s.read.QueryContext(
		ctx, "SELECT "+columns+joined+"WHERE d.hash = ? AND d.key = ? ORDER BY d.id DESC",
		hashOf(key), key,
	)
	if err != nil {
		return nil, err
	}
	found, err := deliveriesOf(rows, 1, wanted)
	if err == nil && len(found) == 0 {
		err = &NotFoundError{key}
	}
	if err != nil {
		return nil, err
	}
	return found[0], nil
}

// MaxPage bounds the number of deliveries that one List returns.
const MaxPage = 1000

// Filter selects deliveries. The zero value selects all.
type Filter struct {
	Host  string // host:port; a host alone means any port; "" any
	State string // a name of a State; "" any
	After int64  // id of the last delivery of the page before
	Limit int    // zero means 100, at most MaxPage
}

// List returns deliveries by ascending id.
func (s *Store) List(ctx context.Context, f Filter) ([]*Delivery, error) {
	where, args := []string{"d.id > ?"}, []any{f.After}
	if f.State != "" {
		state, err := ParseState(f.State)
		if err != nil {
			return nil, err
		}
		if state == InFlight {
			return nil, errors.New(
				"deliveries in flight are stored as waiting; use the state waiting",
			)
		}
		where, args = append(where, "d.state = ?"), append(args, state)
	}
	if f.Host != "" {
		where = append(
			where, "d.host IN (SELECT id FROM hosts WHERE name = ? OR substr(name, 1, ?) = ?)",
		)
		args = append(args, f.Host, len(f.Host)+1, f.Host+":")
	}
	if f.Limit <= 0 {
		f.Limit = 100
	}
	args = append(args, min(f.Limit, MaxPage))
	return query(ctx, s.read, "WHERE "+strings.Join(where, " AND ")+" ORDER BY d.id LIMIT ?", args...)
}

// History returns the entries of a delivery's history, the oldest first.
func (s *Store) History(ctx context.Context, id int64) (out []Entry, err error) {
	rows, err := s.read.QueryContext(
		ctx,
		"SELECT at, event, took, status, detail, body FROM history WHERE delivery = ? ORDER BY n",
		id,
	)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	for rows.Next() {
		var e Entry
		var at, took int64
		if err := rows.Scan(&at, &e.Event, &took, &e.Status, &e.Detail, &e.Body); err != nil {
			return nil, err
		}
		e.At, e.Took = time.UnixMilli(at).UTC(), time.Duration(took)*time.Millisecond
		out = append(out, e)
	}
	return out, rows.Err()
}
