package sqlite

import (
	"context"
	"database/sql/driver"
	"fmt"

	"github.com/penstock-io/penstock/engine/kit/sqlspan"
	"github.com/penstock-io/penstock/stream"
)

// The ledger's tables; docs/formats/sql-tables.md.
const ledgerSQL = `CREATE TABLE IF NOT EXISTS ` + sqlspan.RoutesTable + ` (
	route TEXT NOT NULL PRIMARY KEY, format INTEGER NOT NULL, epoch INTEGER NOT NULL
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS ` + sqlspan.MarksTable + ` (
	route TEXT NOT NULL, part TEXT NOT NULL, name TEXT NOT NULL, num INTEGER NOT NULL, key BLOB NOT NULL,
	PRIMARY KEY (route, part)
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS ` + sqlspan.SpansTable + ` (
	route TEXT NOT NULL, part TEXT NOT NULL, from_num INTEGER NOT NULL, from_key BLOB NOT NULL,
	to_num INTEGER NOT NULL, to_key BLOB NOT NULL,
	PRIMARY KEY (route, part, from_num, from_key)
) WITHOUT ROWID;`

const (
	insertSpanSQL = `INSERT INTO ` + sqlspan.SpansTable + ` VALUES (?, ?, ?, ?, ?, ?) ON CONFLICT DO NOTHING`
	spanEndSQL    = `SELECT to_num, to_key FROM ` + sqlspan.SpansTable + ` WHERE route = ? AND part = ? AND from_num = ? AND from_key = ?`
	markSQL       = `SELECT num, key FROM ` + sqlspan.MarksTable + ` WHERE route = ? AND part = ?`
	setMarkSQL    = `INSERT INTO ` + sqlspan.MarksTable + ` VALUES (?, ?, ?, ?, ?) ON CONFLICT (route, part)
		DO UPDATE SET name = excluded.name, num = excluded.num, key = excluded.key WHERE (excluded.num, excluded.key) >= (num, key)`
	foldSpansSQL  = `DELETE FROM ` + sqlspan.SpansTable + ` WHERE route = ? AND part = ? AND (to_num, to_key) <= (?, ?)`
	pruneSpansSQL = `DELETE FROM ` + sqlspan.SpansTable + ` WHERE route = ? AND part = ?`
	pruneMarkSQL  = `DELETE FROM ` + sqlspan.MarksTable + ` WHERE route = ? AND part = ?`
	bumpSQL       = `INSERT INTO ` + sqlspan.RoutesTable + ` VALUES (?, ?, 1) ON CONFLICT (route) DO UPDATE SET epoch = epoch + 1`
	routeSQL      = `SELECT format, epoch FROM ` + sqlspan.RoutesTable + ` WHERE route = ?`
	marksSQL      = `SELECT part, name, num, key FROM ` + sqlspan.MarksTable + ` WHERE route = ?`
	spansSQL      = `SELECT part, from_num, from_key, to_num, to_key FROM ` + sqlspan.SpansTable + ` WHERE route = ?`
)

func (c *connection) prepareLedger() error {
	_, err := c.exec(ledgerSQL)
	return err
}

// LedgerName implements stream.LedgerNamer.
func (s *Sink) LedgerName() string {
	return fmt.Sprintf("table %s in %q, route %q", sqlspan.MarksTable, s.o.Path, s.ledger)
}

// Load implements stream.Ledgered.
func (s *Sink) Load(ctx context.Context) (marks []stream.Mark, err error) {
	err = s.file.use(ctx, func(c *connection) error {
		return c.transaction(func() error {
			if err := s.fence(c); err != nil {
				return err
			}
			if marks, err = s.held(c); err != nil {
				return err
			}
			if err := s.foldTo(c, marks); err != nil {
				return err
			}
			return s.find(c)
		})
	})
	if err != nil {
		return nil, fmt.Errorf("sqlite %q: %w", s.o.Path, err)
	}
	return marks, nil
}

// fence takes the next epoch: who has the one before can commit nothing any more.
func (s *Sink) fence(c *connection) error {
	format, epoch, err := s.route(c)
	if err != nil {
		return err
	}
	if epoch > 0 {
		if err := sqlspan.CheckFormat(s.ledger, format); err != nil {
			return err
		}
	}
	if _, err := c.exec(bumpSQL, s.ledger, int64(sqlspan.Format)); err != nil {
		return err
	}
	_, s.lane.epoch, err = s.route(c)
	return err
}

func (s *Sink) route(c *connection) (format, epoch int64, err error) {
	err = c.query(func(v []driver.Value) error {
		format, _ = v[0].(int64)
		epoch, _ = v[1].(int64)
		return nil
	}, routeSQL, s.ledger)
	return format, epoch, err
}

