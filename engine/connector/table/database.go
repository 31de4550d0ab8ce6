package table

import (
	"context"
	"database/sql/driver"
	"fmt"
	"time"

	"github.com/penstock-io/penstock/retry"
)

// database is one reader's access to a database. One goroutine at a time may use it. It connects at
// the first call that needs a connection, and reconnects after a failure. transient reports whether
// an error may be temporary.
type database interface {
	// describe returns the properties of a table, view or query.
	describe(ctx context.Context, of subject) (*relation, error)
	// list returns the names of the tables, in the form used in the option tables.
	list(ctx context.Context) ([]string, error)
	// observe returns the last row that q selects. It also returns the open transactions, which may
	// still write rows before that row.
	observe(ctx context.Context, r *relation, q rowQuery) (observation, error)
	// hasNullKey reports whether a view or query has a row with NULL in a column of order_by.
	hasNullKey(ctx context.Context, r *relation) (bool, error)
	// passed returns the number of observations that have passed, counted from the first one in the
	// argument waiting. An observation has passed when no transaction can add rows before its last
	// row any more.
	passed(ctx context.Context, r *relation, waiting []observation) (int, error)
	// rows passes the rows of q to f, in order.
	rows(ctx context.Context, r *relation, q rowQuery, f *filling) error
	// keys calls each with the keys that q selects, in order, until each returns false.
	keys(ctx context.Context, r *relation, q rowQuery, each func(key []byte) bool) error
	// lastGiven returns the last number that the generator of the keys has returned. The generator
	// is a sequence or an AUTO_INCREMENT counter. known is false if there is none or it cannot be
	// read.
	lastGiven(ctx context.Context, r *relation) (n int64, known bool, err error)
	// wait returns after d, or earlier if the database notifies of new rows.
	wait(ctx context.Context, d time.Duration) (woken bool, err error)
	transient(err error) bool
	close() error
}

// firstKey returns the key of the first row that q selects, or "" if it selects none.
func firstKey(ctx context.Context, d database, r *relation, q rowQuery) (first string, err error) {
	err = d.keys(ctx, r, q, func(key []byte) bool {
		first = string(key)
		return false
	})
	return first, err
}

// sequence converts row to a callback of a query. The callback never stops the query early.
func sequence(row func(v []driver.Value)) func([]driver.Value) (bool, error) {
	return func(v []driver.Value) (bool, error) {
		row(v)
		return true, nil
	}
}

// polled is the part of a database without transaction ids and notifications.
type polled struct{}

// passed implements database. It returns the number of all waiting observations, so that only the
// option lag delays rows. A database without transaction ids cannot tell which transactions may
// still add rows before an observation, the last row that was visible at some time.
func (polled) passed(_ context.Context, _ *relation, waiting []observation) (int, error) {
	return len(waiting), nil
}

// wait implements database.
func (polled) wait(ctx context.Context, limit time.Duration) (bool, error) {
	return false, retry.Sleep(ctx, limit)
}

// subject is a table, a view or a query to read.
type subject struct {
	name  string // as written in the config; for a query, the name of its partition
	query string // "" for a table or view
}

func (s subject) String() string {
	if s.query != "" {
		return fmt.Sprintf("the query %q", s.name)
	}
	return fmt.Sprintf("the table %q", s.name)
}

// rowQuery selects rows by their keys.
type rowQuery struct {
	after  string // keys greater than this one; "" means from the start
	upTo   string // up to and including this key; "" means to the end
	exact  string // only the row with this key; then after and upTo are unused
	stripe *stripe
	limit  int
	last   bool // only the last of these rows; then limit is unused
}

// stripe selects the rows in which the first column of order_by is at least from and less than to.
type stripe struct{ from, to keyValue }

// observation is the last row that was visible at some time, with the transactions that could still
// write rows before it.
type observation struct {
	last    string        // its key; "" if there were no rows
	at      time.Duration // on the reader's clock
	xmax    uint64        // PostgreSQL: the first transaction id not assigned yet
	writers []string      // PostgreSQL: the transactions with a write lock on the table
}

// filling adds the rows of one query to a batch, and checks their order.
type filling struct {
	maker     *rowMaker
	part      *partition
	records   int    // rows that may still be added
	bytes     int    // the batch is full at this number of bytes
	keys      []byte // keys of the added rows, concatenated
	ends      []int  // the end of each key in keys
	passed    []byte // the key of the last row that was skipped
	prev      string // the key before the first row
	limit     int    // row limit of the query; its last row is checked but not added
	offered   int    // rows that the query has returned
	err       error  // why the query ended early
	duplicate bool   // it ended because a row has the same key as the row that was added last
	more      bool   // it ended because the batch is full
}

// last returns the key of the row that was added last. If there is none, it returns f.prev, the key
// before the first row. The method add uses it to check the order of the rows.
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

// add adds the next row of the query, which has the given key. The function values adds the row's
// values to f.maker. add skips a row that is handed out as a late row. It returns false if the
// query must end: the batch is full, an error has occurred, or the query has returned f.limit rows.
func (f *filling) add(key []byte, values func()) (more bool) {
	r := f.part.relation
	f.offered++
	last := f.last()
	if string(f.passed) > string(last) {
		last = f.passed
	}
	if len(last) > 0 && string(key) <= string(last) {
		if string(key) == string(last) {
			f.duplicate = string(key) == string(f.last())
			f.err = fmt.Errorf("two rows of %s have the same position (%s): the columns of "+
				"`order_by` are not unique together; add one", r.name, r.keys.show(string(key)))
		} else {
			f.err = orderError(r, string(key))
		}
		return false
	}
	if len(key) > maxKeyBytes {
		f.err = fmt.Errorf("a position in %s is longer than %d bytes (%.60s...): order by "+
			"shorter columns",
			r.name, maxKeyBytes, r.keys.show(string(key)))
		return false
	}
	if f.records <= 0 || f.maker.size() >= f.bytes {
		f.more = true
		return false
	}
	if f.offered == f.limit {
		return false
	}
	if f.part.isLate(key) {
		f.passed = append(f.passed[:0], key...)
		return true
	}
	f.records--
	f.keys = append(f.keys, key...)
	f.ends = append(f.ends, len(f.keys))
	f.maker.row()
	values()
	f.maker.end(f.part.span)
	return true
}

// orderError returns an error about a row with the given key, which follows a row with a greater
// key.
func orderError(r *relation, key string) error {
	return fmt.Errorf("%s returns its rows in another order than by the values of (%s): order by "+
		"columns that compare byte by byte", r.name, r.keys.show(key))
}
