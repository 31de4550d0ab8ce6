// Command http-poll copies orders from an HTTP API to a SQLite table. A server in the same process
// acts as the API: it returns orders in pages, and sometimes responds with status 429 or 502. The
// program stops the engine before all orders are copied, and starts it again. At the end it checks
// that the table has each order exactly once.
//
//	go run ./engine/examples/http-poll
package main

import (
	"context"
	"database/sql"
	_ "embed"
	"fmt"
	"log/slog"
	nethttp "net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"

	_ "modernc.org/sqlite"

	"github.com/penstock-io/penstock/engine"
	"github.com/penstock-io/penstock/engine/connector/all"
)

//go:embed penstock.yaml
var config string

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "http-poll:", err)
		os.Exit(1)
	}
}

func run() error {
	dir, err := os.MkdirTemp("", "http-poll")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	api := &api{orders: 500}
	server := httptest.NewServer(api)
	defer server.Close()
	text := strings.NewReplacer("${DIR}", dir, "${API}", server.URL).Replace(config)

	ctx, stop := context.WithCancel(context.Background())
	api.at(15, stop)
	if err := follow(ctx, text, false); err != nil {
		return err
	}
	before, err := count(dir)
	if err != nil {
		return err
	}
	fmt.Printf("stopped in the middle: %d of %d orders are in the table\n", before.rows,
		api.total())

	api.add(100)
	if err := follow(context.Background(), text, true); err != nil {
		return err
	}
	after, err := count(dir)
	if err != nil {
		return err
	}
	fmt.Printf("resumed: %d orders, each once\n", after.rows)
	fmt.Printf("the API was asked %d times, failed %d and throttled %d of them\n", api.requests,
		api.failed, api.throttled)
	if after.rows != api.total() || after.distinct != api.total() {
		return fmt.Errorf("the table has %d rows of %d orders, want each of %d once", after.rows,
			after.distinct, api.total())
	}
	return nil
}

// follow runs the pipeline until ctx is done. If once is set, it ends when there is no new data.
func follow(ctx context.Context, config string, once bool) error {
	cfg, err := engine.Parse([]byte(config), all.Components()...)
	if err != nil {
		return err
	}
	e, err := engine.New(cfg, engine.Options{Once: once, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		return err
	}
	err = e.Run(ctx)
	if ctx.Err() != nil {
		return nil
	}
	return err
}

// counted has the number of rows in the table and the number of distinct orders.
type counted struct{ rows, distinct int }

func count(dir string) (c counted, err error) {
	db, err := sql.Open("sqlite", filepath.Join(dir, "orders.db"))
	if err != nil {
		return c, err
	}
	defer db.Close()
	err = db.QueryRow("SELECT count(*), count(DISTINCT id) FROM orders").Scan(&c.rows, &c.distinct)
	return c, err
}

// api is a server that returns orders in pages.
type api struct {
	mu                          sync.Mutex // guards the fields below
	orders                      int
	requests, failed, throttled int
	stopAt                      int
	stop                        func()
}

// at makes the server call the function stop when it receives its n-th request.
func (a *api) at(n int, stop func()) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.stopAt, a.stop = n, stop
}

func (a *api) add(n int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.orders += n
}

func (a *api) total() int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.orders
}

// ServeHTTP implements http.Handler.
func (a *api) ServeHTTP(w nethttp.ResponseWriter, r *nethttp.Request) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.requests++
	switch {
	case a.requests == a.stopAt:
		a.stop()
	case a.requests%7 == 3:
		a.failed++
		w.WriteHeader(nethttp.StatusBadGateway)
		return
	case a.requests%11 == 5:
		a.throttled++
		w.Header().Set("Retry-After", "0.05")
		w.WriteHeader(nethttp.StatusTooManyRequests)
		return
	}
	after, _ := strconv.Atoi(r.URL.Query().Get("after"))
	limit, _ := strconv.Atoi(r.URL.Query().Get("limit"))
	var page []string
	for id := after + 1; id <= min(after+limit, a.orders); id++ {
		page = append(page, fmt.Sprintf(`{"id":%d,"amount":%d.50}`, id, id%90))
	}
	next := "null"
	if after+limit < a.orders {
		next = strconv.Itoa(after + limit)
	}
	fmt.Fprintf(w, `{"data":[%s],"next":%s}`, strings.Join(page, ","), next)
}
