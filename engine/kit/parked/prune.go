package parked

import (
	"context"
	"maps"
	"time"
)

// pruneSize bounds the number of deliveries that one Prune deletes.
const pruneSize = 500

// Prune deletes at most pruneSize deliveries that ended before the given time, the oldest first. It
// returns the number of deleted deliveries. It also deletes the partitions that then have no
// deliveries.
func (s *Store) Prune(ctx context.Context, before time.Time) (n int64, err error) {
	err = s.run(ctx, func(t *transaction) error {
		n, err = t.prune(before.UnixMilli())
		return err
	})
	return n, err
}

func (t *transaction) prune(before int64) (n int64, err error) {
	const old = ` IN (SELECT id FROM deliveries WHERE state > 0 AND ended > 0 AND ended < ?
		ORDER BY ended LIMIT ?)`
	_, err = t.tx.ExecContext(t.ctx, "DELETE FROM history WHERE delivery"+old, before, pruneSize)
	if err != nil {
		return 0, err
	}
	rows, err := t.tx.QueryContext(
		t.ctx, "DELETE FROM deliveries WHERE id"+old+" RETURNING part, bytes", before, pruneSize)
	if err != nil {
		return 0, err
	}
	defer rows.Close()
	parts := make(map[int64]bool)
	for rows.Next() {
		var part, bytes int64
		if err := rows.Scan(&part, &bytes); err != nil {
			return 0, err
		}
		parts[part] = true
		t.delta.Bytes -= bytes
		n++
	}
	if err := rows.Err(); err != nil {
		return 0, err
	}
	return n, t.prunePartitions(parts)
}

// prunePartitions deletes those of the given partitions that have no deliveries.
func (t *transaction) prunePartitions(parts map[int64]bool) error {
	for id := range parts {
		_, err := t.tx.ExecContext(t.ctx, `DELETE FROM partitions WHERE id = ?1
			AND NOT EXISTS (SELECT 1 FROM deliveries WHERE part = ?1)`, id)
		if err != nil {
			return err
		}
	}
	maps.DeleteFunc(t.s.parts, func(_ string, id int64) bool { return parts[id] })
	return nil
}

// manyHosts is the number of hosts above which PruneHosts searches for hosts to delete.
const manyHosts = 10_000

// PruneHosts deletes the hosts without deliveries, if the store has many hosts. It reads all
// deliveries. The caller must not hold a [Host] of the store, because its ID may be assigned to
// another host.
func (s *Store) PruneHosts(ctx context.Context) (n int64, err error) {
	err = s.run(ctx, func(t *transaction) error {
		var hosts int64
		row := t.tx.QueryRowContext(ctx, "SELECT count(*) FROM hosts")
		if err := row.Scan(&hosts); err != nil || hosts <= manyHosts {
			return err
		}
		result, err := t.tx.ExecContext(
			ctx, "DELETE FROM hosts WHERE id NOT IN (SELECT host FROM deliveries)")
		if err != nil {
			return err
		}
		clear(s.hosts)
		n, err = result.RowsAffected()
		return err
	})
	return n, err
}
