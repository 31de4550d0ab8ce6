package notify

import (
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"hash/fnv"
	nethttp "net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/penstock-io/penstock/engine/inbox/sqlstore"
	"github.com/penstock-io/penstock/inbox"
	"github.com/penstock-io/penstock/stream"
)

const oldSecret, newSecret = "whsec_b2xkIHNlY3JldA==", "whsec_bmV3IHNlY3JldA=="

// shop is a merchant that receives with package inbox. It records each order in SQLite.
type shop struct {
	t  *testing.T
	db *sql.DB

	mu        sync.Mutex // guards the fields below
	handler   nethttp.Handler
	statuses  map[int]int // number of responses by status, including lost ones
	successes int         // responses with the body "success", including lost ones
}

func newShop(t *testing.T, dir string, v inbox.Verifier) *shop {
	t.Helper()
	query := url.Values{"_pragma": {"busy_timeout(60000)", "synchronous(off)"}}
	db, err := sql.Open("sqlite", "file:"+filepath.Join(dir, "shop.db")+"?"+query.Encode())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := db.ExecContext(t.Context(), `CREATE TABLE booked (order_line text)`); err != nil {
		t.Fatal(err)
	}
	s := &shop{t: t, db: db, statuses: map[int]int{}}
	s.verifyWith(v)
	return s
}

func (s *shop) close() {
	if err := s.db.Close(); err != nil {
		s.t.Error(err)
	}
}

// verifyWith replaces the verifier, like a restart of the shop with other secrets.
func (s *shop) verifyWith(v inbox.Verifier) {
	s.t.Helper()
	store, err := sqlstore.SQLite(s.db, sqlstore.Options{})
	if err != nil {
		s.t.Fatal(err)
	}
	if err := store.Create(s.t.Context()); err != nil {
		s.t.Fatal(err)
	}
	in, err := inbox.New(inbox.Options[*sql.Tx]{
		Verifier: v, Store: store,
		Key: func(m inbox.Message) (string, error) { return string(m.Body), nil },
		Change: func(ctx context.Context, tx *sql.Tx, m inbox.Message) error {
			_, err := tx.ExecContext(ctx, `INSERT INTO booked VALUES ($1)`, string(m.Body))
			return err
		},
	})
	if err != nil {
		s.t.Fatal(err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.handler = in
}

// receive handles a request and returns the response.
func (s *shop) receive(r *nethttp.Request, _ int) (status int, body string, takes time.Duration) {
	s.mu.Lock()
	handler := s.handler
	s.mu.Unlock()
	w := httptest.NewRecorder()
	handler.ServeHTTP(w, r.Clone(context.Background())) // it finishes even if the sender gives up
	s.mu.Lock()
	defer s.mu.Unlock()
	s.statuses[w.Code]++
	if w.Body.String() == "success" {
		s.successes++
	}
	return w.Code, w.Body.String(), 0
}

func (s *shop) count(query string) (n int) {
	s.t.Helper()
	if err := s.db.QueryRow(query).Scan(&n); err != nil {
		s.t.Error(err)
	}
	return n
}

// wants checks that all orders were booked once each, and the number of refused requests.
func (s *shop) wants(orders, refused int) {
	s.t.Helper()
	rows := s.count(`SELECT count(*) FROM booked`)
	distinct := s.count(`SELECT count(DISTINCT order_line) FROM booked`)
	if rows != orders || distinct != orders {
		s.t.Errorf("the shop has %d rows of %d orders, want each of %d once",
			rows, distinct, orders)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if got := s.statuses[nethttp.StatusUnauthorized]; got != refused {
		s.t.Errorf("%d requests were answered with 401, want %d; statuses %v",
			got, refused, s.statuses)
	}
}

func webhooks(t *testing.T, secrets ...string) inbox.Verifier {
	t.Helper()
	v, err := inbox.NewStandardWebhooks(0, secrets...)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

// TestInboxVerifies checks each kind of signature with an order. Package inbox accepts the
// signature with the same secret and refuses all others.
func TestInboxVerifies(t *testing.T) {
	t.Parallel()
	standard := func(secrets ...string) Sign {
		return Sign{Webhooks: Webhooks{Secrets: secrets}}
	}
	hmacOf := func(secret, algorithm string) Sign {
		const header, prefix = "X-Signature", "sig="
		return Sign{HMAC: HMAC{header, prefix, secret, algorithm}}
	}
	verify := func(a inbox.Algorithm) inbox.Verifier {
		return &inbox.HMAC{
			Header: "X-Signature", Prefix: "sig=", Algorithm: a, Secrets: []string{"Jefe"},
		}
	}
	for name, c := range map[string]struct {
		sign     Sign
		verifier inbox.Verifier
		accepted bool
	}{
		"standard webhooks":               {standard(oldSecret), webhooks(t, oldSecret), true},
		"standard webhooks, other secret": {standard(newSecret), webhooks(t, oldSecret), false},
		"not signed":                      {DefaultOptions().Sign, webhooks(t, oldSecret), false},
		"sha256":                          {hmacOf("Jefe", "sha256"), verify(inbox.SHA256), true},
		"sha512":                          {hmacOf("Jefe", "sha512"), verify(inbox.SHA512), true},
		"sha1":                            {hmacOf("Jefe", "sha1"), verify(inbox.SHA1), true},
		"sha256, other secret":            {hmacOf("Jeff", "sha256"), verify(inbox.SHA256), false},
		"sha256, taken for sha512":        {hmacOf("Jefe", "sha256"), verify(inbox.SHA512), false},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, dir string) {
				s := newShop(t, dir, c.verifier)
				defer s.close()
				o := options()
				o.Sign, o.Schedule.List = c.sign, []time.Duration{time.Minute}
				f := newFixture(t, dir, o, newMerchants(s.receive), false)
				defer f.stop()
				if err := f.deliver("m1 order-1"); err != nil {
					t.Fatal(err)
				}
				time.Sleep(time.Hour)
				synctest.Wait()
				want, orders, refused := stream.ParkedCounts{Dead: 1}, 0, 2
				if c.accepted {
					want, orders, refused = stream.ParkedCounts{Delivered: 1}, 1, 0
				}
				s.wants(orders, refused)
				if got := f.Parked(); got != want {
					t.Errorf("counts %+v, want %+v", got, want)
				}
			})
		})
	}
}

