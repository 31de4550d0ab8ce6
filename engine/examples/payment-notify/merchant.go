package main

import (
	"context"
	"database/sql"
	"encoding/base64"
	"encoding/json"
	"fmt"
	nethttp "net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/penstock-io/penstock/engine/inbox/sqlstore"
	"github.com/penstock-io/penstock/inbox"
)

// unknownOrder is the id of a paid order that the merchant does not have. The merchant rejects the
// notification.
const unknownOrder = "well-unknown"

// merchant is a shop with a database and a server.
type merchant struct {
	name   string
	orders int
	secret string
	server *httptest.Server
	db     *sql.DB
	inbox  *inbox.Inbox[*sql.Tx]
	behave func(m *merchant, w nethttp.ResponseWriter, r *nethttp.Request)

	mu       sync.Mutex // guards the fields below
	since    time.Time  // time of the first request
	requests int
	lost     bool // a response has been lost
}

// openMerchants starts the three merchants.
func openMerchants(dir string) ([]*merchant, error) {
	merchants := []*merchant{
		{name: "well", orders: 12, behave: loseOneResponse},
		{name: "slow", orders: 4, behave: answerLate},
		{name: "dead", orders: 2, behave: dieForAnHour},
	}
	for _, m := range merchants {
		m.secret = "whsec_" + base64.StdEncoding.EncodeToString([]byte("the secret of "+m.name))
		if err := m.open(dir); err != nil {
			return nil, fmt.Errorf("merchant %s: %w", m.name, err)
		}
	}
	return merchants, nil
}

func (m *merchant) open(dir string) error {
	query := url.Values{"_pragma": {"busy_timeout(60000)"}}
	db, err := sql.Open("sqlite", "file:"+filepath.Join(dir, m.name+".db")+"?"+query.Encode())
	if err != nil {
		return err
	}
	m.db = db
	if _, err := db.Exec(`CREATE TABLE paid (id TEXT, amount TEXT)`); err != nil {
		return err
	}
	store, err := sqlstore.SQLite(db, sqlstore.Options{})
	if err != nil {
		return err
	}
	if err := store.Create(context.Background()); err != nil {
		return err
	}
	verifier, err := inbox.NewStandardWebhooks(0, m.secret)
	if err != nil {
		return err
	}
	m.inbox, err = inbox.New(inbox.Options[*sql.Tx]{Verifier: verifier, Store: store, Change: book})
	if err != nil {
		return err
	}
	m.server = httptest.NewServer(m)
	return nil
}

// close stops the server and closes the database.
func (m *merchant) close() error {
	m.server.Close()
	return m.db.Close()
}

func (m *merchant) port() string {
	u, err := url.Parse(m.server.URL)
	if err != nil {
		return ""
	}
	return u.Port()
}

// book carries out a notification: it books the order in the merchant's database.
func book(ctx context.Context, tx *sql.Tx, msg inbox.Message) error {
	var o struct {
		ID     string `json:"id"`
		Amount string `json:"amount"`
	}
	if err := json.Unmarshal(msg.Body, &o); err != nil {
		return fmt.Errorf("%w: %w", inbox.ErrRejected, err)
	}
	if o.ID == unknownOrder {
		return fmt.Errorf("%w: no order %s", inbox.ErrRejected, o.ID)
	}
	_, err := tx.ExecContext(ctx, `INSERT INTO paid VALUES ($1, $2)`, o.ID, o.Amount)
	return err
}

// ServeHTTP implements http.Handler.
func (m *merchant) ServeHTTP(w nethttp.ResponseWriter, r *nethttp.Request) {
	m.mu.Lock()
	m.requests++
	if m.since.IsZero() {
		m.since = time.Now()
	}
	m.mu.Unlock()
	m.behave(m, w, r)
}

// loseOneResponse books the order well-1, but breaks the connection instead of sending the first
// response. All other requests get their responses.
func loseOneResponse(m *merchant, w nethttp.ResponseWriter, r *nethttp.Request) {
	if r.Header.Get("Idempotency-Key") != "well-1" {
		m.inbox.ServeHTTP(w, r)
		return
	}
	m.mu.Lock()
	first := !m.lost
	m.lost = true
	m.mu.Unlock()
	if !first {
		m.inbox.ServeHTTP(w, r)
		return
	}
	m.inbox.ServeHTTP(httptest.NewRecorder(), r)
	panic(nethttp.ErrAbortHandler)
}

// answerLate responds after 20 minutes of the schedule.
func answerLate(m *merchant, w nethttp.ResponseWriter, r *nethttp.Request) {
	time.Sleep(compressed(20 * time.Minute))
	m.inbox.ServeHTTP(w, r)
}

// dieForAnHour breaks all connections for an hour of the schedule after the first request.
func dieForAnHour(m *merchant, w nethttp.ResponseWriter, r *nethttp.Request) {
	m.mu.Lock()
	dead := time.Since(m.since) < compressed(time.Hour)
	m.mu.Unlock()
	if dead {
		panic(nethttp.ErrAbortHandler)
	}
	m.inbox.ServeHTTP(w, r)
}

// booked returns the number of rows in the table paid and the number of distinct orders.
func (m *merchant) booked() (rows, orders int, err error) {
	err = m.db.QueryRow(`SELECT count(*), count(DISTINCT id) FROM paid`).Scan(&rows, &orders)
	return rows, orders, err
}

// received returns the number of requests so far.
func (m *merchant) received() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.requests
}

// writeKeys writes the file with the secrets that penstock uses for signatures.
func writeKeys(path string, merchants []*merchant) error {
	keys := map[string][]string{}
	for _, m := range merchants {
		keys[m.name] = []string{m.secret}
	}
	text, err := json.Marshal(keys)
	if err != nil {
		return err
	}
	return os.WriteFile(path, text, 0o600)
}
