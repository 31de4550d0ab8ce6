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

func (s *Store) query(ctx context.Context, where string, args ...any) ([]*Delivery, error) {
	return query(ctx, s.read, where, args...)
}

// querier is a connection or a transaction.
type querier interface {
	QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
}

func query(
	ctx context.Context, from querier, where string, args ...any,
) (out []*Delivery, err error) {
	rows, err := from.QueryContext(ctx, "SELECT "+columns+joined+where, args...)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	for rows.Next() {
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
		d.Row.Start, d.Progress.Start, d.Due = time.UnixMilli(start), time.UnixMilli(
			start,
		), time.UnixMilli(due)
		if ended > 0 {
			d.Ended = time.UnixMilli(ended)
		}
		out = append(out, d)
	}
	return out, rows.Err()
}

// Due returns waiting deliveries of a host that are due at now, at most limit, the earliest first.
func (s *Store) Due(
	ctx context.Context, host int64, now time.Time, limit int,
) ([]*Delivery, error) {
	return s.query(
		ctx, "WHERE d.host = ? AND d.state = 0 AND d.due <= ? ORDER BY d.due LIMIT ?", host,
		now.UnixMilli(), limit,
	)
}

// Next returns the earliest due time of a host's waiting deliveries that are later than after;
// false if there is none.
func (s *Store) Next(ctx context.Context, host int64, after time.Time) (time.Time, bool, error) {
	var due sql.NullInt64
	err := s.read.QueryRowContext(ctx, "SELECT min(due) FROM deliveries WHERE host = ? AND state = 0 AND due > ?",
		host, after.UnixMilli()).
		Scan(&due)
	return time.UnixMilli(due.Int64), due.Valid, err
}

// Hosts returns the hosts that have waiting deliveries, with their earliest due times. It costs one
// search for each host of the store.
func (s *Store) Hosts(ctx context.Context) (out []Host, err error) {
	rows, err := s.read.QueryContext(ctx, `SELECT id, name, due FROM (
		SELECT id, name, (SELECT min(due) FROM deliveries WHERE host = hosts.id AND state = 0) AS due FROM hosts) WHERE due IS NOT NULL`)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	for rows.Next() {
		var h Host
		var due int64
		if err := rows.Scan(&h.ID, &h.Name, &due); err != nil {
			return nil, err
		}
		h.Due = time.UnixMilli(due)
		out = append(out, h)
	}
	return out, rows.Err()
}

// Find returns the newest delivery of a key. The error is a *NotFoundError if there is none.
func (s *Store) Find(ctx context.Context, key string) (*Delivery, error) {
	found, err := s.query(
		ctx, "WHERE d.hash = ? AND d.key = ? ORDER BY d.id DESC LIMIT 1", hashOf(key), key,
	)
	if err == nil && len(found) == 0 {
		err = &NotFoundError{key}
	}
	if err != nil {
		return nil, err
	}
	return found[0], nil
}

// MaxPage bounds the deliveries of one List.
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
				"deliveries in flight are stored as waiting; ask for state waiting",
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
	return s.query(ctx, "WHERE "+strings.Join(where, " AND ")+" ORDER BY d.id LIMIT ?", args...)
}

// History returns the lines of a delivery's history, the oldest first.
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
		var at int64
		if err := rows.Scan(&at, &e.Event, &e.Millis, &e.Status, &e.Detail, &e.Body); err != nil {
			return nil, err
		}
		e.At, e.Took = time.UnixMilli(at).UTC(), time.Duration(e.Millis)*time.Millisecond
		out = append(out, e)
	}
	return out, rows.Err()
}
