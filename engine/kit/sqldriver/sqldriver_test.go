package sqldriver_test

import (
	"context"
	"database/sql/driver"
	"errors"
	"io"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/penstock-io/penstock/engine/kit/sqldriver"
)

var errBroken = errors.New("broken")

// counter is a connection that answers every query with one row for each of the numbers from 1 to
// rows, and records the arguments.
type counter struct {
	rows   int
	fails  int // number of the row that cannot be read, from 1; 0 means none
	args   []driver.NamedValue
	open   int // answers that were not closed
	closed int // of the connection
}

func (c *counter) Prepare(string) (driver.Stmt, error) { return nil, errBroken }
func (c *counter) Begin() (driver.Tx, error)           { return nil, errBroken }
func (c *counter) Close() error                        { c.closed++; return nil }

func (c *counter) ExecContext(_ context.Context, _ string,
	args []driver.NamedValue) (driver.Result, error) {
	c.args = args
	return driver.RowsAffected(c.rows), nil
}

func (c *counter) QueryContext(_ context.Context, _ string,
	args []driver.NamedValue) (driver.Rows, error) {
	c.args = args
	c.open++
	return &answer{counter: c}, nil
}

type answer struct {
	*counter
	next int
}

func (a *answer) Columns() []string { return []string{"n"} }
func (a *answer) Close() error      { a.open--; return nil }

func (a *answer) Next(v []driver.Value) error {
	if a.next == a.rows {
		return io.EOF
	}
	if a.next++; a.next == a.fails {
		return errBroken
	}
	v[0] = int64(a.next)
	return nil
}

// TestQuery checks that Query passes on rows until the last one, an error, or false from the
// callback. The result is closed in each case.
func TestQuery(t *testing.T) {
	for _, c := range []struct {
		rows, fails, enough int
		head                error
		want                []int64
		err                 error
	}{
		{rows: 3, want: []int64{1, 2, 3}},
		{rows: 0},
		{rows: 3, enough: 2, want: []int64{1, 2}},
		{rows: 3, fails: 2, want: []int64{1}, err: errBroken},
		{rows: 3, head: errBroken, err: errBroken},
	} {
		conn := &counter{rows: c.rows, fails: c.fails}
		var got []int64
		err := sqldriver.Query(t.Context(), conn, func(r driver.Rows) error {
			if len(r.Columns()) != 1 {
				t.Errorf("columns %q", r.Columns())
			}
			return c.head
		}, func(v []driver.Value) (bool, error) {
			got = append(got, v[0].(int64))
			return len(got) != c.enough, nil
		}, "SELECT", "a", int64(2))
		if !errors.Is(err, c.err) || !slices.Equal(got, c.want) || conn.open != 0 {
			t.Errorf("%+v: rows %v, %v; %d answers left open", c, got, err, conn.open)
		}
		if want := []driver.NamedValue{{Ordinal: 1, Value: "a"},
			{Ordinal: 2, Value: int64(2)}}; !slices.Equal(conn.args, want) {
			t.Errorf("arguments %v, want %v", conn.args, want)
		}
	}
}

// TestRowError checks that an error of the callback ends the iteration.
func TestRowError(t *testing.T) {
	conn, n := &counter{rows: 3}, 0
	err := sqldriver.Query(t.Context(), conn, nil, func([]driver.Value) (more bool, err error) {
		if n++; n == 2 {
			return true, errBroken
		}
		return true, nil
	}, "SELECT")
	if !errors.Is(err, errBroken) || n != 2 || conn.open != 0 {
		t.Errorf("%d rows, %v; %d answers left open", n, err, conn.open)
	}
	if affected, err := sqldriver.Exec(t.Context(), conn, "DELETE"); affected != 3 || err != nil {
		t.Errorf("Exec: %d, %v", affected, err)
	}
}

// plain is a connection that can only prepare.
type plain struct{ driver.Conn }

func TestDirect(t *testing.T) {
	conn := &counter{}
	if c, err := sqldriver.Direct(conn); c != sqldriver.Conn(conn) || err != nil {
		t.Errorf("Direct: %v, %v", c, err)
	}
	c, err := sqldriver.Direct(plain{conn})
	if c != nil || err == nil || !strings.Contains(err.Error(), "QueryContext") ||
		conn.closed != 1 {
		t.Errorf("Direct of one that can only prepare: %v, %v; closed %d times, want 1", c, err,
			conn.closed)
	}
}

func TestText(t *testing.T) {
	at := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	for _, c := range []struct {
		v    driver.Value
		want string
	}{{nil, ""}, {[]byte("a"), "a"}, {"b", "b"}, {int64(-3), "-3"}, {true, "true"},
		{at, at.String()}} {
		if got := sqldriver.Text(c.v); got != c.want {
			t.Errorf("Text(%v) = %q, want %q", c.v, got, c.want)
		}
	}
}
