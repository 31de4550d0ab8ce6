package mysql

import (
	"context"
	"database/sql/driver"
	"fmt"
	"strconv"
	"strings"

	"github.com/penstock-io/penstock/engine/kit/sqldriver"
	"github.com/penstock-io/penstock/engine/kit/sqlspan"
	"github.com/penstock-io/penstock/stream"
)

// The ledger's tables stand in the data's schema; docs/formats/sql-tables.md.
var makeSQL = []string{
	`CREATE TABLE IF NOT EXISTS $routes (route varbinary(300) PRIMARY KEY, format int NOT NULL, epoch bigint NOT NULL) ENGINE = InnoDB`,
	`CREATE TABLE IF NOT EXISTS $marks (route varbinary(300), part varbinary(200), name text NOT NULL, num bigint NOT NULL,
		"key" varbinary(1024) NOT NULL, PRIMARY KEY (route, part)) ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4`,
	`CREATE TABLE IF NOT EXISTS $spans (route varbinary(300), part varbinary(200), from_num bigint, from_key varbinary(1024),
		to_num bigint NOT NULL, to_key varbinary(1024) NOT NULL, PRIMARY KEY (route, part, from_num, from_key)) ENGINE = InnoDB`,
}

// LedgerName implements stream.LedgerNamer.
func (s *Sink) LedgerName() string {
	return fmt.Sprintf("table %s, route %q", s.name.Beside(sqlspan.MarksTable), s.Books.Ledger)
}

// Load implements stream.Ledgered. It waits for a server that is not there yet.
func (s *Sink) Load(ctx context.Context) ([]stream.Mark, error) {
	return s.Books.Load(ctx, func(ctx context.Context) ([]stream.Mark, error) { return s.Attempt(ctx, s.load) }, transient)
}

// load is one attempt: it makes the ledger's tables, takes the next epoch, and reads and folds what is there. To raise the epoch
// it waits for the transactions that share its row: those of an earlier process commit before, or never.
func (s *Sink) load(ctx context.Context, c *connection) (marks []stream.Mark, err error) {
	for _, sql := range makeSQL {
		if _, err := c.exec(ctx, s.sql(sql)); err != nil {
			return nil, fmt.Errorf("making the ledger's tables: %w", err)
		}
	}
	if err := c.begin(ctx); err != nil {
		return nil, err
	}
	_, err = c.exec(ctx, s.sql(`INSERT INTO $routes VALUES (?, ?, 1) ON DUPLICATE KEY UPDATE epoch = epoch + 1`),
		[]byte(s.Books.Ledger), int64(sqlspan.Format))
	if err != nil {
		return nil, fmt.Errorf("waiting for the transactions of earlier processes: %w", err)
	}
	format, epoch, err := s.route(ctx, c, "")
	if err != nil {
		return nil, err
	}
	if err := s.Books.CheckFormat(format); err != nil {
		return nil, err
	}
	if marks, err = s.held(ctx, c); err != nil {
		return nil, err
	}
	if err := s.foldTo(ctx, c, marks); err != nil {
		return nil, err
	}
	if err := c.commit(ctx); err != nil {
		return nil, err
	}
	s.Books.Take(epoch)
	return marks, s.find(ctx, c)
}

// share is how the epoch is read by who writes: until its transaction ends, nobody raises it.
const share = " LOCK IN SHARE MODE"

func (s *Sink) route(ctx context.Context, c *connection, how string) (format, epoch int64, err error) {
	err = c.query(ctx, func(v []driver.Value) (err error) {
		if format, err = strconv.ParseInt(sqldriver.Text(v[0]), 10, 64); err == nil {
			epoch, err = strconv.ParseInt(sqldriver.Text(v[1]), 10, 64)
		}
		return err
	}, s.sql(`SELECT format, epoch FROM $routes WHERE route = ?`)+how, []byte(s.Books.Ledger))
	return format, epoch, err
}

func position(num, key driver.Value) stream.Position {
	n, _ := num.(int64)
	return stream.Position{Num: n, Key: sqldriver.Text(key)}
}

func (s *Sink) held(ctx context.Context, c *connection) ([]stream.Mark, error) {
	var marks []stream.Mark
	var rows []sqlspan.Row
	err := c.query(ctx, func(v []driver.Value) error {
		marks = append(marks, stream.Mark{
			Part: stream.Partition{ID: sqldriver.Text(v[0]), Name: sqldriver.Text(v[1])}, Watermark: position(v[2], v[3]),
		})
		return nil
	}, s.sql(`SELECT part, name, num, "key" FROM $marks WHERE route = ?`), []byte(s.Books.Ledger))
	if err != nil {
		return nil, err
	}
	err = c.query(ctx, func(v []driver.Value) error {
		rows = append(rows, sqlspan.Row{
			Part: sqldriver.Text(v[0]), Range: stream.Range{From: position(v[1], v[2]), To: position(v[3], v[4])},
		})
		return nil
	}, s.sql(`SELECT part, from_num, from_key, to_num, to_key FROM $spans WHERE route = ?`), []byte(s.Books.Ledger))
	return sqlspan.Fold(marks, rows), err
}

