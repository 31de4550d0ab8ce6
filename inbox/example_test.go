package inbox_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"

	"github.com/penstock-io/penstock/inbox"
)

// A payment provider notifies a shop of payments, and the shop books them. The provider repeats a
// notification until it reads "success". With a database, Store is a store of
// engine/inbox/sqlstore, and Change uses the *sql.Tx that it gets.
func Example() {
	type payment struct {
		Order  string `json:"order"`
		Amount int    `json:"amount"`
	}
	total := 0
	in, err := inbox.New(inbox.Options[struct{}]{
		Verifier: &inbox.HMAC{Header: "X-Signature", Secrets: []string{"Jefe"}},
		Store:    new(inbox.Memory),
		Key: func(m inbox.Message) (string, error) {
			var p payment
			err := json.Unmarshal(m.Body, &p)
			return p.Order, err
		},
		Change: func(_ context.Context, _ struct{}, m inbox.Message) error {
			var p payment
			if err := json.Unmarshal(m.Body, &p); err != nil {
				return fmt.Errorf("%w: %w", inbox.ErrRejected, err)
			}
			total += p.Amount
			return nil
		},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	notify := func(body, signature string) {
		r := httptest.NewRequest(http.MethodPost, "/paid", strings.NewReader(body))
		r.Header.Set("X-Signature", signature)
		w := httptest.NewRecorder()
		in.ServeHTTP(w, r)
		fmt.Println(w.Code, strings.TrimSpace(w.Body.String()), total)
	}
	const body = `{"order":"A-7","amount":250}`
	const signature = "b85538b80d6978f37bbf9e4ea1cd19152208b388ffa77e7d9e6e7e22449b67ad"
	notify(body, signature)
	notify(body, signature) // the first answer was lost
	notify(strings.Replace(body, "250", "999", 1), signature)

	// Output:
	// 200 success 250
	// 200 success 250
	// 401 Unauthorized 250
}