// held reads what the ledger has.
func (s *Sink) held(c *connection) ([]stream.Mark, error) {
	var marks []stream.Mark
	var rows []sqlspan.Row
	err := c.query(func(v []driver.Value) error {
		part, _ := v[0].(string)
		name, _ := v[1].(string)
		marks = append(marks, stream.Mark{Part: stream.Partition{ID: part, Name: name}, Watermark: position(v[2], v[3])})
		return nil
	}, marksSQL, s.ledger)
	if err != nil {
		return nil, err
	}
	err = c.query(func(v []driver.Value) error {
		part, _ := v[0].(string)
		rows = append(rows, sqlspan.Row{Part: part, Range: stream.Range{From: position(v[1], v[2]), To: position(v[3], v[4])}})
		return nil
	}, spansSQL, s.ledger)
	return sqlspan.Fold(marks, rows), err
}

func position(num, key driver.Value) stream.Position {
	n, _ := num.(int64)
	k, _ := key.([]byte)
	return stream.Position{Num: n, Key: string(k)}
}

// Compact implements stream.Ledgered.
func (s *Sink) Compact(ctx context.Context, marks []stream.Mark) error {
	return s.file.use(ctx, func(c *connection) error {
		return c.transaction(func() error {
			if err := s.checkEpoch(c); err != nil {
				return err
			}
			return s.foldTo(c, marks)
		})
	})
}

// Prune implements stream.Pruner.
func (s *Sink) Prune(ctx context.Context, ids []string) error {
	return s.file.use(ctx, func(c *connection) error {
		return c.transaction(func() error {
			if err := s.checkEpoch(c); err != nil {
				return err
			}
			for _, id := range ids {
				for _, sql := range []string{pruneSpansSQL, pruneMarkSQL} {
					if _, err := c.exec(sql, s.ledger, id); err != nil {
						return err
					}
				}
			}
			return nil
		})
	})
}

// foldTo moves the marks up and takes away the rows at or below them.
func (s *Sink) foldTo(c *connection, marks []stream.Mark) error {
	for _, m := range marks {
		key := []byte(m.Watermark.Key)
		if _, err := c.exec(setMarkSQL, s.ledger, m.Part.ID, m.Part.Name, m.Watermark.Num, key); err != nil {
			return err
		}
		if _, err := c.exec(foldSpansSQL, s.ledger, m.Part.ID, m.Watermark.Num, key); err != nil {
			return err
		}
	}
	return nil
}

// Store implements stream.Ledgered.
func (s *Sink) Store(ctx context.Context, spans []stream.Span) error {
	return s.file.use(ctx, func(c *connection) error {
		return c.transaction(func() error {
			if err := s.checkEpoch(c); err != nil {
				return err
			}
			_, err := s.enter(c, spans)
			return err
		})
	})
}

func (s *Sink) checkEpoch(c *connection) error {
	_, epoch, err := s.route(c)
	if err == nil && epoch != s.lane.epoch {
		return &sqlspan.FencedError{Ledger: s.ledger, Own: s.lane.epoch, Seen: epoch}
	}
	return err
}

// enter stores the rows of spans in the transaction that is open, and says how much of them was there before.
func (s *Sink) enter(c *connection, spans []stream.Span) (sqlspan.Presence, error) {
	spans = sqlspan.Covering(nil, spans)
	if len(spans) == 0 {
		return sqlspan.None, nil
	}
	stored := make([]*stream.Position, len(spans))
	marks := make(map[string]stream.Position)
	for i, p := range spans {
		n, err := c.exec(insertSpanSQL, s.ledger, p.Part.ID, p.From.Num, []byte(p.From.Key), p.To.Num, []byte(p.To.Key))
		if err == nil && n == 0 {
			err = c.query(func(v []driver.Value) error {
				at := position(v[0], v[1])
				stored[i] = &at
				return nil
			}, spanEndSQL, s.ledger, p.Part.ID, p.From.Num, []byte(p.From.Key))
		}
		if _, known := marks[p.Part.ID]; err == nil && !known {
			err = c.query(func(v []driver.Value) error {
				marks[p.Part.ID] = position(v[0], v[1])
				return nil
			}, markSQL, s.ledger, p.Part.ID)
		}
		if err != nil {
			return sqlspan.None, err
		}
	}
	presence := sqlspan.Judge(spans, stored, marks)
	if presence == sqlspan.Part {
		return presence, &sqlspan.PartError{Ledger: s.ledger, Span: spans[0]}
	}
	return presence, nil
}
