package parked

import (
	"context"
	"database/sql"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/fnv"
	"slices"
	"time"
)

// Added is the result of [Store.Add].
type Added struct {
	Hosts    []Host // hosts that received new rows, with the due time of these rows
	Repeated int    // rows that were already parked
}

// Host is a receiver's host with a due time: the earliest of its waiting deliveries or, in the
// results of [Store.Add] and [Store.Record], that of a delivery that was added or moved.
type Host struct {
	ID   int64
	Name string
	Due  time.Time
}

// Add parks rows, which means that it stores them as deliveries. It returns when they are durable.
// Rows that are already parked stay unchanged. After an error, none of the rows is parked. The
// error is [ErrFull] if the rows, including those that are already parked, would exceed the size
// limit.
func (s *Store) Add(ctx context.Context, rows []Row) (out Added, err error) {
	var bytes int64
	for i := range rows {
		bytes += rows[i].Bytes()
	}
	err = s.run(ctx, func(t *transaction) error {
		if s.LastTotals().Bytes+t.delta.Bytes+bytes > s.o.MaxBytes {
			return &refusal{ErrFull}
		}
		for i := range rows {
			if err := t.insert(&rows[i], &out); err != nil {
				return err
			}
		}
		return nil
	})
	return out, err
}

func (t *transaction) insert(r *Row, out *Added) error {
	part, err := t.idOf(t.s.parts, t.stmt.findPart, t.stmt.addPart, r.Partition)
	if err != nil {
		return err
	}
	host, err := t.idOf(t.s.hosts, t.stmt.findHost, t.stmt.addHost, r.Host)
	if err != nil {
		return err
	}
	body, record := r.Body, any(nil)
	if body == nil {
		body = []byte{}
	}
	if r.Record != nil {
		record = r.Record
	}
	start := r.Start.UnixMilli()
	result, err := t.stmt.insert.ExecContext(
		t.ctx, part, r.Position.Num, r.Position.Key, r.Sub, start, start, host, r.Weight, r.Bytes(),
		hashOf(r.Key), r.Key, r.URL, r.Method, r.Header, r.Signer, r.File, body, record,
		writeWaits(r.Waits),
	)
	if err != nil {
		return err
	}
	n, err := result.RowsAffected()
	if err != nil {
		return err
	}
	if n == 0 {
		out.Repeated++
		t.delta.Repeated++
		return nil
	}
	t.delta.Waiting += int64(r.Weight)
	t.delta.Bytes += r.Bytes()
	if slices.ContainsFunc(out.Hosts, func(h Host) bool { return h.ID == host }) {
		return nil // rows of one batch start at the same time
	}
	out.Hosts = append(out.Hosts, Host{host, r.Host, time.UnixMilli(start)})
	return nil
}

// idOf returns the number under which the file stores the name of a host or partition. If the name
// has none, idOf assigns one.
func (t *transaction) idOf(
	cache map[string]int64, find, add *sql.Stmt, name string,
) (id int64, err error) {
	if id, ok := cache[name]; ok {
		return id, nil
	}
	err = find.QueryRowContext(t.ctx, name).Scan(&id)
	if errors.Is(err, sql.ErrNoRows) {
		var result sql.Result
		if result, err = add.ExecContext(t.ctx, name); err == nil {
			id, err = result.LastInsertId()
		}
	}
	if err != nil {
		return 0, err
	}
	if len(cache) >= maxCachedNames {
		clear(cache)
	}
	cache[name] = id
	return id, nil
}

// hashOf returns the hash under which the index of keys contains key.
func hashOf(key string) int64 {
	h := fnv.New128a()
	_, _ = h.Write([]byte(key)) // never fails
	return int64(binary.LittleEndian.Uint64(h.Sum(nil)))
}

// Record makes changes durable. An operator may have changed a delivery after it was read. If it
// was cancelled, it stays cancelled, and only the history entries of the change are added. If the
// operator has asked for another attempt, Record changes the field To of the change, so that this
// attempt is due, unless To ends the delivery.
//
// Record returns the hosts to which deliveries have moved. A delivery moves when its operation is
// polled: it then belongs to the host of the poll's URL.
func (s *Store) Record(ctx context.Context, changes []Change) (moved []Host, err error) {
	err = s.run(ctx, func(t *transaction) error {
		for i := range changes {
			c := &changes[i]
			if err := t.keepRetry(c); err != nil {
				return err
			}
			to, err := t.advance(
				Waiting, c.To, c.Delivery.Host, c.Delivery.Weight, latest(c.Entries),
			)
			if err != nil {
				return err
			}
			if to != nil {
				moved = append(moved, *to)
			}
			if err := t.insertEntries(c.To.ID, c.Entries); err != nil {
				return err
			}
		}
		return nil
	})
	return moved, err
}

// keepRetry applies an operator's Retry to c.To, if the Retry came after c.Delivery was read.
// Without keepRetry, c.To would undo the Retry, because it was computed from c.Delivery.
func (t *transaction) keepRetry(c *Change) error {
	if c.To.State != Waiting && c.To.State != Exhausted {
		return nil
	}
	due, ok, err := retried(t.ctx, t.stmt.retried, c.Delivery)
	if err == nil && ok {
		c.To, err = c.To.Next(Schedule{}, Retry, due, 0) // does not depend on the schedule
	}
	return err
}

