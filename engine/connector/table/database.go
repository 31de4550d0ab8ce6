package table

import (
	"context"
	"database/sql/driver"
	"fmt"
	"time"
)

// database is one database as one reader uses it: by one goroutine at a time. It connects when it
// has to, and anew after a failure. What is an error of the moment only, transient says.
type database interface {
	// describe looks at a table, view or query.
	describe(ctx context.Context, of subject) (*relation, error)
	// list names the tables that there are, as `tables` may name them.
	list(ctx context.Context) ([]string, error)
	// observe looks for the last row above a place, and for what may still write one below it.
	observe(ctx context.Context, r *relation, q rowQuery) (observation, error)
	// unplaced says whether a view or query has a row in which a column of order_by is NULL.
	unplaced(ctx context.Context, r *relation) (bool, error)
	// passed says what of the observations lies behind: how many of them, in order, nothing can
	// precede any more.
	passed(ctx context.Context, r *relation, waiting []observation) (int, error)
	// rows gives the rows of q to f, in order.
	rows(ctx context.Context, r *relation, q rowQuery, f *filling) error
	// keys gives the keys of q, in order, until each returns false.
	keys(ctx context.Context, r *relation, q rowQuery, each func(key []byte) bool) error
	// lastGiven is the last number that the generator of the keys, a sequence or counter, has
	// given; known is false if there is none or it cannot be read.
	lastGiven(ctx context.Context, r *relation) (n int64, known bool, err error)
	// wait returns after d, or when the database says that there is something new.
	wait(ctx context.Context, d time.Duration) (woken bool, err error)
	transient(err error) bool
	close() error
}

// sequence makes a callback for sqldriver.Query of one that always goes on.
func sequence(row func(v []driver.Value)) func([]driver.Value) (bool, error) {
	return func(v []driver.Value) (bool, error) {
		row(v)
		return true, nil
	}
}

// subject is what is read: a table or view by its name, or a query.
type subject struct {
	name  string // as written in the config; of a query, that of its partition
	query string // "": a table or view
}

func (s subject) String() string {
	if s.query != "" {
		return fmt.Sprintf("the query %q", s.name)
	}
	return fmt.Sprintf("the table %q", s.name)
}

// rowQuery says which rows.
type rowQuery struct {
	after  string // keys above this one; "": from the start
	upTo   string // and not above this one; "": to the end
	exact  string // or: the row with this key
	stripe *stripe
	limit  int
}

// stripe bounds the first column of order_by: from (included) to below to.
type stripe struct{ from, to keyValue }

// observation is the last row that could be seen at a moment, and what could then still write rows
// before it.
type observation struct {
	last    string        // its key; "": there was none
	at      time.Duration // the reader's clock
	xmax    uint64        // PostgreSQL: the first transaction id that was not given away
	writers []string      // PostgreSQL: the transactions that had locked the table for writing
}

// verdict is what filling says of a row.
type verdict uint8

const (
	takeRow verdict = iota
	skipRow         // it belongs to another partition
	endRows         // the batch is full, or something is wrong
)

// filling takes the rows of a query into a batch.
type filling struct {
	maker   *rowMaker
	part    *partition
	room    int    // rows that may still be taken
	bytes   int    // the batch is full at so many
	keys    []byte // of the rows taken, one behind the other
	ends    []int  // where each ends in keys
	passed  []byte // the key of the last row that was skipped
	prev    string // the key before the first row; later ones stand in keys
	limit   int    // of the query; its last row is looked at and not taken
	offered int    // rows that it gave
	err     error  // why it ended early
	twin    bool   // because two rows share a place
	more    bool   // it ended because the batch is full
}

// last is the key of the row before.
func (f *filling) last() []byte {
	switch n := len(f.ends); n {
	case 0:
		return []byte(f.prev)
	case 1:
		return f.keys[:f.ends[0]]
	default:
		return f.keys[f.ends[n-2]:f.ends[n-1]]
	}
}

// accept says whether the next row, which has this key, is taken.
func (f *filling) accept(key []byte) verdict {
	r := f.part.relation
	f.offered++
	if last := f.last(); len(last) > 0 && string(key) <= string(last) {
		if string(key) == string(last) {
			f.twin = true
			f.err = fmt.Errorf("two rows of %s share the place (%s): the columns of `order_by` do not tell its rows apart; "+
				"add one that does", r.name, r.keys.show(string(key)))
		} else {
			f.err = fmt.Errorf("%s gives its rows in another order than by the values of (%s): order by columns that compare byte by byte",
				r.name, r.keys.show(string(key)))
		}
		return endRows
	}
	if len(key) > maxKeyBytes {
		f.err = fmt.Errorf("a place in %s is longer than %d bytes (%.60s...): order by shorter columns",
			r.name, maxKeyBytes, r.keys.show(string(key)))
		return endRows
	}
	if f.room <= 0 || f.maker.size() >= f.bytes {
		f.more = true
		return endRows
	}
	if f.offered == f.limit {
		return endRows
	}
	if f.part.isLate(key) {
		f.passed = append(f.passed[:0], key...)
		return skipRow
	}
	f.room--
	f.keys = append(f.keys, key...)
	f.ends = append(f.ends, len(f.keys))
	f.maker.row()
	return takeRow
}

// done ends the row that was accepted.
func (f *filling) done() { f.maker.end(f.part.span) }
