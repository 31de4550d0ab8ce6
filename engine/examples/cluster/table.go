package main

import (
	"context"
	"database/sql"
	"fmt"
	"time"

	_ "github.com/jackc/pgx/v5/stdlib"
	_ "modernc.org/sqlite"
)

// table is the table "orders" of a database.
type table struct{ *sql.DB }

// openTable creates the table. It also returns the sink for the table as YAML.
func openTable(file, postgres string) (t *table, sink string, err error) {
	driver, dsn := "pgx", postgres
	sink = fmt.Sprintf("{ postgres: { url: %q, table: orders } }", postgres)
	create := "DROP TABLE IF EXISTS orders; CREATE TABLE orders (message TEXT)"
	if postgres == "" {
		driver, dsn = "sqlite", "file:"+file+"?_pragma=busy_timeout(10000)"
		sink = fmt.Sprintf("{ sqlite: { path: %q, table: orders } }", file)
		create = "PRAGMA journal_mode = WAL; CREATE TABLE orders (message TEXT)"
	}
	db, err := sql.Open(driver, dsn)
	if err != nil {
		return nil, "", err
	}
	if _, err := db.Exec(create); err != nil {
		db.Close()
		return nil, "", err
	}
	return &table{db}, sink, nil
}

func (t *table) number(ctx context.Context, query string) (n int, err error) {
	return n, t.QueryRowContext(ctx, query).Scan(&n)
}

func (t *table) count(ctx context.Context) (int, error) {
	return t.number(ctx, "SELECT count(*) FROM orders")
}

func (t *table) distinct(ctx context.Context) (int, error) {
	return t.number(ctx, "SELECT count(DISTINCT message) FROM orders")
}

// more waits until the table has more than before rows, and returns the number of rows.
func (t *table) more(ctx context.Context, before int) (int, error) {
	ctx, cancel := context.WithTimeout(ctx, longest)
	defer cancel()
	for {
		n, err := t.count(ctx)
		if err != nil || n > before {
			return n, err
		}
		select {
		case <-time.After(50 * time.Millisecond):
		case <-ctx.Done():
			return n, fmt.Errorf("no more than %d rows within %v", before, longest)
		}
	}
}