// Retried reports whether an operator has asked for an attempt of d since d was read.
func (s *Store) Retried(ctx context.Context, d *Delivery) (bool, error) {
	_, ok, err := retried(ctx, s.reads.retried, d)
	return ok, err
}

// retriedQuery finds a delivery with a Retry that is newer than the given one.
const retriedQuery = `SELECT due FROM deliveries
	WHERE id = ? AND state = 0 AND forced = 1 AND NOT (? AND due = ?)`

func retried(
	ctx context.Context, query *sql.Stmt, d *Delivery,
) (due time.Time, ok bool, err error) {
	var at int64
	err = query.QueryRowContext(ctx, d.ID, d.Forced, d.Due.UnixMilli()).Scan(&at)
	if errors.Is(err, sql.ErrNoRows) {
		return due, false, nil
	}
	return time.UnixMilli(at), err == nil, err
}

func latest(entries []Entry) time.Time {
	if len(entries) == 0 {
		return time.Time{}
	}
	e := entries[len(entries)-1]
	return e.At.Add(e.Took)
}

// advance stores the new progress of a delivery (the parameter to). It stores nothing if the state
// of the delivery in the file is not the parameter from. The parameter host is the delivery's host
// so far. If the delivery has moved, advance returns its new host, otherwise nil.
func (t *transaction) advance(
	from State, to Progress, host string, weight int, now time.Time,
) (moved *Host, err error) {
	ended := int64(0)
	if to.State.Ended() {
		ended = now.UnixMilli()
	}
	state := to.State
	if state == InFlight {
		state = Waiting
	}
	result, err := t.stmt.update.ExecContext(
		t.ctx, state, to.Attempt, to.Forced, to.Due.UnixMilli(), ended, to.ID, from)
	if err != nil {
		return nil, err
	}
	n, err := result.RowsAffected()
	if err != nil || n == 0 {
		return nil, err
	}
	t.count(from, state, int64(weight))
	if !to.Polled() {
		return nil, nil
	}
	return t.moveOperation(to, host)
}

// count updates the store's totals (numbers of source records by state) when the state of a
// delivery changes. weight is the delivery's number of source records.
func (t *transaction) count(from, to State, weight int64) {
	if from == Exhausted {
		t.delta.Exhausted -= weight
	}
	if to == Exhausted {
		t.delta.Exhausted += weight
	}
	if to.Ended() {
		t.delta.Waiting -= weight
		*t.delta.fields()[to.String()] += weight // ended states have the names of their counts
	}
}

// moveOperation stores the operation of a delivery, which may be at another host.
func (t *transaction) moveOperation(p Progress, host string) (moved *Host, err error) {
	o := &p.Operation
	id, err := t.idOf(t.s.hosts, t.stmt.findHost, t.stmt.addHost, o.Host)
	if err != nil {
		return nil, err
	}
	_, err = t.stmt.operation.ExecContext(
		t.ctx, id, o.Location, o.Accepted.UnixMilli(), o.Polls, o.Found, p.ID)
	if err == nil && o.Host != host {
		moved = &Host{ID: id, Name: o.Host, Due: p.Due}
	}
	return moved, err
}

func (t *transaction) insertEntries(id int64, entries []Entry) error {
	for _, e := range entries {
		_, err := t.stmt.entry.ExecContext(
			t.ctx, id, e.At.UnixMilli(), e.Event, e.Took.Milliseconds(), e.Status, e.Detail, e.Body,
		)
		if err != nil {
			return err
		}
	}
	return nil
}

// NotFoundError means that the store has no delivery with the key. Such a delivery may have existed
// and been pruned. In an error of Retry or Cancel, Key is the id of the delivery.
type NotFoundError struct{ Key string }

// Error names the key.
func (e *NotFoundError) Error() string { return fmt.Sprintf("no delivery has the key %q", e.Key) }

// Retry makes an extra attempt or poll of a waiting or exhausted delivery due at the time now.
func (s *Store) Retry(ctx context.Context, id int64, now time.Time) error {
	return s.operate(ctx, id, Retry, now)
}

// Cancel ends a waiting or exhausted delivery. If an attempt is in flight, the receiver may still
// accept it.
func (s *Store) Cancel(ctx context.Context, id int64, now time.Time) error {
	return s.operate(ctx, id, Cancel, now)
}

func (s *Store) operate(ctx context.Context, id int64, e Event, now time.Time) error {
	return s.run(ctx, func(t *transaction) error {
		found, err := query(ctx, t.tx, "WHERE d.id = ?", id)
		if err == nil && len(found) == 0 {
			err = &refusal{&NotFoundError{fmt.Sprint(id)}}
		}
		if err != nil {
			return err
		}
		d := found[0]
		to, err := d.Progress.Next(Schedule{}, e, now, 0) // neither event depends on the schedule
		if err != nil {
			return &refusal{err}
		}
		if _, err := t.advance(d.State, to, d.Host, d.Weight, now); err != nil {
			return err
		}
		return t.insertEntries(id, []Entry{{At: now, Event: e.String(), Detail: "by an operator"}})
	})
}