// TestInboxRotation checks that a secret can be replaced at run time without a refused request.
// With Standard Webhooks, the sender signs with both secrets before the receiver drops the old one.
// A generic HMAC has one signature, so the receiver accepts both secrets first.
func TestInboxRotation(t *testing.T) {
	standard := func(secrets ...string) inbox.Verifier { return webhooks(t, secrets...) }
	simple := func(secrets ...string) inbox.Verifier {
		return &inbox.HMAC{Header: "X-Signature", Secrets: secrets}
	}
	for name, c := range map[string]struct {
		sign     Sign
		verifier func(secrets ...string) inbox.Verifier
		steps    []step
	}{
		"standard webhooks": {Sign{Webhooks: Webhooks{On: true}}, standard, []step{
			{sender: []string{newSecret, oldSecret}}, {receiver: []string{newSecret}},
			{sender: []string{newSecret}},
		}},
		"hmac": {Sign{HMAC: HMAC{Header: "X-Signature", Algorithm: "sha256"}}, simple, []step{
			{receiver: []string{newSecret, oldSecret}}, {sender: []string{newSecret, oldSecret}},
			{receiver: []string{newSecret}}, {sender: []string{newSecret}},
		}},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, dir string) {
				rotate(t, dir, c.sign, c.verifier, c.steps)
			})
		})
	}
}

// step sets new secrets for the sender or the receiver.
type step struct{ sender, receiver []string }

