package sqlstore_test

import (
	"context"
	"database/sql"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"

	"github.com/penstock-io/penstock/engine/inbox/sqlstore"
	"github.com/penstock-io/penstock/inbox"
)

// A shop marks orders as paid. A notification that comes twice changes the order once.
func Example() {
	if err := shop(); err != nil {
		fmt.Println(err)
	}
	// Output:
	// 200 success
	// 200 success
	// order A-7 was paid 1 times
}

func shop() error {
	dir, err := os.MkdirTemp("", "shop")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	db, err := sql.Open("sqlite",
		"file:"+filepath.Join(dir, "shop.db")+"?_pragma=busy_timeout(5000)")
	if err != nil {
		return err
	}
	defer db.Close()
	if _, err := db.Exec(
		`CREATE TABLE orders (id text, paid int); INSERT INTO orders VALUES ('A-7', 0)`); err != nil {
		return err
	}
	store, err := sqlstore.SQLite(db, sqlstore.Options{})
	if err != nil {
		return err
	}
	if err := store.Create(context.Background()); err != nil {
		return err
	}
	in, err := inbox.New(inbox.Options[*sql.Tx]{
		Verifier: &inbox.HMAC{Header: "X-Signature", Secrets: []string{"Jefe"}},
		Store:    store,
		Key:      func(m inbox.Message) (string, error) { return string(m.Body), nil },
		Change: func(ctx context.Context, tx *sql.Tx, m inbox.Message) error {
			_, err := tx.ExecContext(ctx, `UPDATE orders SET paid = paid + 1 WHERE id = $1`,
				string(m.Body))
			return err
		},
	})
	if err != nil {
		return err
	}
	for range 2 {
		r := httptest.NewRequest(http.MethodPost, "/paid", strings.NewReader("A-7"))
		r.Header.Set("X-Signature", sign("A-7"))
		w := httptest.NewRecorder()
		in.ServeHTTP(w, r)
		fmt.Println(w.Code, w.Body)
	}
	var paid int
	if err := db.QueryRow(`SELECT paid FROM orders WHERE id = 'A-7'`).Scan(&paid); err != nil {
		return err
	}
	fmt.Printf("order A-7 was paid %d times\n", paid)
	return nil
}
