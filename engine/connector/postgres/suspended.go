package postgres

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/penstock-io/penstock/engine/kit/sqlspan"
)

// patience is the time for which a session may send nothing while its transaction locks rows in a
// ledger's table of marks (the stored watermarks). If it sends nothing for longer, its process
// counts as suspended, or its network as cut.
const patience = 10 * time.Second

// suspended detects sessions of suspended processes. It is safe for concurrent use.
type suspended struct {
	patience time.Duration

	mu     sync.Mutex              // guards copies
	copies map[lockHolder]progress // sessions that copied rows at the last call of stalled
}

// lockHolder identifies a session that locks rows in the ledger's table of marks (the stored
// watermarks of partitions), but only while the session stays in its current state. The field
// changed is the time at which this state began.
type lockHolder struct {
	pid     int32
	changed time.Time // begin of the state
}

// progress is the progress of a COPY.
type progress struct {
	bytes int64     // received rows, as the server reports them
	since time.Time // time at which this process first saw bytes
}

// idleSessions selects sessions that lock rows in a ledger's table of marks (the stored watermarks
// of partitions) and wait for their client. It selects a session only if the state of the session
// has not changed for the interval $2. During a COPY, the state never changes, even if rows arrive.
// Therefore the query also selects the number of bytes that the COPY has received, or -1. Servers
// before version 14 do not report this number, so that every COPY there seems to receive no rows.
const idleSessions = `SELECT a.pid, a.state_change, a.state = 'active', coalesce(
		CASE WHEN current_setting('server_version_num')::int >= 140000
		THEN (SELECT p.param1 FROM pg_stat_get_progress_info('COPY') p WHERE p.pid = a.pid) END, -1)
	FROM pg_locks l JOIN pg_stat_activity a ON a.pid = l.pid
	WHERE l.locktype = 'relation' AND l.relation = to_regclass($1) AND l.granted
	AND l.mode = 'RowExclusiveLock' AND a.datname = current_database()
	AND a.wait_event = 'ClientRead' AND a.state_change < now() - $2::interval`

// endSessions ends sessions that are still in the same state.
const endSessions = `SELECT count(pg_terminate_backend(a.pid)) FROM pg_stat_activity a
	JOIN unnest($1::int[], $2::timestamptz[]) u (pid, changed)
	ON a.pid = u.pid AND a.state_change = u.changed AND a.wait_event = 'ClientRead'`

// evictSuspended ends the connections of suspended processes that lock rows in the ledger's table
// of marks (the stored watermarks of partitions). It is called when the transaction on c has failed
// with err, because it waited too long for such a lock. It returns err, joined with an error of
// evict if there is one.
func (s *Sink) evictSuspended(ctx context.Context, c *conn, err error) error {
	if _, undo := c.Exec(ctx, "ROLLBACK", pgx.QueryExecModeSimpleProtocol); undo != nil {
		return err
	}
	ended, failed := s.suspended.evict(ctx, c, s.name.Beside(sqlspan.MarksTable).String())
	if failed != nil {
		return errors.Join(err, failed)
	}
	if ended > 0 {
		s.host.Log().Warn("connections of a process that does not respond were ended",
			"connections", ended)
	}
	return err
}

// evict ends the sessions of suspended processes that lock rows of the table marks.
func (s *suspended) evict(ctx context.Context, c *conn, marks string) (ended int64, err error) {
	idle, copies := []lockHolder{}, make(map[lockHolder]int64)
	var at lockHolder
	var copying bool
	var bytes int64
	err = c.Run(ctx, &sqlspan.Statement{SQL: idleSessions, Args: []any{marks, s.patience},
		Dest: []any{&at.pid, &at.changed, &copying, &bytes}, Row: func() {
			if copying {
				copies[at] = bytes
			} else {
				idle = append(idle, at)
			}
		}})
	if err != nil {
		return 0, err
	}
	idle = append(idle, s.stalled(copies, time.Now())...)
	if len(idle) == 0 {
		return 0, nil
	}
	pids, times := make([]int32, len(idle)), make([]time.Time, len(idle))
	for i, at := range idle {
		pids[i], times[i] = at.pid, at.changed
	}
	err = c.QueryRow(ctx, endSessions, pids, times).Scan(&ended)
	return ended, err
}

// stalled returns the sessions with a COPY that have received no rows for the time patience. copies
// has the number of bytes that each session has received so far. stalled compares these numbers
// with those of earlier calls.
func (s *suspended) stalled(copies map[lockHolder]int64, now time.Time) (stalled []lockHolder) {
	s.mu.Lock()
	defer s.mu.Unlock()
	before := s.copies
	s.copies = make(map[lockHolder]progress, len(copies))
	for at, bytes := range copies {
		p, known := before[at]
		switch {
		case !known || p.bytes != bytes:
			p = progress{bytes, now}
		case now.Sub(p.since) >= s.patience:
			stalled = append(stalled, at)
		}
		s.copies[at] = p
	}
	return stalled
}