// rotate changes the secrets of sender and receiver step by step. It delivers an order before the
// first step and after each step. Finally it gives the receiver the old secret again, so that the
// receiver must refuse the last order.
func rotate(
	t *testing.T, dir string, sign Sign, verifier func(...string) inbox.Verifier, steps []step,
) {
	keys := filepath.Join(dir, "keys.json")
	write := func(secrets ...string) {
		text, err := json.Marshal(map[string][]string{"m1": secrets})
		if err == nil {
			err = os.WriteFile(keys, text, 0o600)
		}
		if err == nil {
			err = os.Chtimes(keys, time.Now(), time.Now())
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	write(oldSecret)
	s := newShop(t, dir, verifier(oldSecret))
	defer s.close()
	o := options()
	sign.KeysFile, sign.Key = keys, `split(message, " ")[0]`
	o.Sign = sign
	f := newFixture(t, dir, o, newMerchants(s.receive), false)
	defer f.stop()
	deliver := func(n int) {
		if err := f.deliver(fmt.Sprintf("m1 order-%d", n)); err != nil {
			t.Fatal(err)
		}
		time.Sleep(10 * time.Second) // before a second attempt
		synctest.Wait()
	}
	deliver(0)
	for n, step := range steps {
		if step.sender != nil {
			write(step.sender...)
		}
		if step.receiver != nil {
			s.verifyWith(verifier(step.receiver...))
		}
		deliver(n + 1)
		s.wants(n+2, 0)
	}
	s.verifyWith(verifier(oldSecret))
	deliver(len(steps) + 1)
	s.wants(len(steps)+1, 1)
}

// TestInboxOnce loses requests and responses, and stops the sender in the middle. It checks that
// each order is booked once and each delivery ends as done.
func TestInboxOnce(t *testing.T) {
	const hosts, orders = 3, 60
	bubble(t, func(t *testing.T, dir string) {
		s := newShop(t, dir, webhooks(t, oldSecret))
		defer s.close()
		var mu sync.Mutex
		lost := map[string]int{}
		m := newMerchants(func(r *nethttp.Request, n int) (int, string, time.Duration) {
			mode := "none"
			if n < 3 {
				h := fnv.New32a()
				fmt.Fprint(h, r.URL.Path, n)
				mode = []string{"request", "response", "half", "late", "none"}[h.Sum32()%5]
			}
			mu.Lock()
			lost[mode]++
			mu.Unlock()
			if mode == "request" {
				return 0, "", 0
			}
			status, body, _ := s.receive(r, n)
			switch mode {
			case "response":
				return 0, "", 0
			case "half":
				return status, body[:len(body)/2], 0
			case "late":
				return status, body, time.Minute
			}
			return status, body, 0
		})
		o := options()
		o.Sign = Sign{Webhooks: Webhooks{Secrets: []string{newSecret, oldSecret}}}
		f := newFixture(t, dir, o, m, false)
		var lines []string
		for n := range orders {
			lines = append(lines, fmt.Sprintf("m%d order-%d", n%hosts, n))
		}
		if err := f.deliver(lines...); err != nil {
			t.Fatal(err)
		}
		time.Sleep(20 * time.Second) // some are done, others in flight or parked
		f.stop()
		f = newFixture(t, dir, o, m, false)
		defer f.stop()
		if err := f.deliver(lines...); err != nil { // read again: the checkpoint was behind
			t.Fatal(err)
		}
		time.Sleep(25 * time.Hour)
		synctest.Wait()
		s.wants(orders, 0)
		if got := f.Parked(); got != (stream.ParkedCounts{Delivered: orders}) {
			t.Errorf("counts %+v, dead letters %v", got, f.letters)
		}
		mu.Lock()
		defer mu.Unlock()
		for _, mode := range strings.Fields("request response half late") {
			if lost[mode] < 5 {
				t.Errorf("%d attempts of mode %s, too few for a test: %v", lost[mode], mode, lost)
			}
		}
		if again := lost["response"] + lost["half"] + lost["late"]; s.successes != orders+again {
			t.Errorf("%d requests were answered with success, want %d and %d lost responses",
				s.successes, orders, again)
		}
		if n := f.host.Counted("deliveries_repeated"); n != orders {
			t.Errorf("%d deliveries were recognized, want %d", n, orders)
		}
	})
}
