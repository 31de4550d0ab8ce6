package parked

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
)

// operation is a write to the store that waits for a commit.
type operation struct {
	do func(*transaction) error
	// turn receives false when the operation was committed or has failed. It receives true when the
	// caller of this operation must make the next commit.
	turn chan bool
	err  error
}

// transaction is a commit in progress. delta has the changes that it makes to the store's totals,
// which count the deliveries by state.
type transaction struct {
	ctx   context.Context
	s     *Store
	tx    *sql.Tx
	delta Totals
	stmt  *statements
}

// run calls do, which writes to the store, and returns when the write is committed. Concurrent
// writes share a commit (group commit). A caller that finds no commit in progress becomes the
// leader and commits the queued operations, at most groupSize. If a write fails, all writes that
// share its commit fail. An error of the type refusal makes only its own operation fail.
func (s *Store) run(ctx context.Context, do func(*transaction) error) error {
	op := &operation{do: do, turn: make(chan bool, 1)}
	s.mu.Lock()
	s.queue = append(s.queue, op)
	leads := !s.leading
	s.leading = true
	s.mu.Unlock()
	if !leads {
		leads = <-op.turn
	}
	if leads {
		s.lead(context.WithoutCancel(ctx))
	}
	return op.err
}

// lead commits the first operations of the queue, which include the leader's own. Then it makes the
// caller of the next queued operation the leader.
func (s *Store) lead(ctx context.Context) {
	s.mu.Lock()
	n := min(len(s.queue), groupSize)
	group := s.queue[:n:n]
	s.queue = s.queue[n:]
	s.mu.Unlock()
	err := s.commit(ctx, group)
	for _, op := range group {
		if op.err == nil {
			op.err = err
		}
	}
	s.mu.Lock()
	var next *operation
	if len(s.queue) > 0 {
		next = s.queue[0]
	} else {
		s.queue, s.leading = nil, false
	}
	s.mu.Unlock()
	for _, op := range group[1:] {
		op.turn <- false
	}
	if next != nil {
		next.turn <- true
	}
}

func (s *Store) commit(ctx context.Context, group []*operation) (err error) {
	tx, err := s.write.BeginTx(ctx, nil)
	if err != nil {
		return fmt.Errorf("parked store %s: %w", s.o.Path, err)
	}
	defer func() {
		if err != nil {
			err = fmt.Errorf("parked store %s: %w", s.o.Path, errors.Join(err, tx.Rollback()))
			clear(s.hosts) // the ids may belong to names that were rolled back
			clear(s.parts)
		}
	}()
	t := &transaction{ctx: ctx, s: s, tx: tx, stmt: s.stmt.within(ctx, tx)}
	for _, op := range group {
		err := op.do(t)
		if refused := (*refusal)(nil); errors.As(err, &refused) { // it wrote nothing
			op.err = refused.err
		} else if err != nil {
			return err
		}
	}
	for name, n := range t.delta.fields() {
		if *n != 0 {
			if _, err := t.stmt.total.ExecContext(ctx, *n, name); err != nil {
				return err
			}
		}
	}
	if err := tx.Commit(); err != nil {
		return err
	}
	s.mu.Lock()
	s.totals.add(t.delta)
	s.mu.Unlock()
	return nil
}

// refusal is the error of an operation that has written nothing. The other operations of its commit
// can still be committed.
type refusal struct{ err error }

func (r *refusal) Error() string { return r.err.Error() }

// statements are the prepared statements of the writer's connection.
type statements struct {
	total, insert, update, operation, entry, findHost, addHost, findPart, addPart, retried *sql.Stmt
}

// statementList has places for prepared statements, with the SQL of each.
type statementList []struct {
	to  **sql.Stmt
	sql string
}

func (p *statements) all() statementList {
	return statementList{
		{&p.total, "UPDATE totals SET n = n + ? WHERE name = ?"},
		{
			&p.insert,
			`INSERT OR IGNORE INTO deliveries (part, num, keyset, sub, state, attempt, forced, start, due, ended, host, weight,
			bytes, hash, key, url, method, header, signer, file, body, record, waits)
			VALUES (?,?,?,?,0,0,0,?,?,0,?,?,?,?,?,?,?,?,?,?,?,?,?)`,
		},
		{&p.update, `UPDATE deliveries SET state = ?, attempt = ?, forced = ?, due = ?, ended = ?
			WHERE id = ? AND state = ?`},
		{
			&p.operation,
			`UPDATE deliveries SET host = ?, location = ?, accepted = ?, polls = ?, found = ?
			WHERE id = ?`,
		},
		{&p.entry, `INSERT INTO history
			SELECT ?1, 1 + coalesce((SELECT max(n) FROM history WHERE delivery = ?1), 0), ?2, ?3, ?4, ?5, ?6, ?7`},
		{&p.findHost, "SELECT id FROM hosts WHERE name = ?"},
		{&p.addHost, "INSERT INTO hosts (name) VALUES (?)"},
		{&p.findPart, "SELECT id FROM partitions WHERE name = ?"},
		{&p.addPart, "INSERT INTO partitions (name) VALUES (?)"},
		{&p.retried, retriedQuery},
	}
}

func (l statementList) prepare(ctx context.Context, db *sql.DB) (err error) {
	for _, s := range l {
		if *s.to, err = db.PrepareContext(ctx, s.sql); err != nil {
			return err
		}
	}
	return nil
}

// within returns the statements for use in the given transaction.
func (p *statements) within(ctx context.Context, tx *sql.Tx) *statements {
	out := *p
	for _, s := range out.all() {
		*s.to = tx.StmtContext(ctx, *s.to)
	}
	return &out
}