// foldTo moves the marks up and takes away the rows at or below them. That one transaction does both is what keeps a late copy of a
// batch out: its span row is free again only when the mark is to be seen.
func (s *Sink) foldTo(ctx context.Context, c *connection, marks []stream.Mark) error {
	for _, m := range marks {
		route, part, key := []byte(s.Books.Ledger), []byte(m.Part.ID), []byte(m.Watermark.Key)
		_, err := c.exec(ctx, s.sql(`INSERT INTO $marks VALUES (?, ?, ?, ?, ?) ON DUPLICATE KEY UPDATE name = VALUES(name),
			"key" = IF(VALUES(num) > num OR VALUES(num) = num AND VALUES("key") > "key", VALUES("key"), "key"),
			num = GREATEST(num, VALUES(num))`),
			route, part, strings.ToValidUTF8(m.Part.Name, "\uFFFD"), m.Watermark.Num, key)
		if err != nil {
			return err
		}
		_, err = c.exec(ctx, s.sql(`DELETE FROM $spans WHERE route = ? AND part = ? AND (to_num < ? OR to_num = ? AND to_key <= ?)`),
			route, part, m.Watermark.Num, m.Watermark.Num, key)
		if err != nil {
			return err
		}
	}
	return nil
}

// Compact implements stream.Ledgered.
func (s *Sink) Compact(ctx context.Context, marks []stream.Mark) error {
	return s.change(ctx, func(ctx context.Context, c *connection) error { return s.foldTo(ctx, c, marks) })
}

// Prune implements stream.Pruner.
func (s *Sink) Prune(ctx context.Context, ids []string) error {
	if len(ids) == 0 {
		return nil
	}
	args := []driver.Value{[]byte(s.Books.Ledger)}
	for _, id := range ids {
		args = append(args, []byte(id))
	}
	of := ` WHERE route = ? AND part IN (?` + strings.Repeat(", ?", len(ids)-1) + `)`
	return s.change(ctx, func(ctx context.Context, c *connection) error {
		if _, err := c.exec(ctx, s.sql(`DELETE FROM $spans`)+of, args...); err != nil {
			return err
		}
		_, err := c.exec(ctx, s.sql(`DELETE FROM $marks`)+of, args...)
		return err
	})
}

// change calls f in a transaction of the process's own epoch, over the ledger's own connection.
func (s *Sink) change(ctx context.Context, f func(ctx context.Context, c *connection) error) error {
	return s.Change(ctx, func(ctx context.Context, c *connection) error {
		err := c.begin(ctx)
		if err == nil {
			err = s.checkEpoch(ctx, c)
		}
		if err == nil {
			err = f(ctx, c)
		}
		if err == nil {
			err = c.commit(ctx)
		}
		return err
	})
}

func (s *Sink) checkEpoch(ctx context.Context, c *connection) error {
	_, seen, err := s.route(ctx, c, share)
	if err != nil {
		return err
	}
	return s.Books.Check(seen)
}

// Enter implements sqlspan.Writer.
func (w *writer) Enter(ctx context.Context, c *connection, spans []stream.Span, _ bool) (sqlspan.Presence, error) {
	s := w.sink
	if err := c.begin(ctx); err != nil {
		return sqlspan.None, err
	}
	if err := s.checkEpoch(ctx, c); err != nil {
		return sqlspan.None, err
	}
	before := make([]*stream.Position, len(spans))
	marks := make(map[string]stream.Position)
	for i, p := range spans {
		at, folded := []driver.Value{[]byte(s.Books.Ledger), []byte(p.Part.ID), p.From.Num, []byte(p.From.Key)}, false
		n, err := c.exec(ctx, s.sql(`INSERT IGNORE INTO $spans VALUES (?, ?, ?, ?, ?, ?)`), append(at, p.To.Num, []byte(p.To.Key))...)
		if err == nil && n == 0 {
			err = c.query(ctx, func(v []driver.Value) error {
				end := position(v[0], v[1])
				before[i] = &end
				return nil
			}, s.sql(`SELECT to_num, to_key FROM $spans WHERE route = ? AND part = ? AND from_num = ? AND from_key = ?`), at...)
			folded = before[i] == nil // just now: into a mark that may be younger than what is known
		}
		if _, known := marks[p.Part.ID]; err == nil && (!known || folded) {
			err = c.query(ctx, func(v []driver.Value) error {
				marks[p.Part.ID] = position(v[0], v[1])
				return nil
			}, s.sql(`SELECT num, "key" FROM $marks WHERE route = ? AND part = ?`), at[:2]...)
		}
		if err != nil {
			return sqlspan.None, err
		}
	}
	presence := sqlspan.Judge(spans, before, marks)
	if presence == sqlspan.Part {
		return presence, &sqlspan.PartError{Ledger: s.Books.Ledger, Span: spans[0]}
	}
	return presence, nil
}
