package endtoend

import (
	"bytes"
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	_ "modernc.org/sqlite"

	"github.com/penstock-io/penstock/engine/inbox/sqlstore"
	"github.com/penstock-io/penstock/inbox"
)

// merchant refuses the first two attempts of each order. It passes later attempts to an inbox,
// which books each order once.
type merchant struct {
	inbox http.Handler
	db    *sql.DB

	mu       sync.Mutex // guards the fields below
	arrived  map[string]int
	accepted map[string]bool
	keys     map[string]string // Idempotency-Key by order
}

const merchantSecret = "whsec_b2xkIHNlY3JldA=="

func newMerchant(t *testing.T, dir string) *merchant {
	t.Helper()
	pragmas := url.Values{"_pragma": {"busy_timeout(60000)", "synchronous(off)"}}
	db, err := sql.Open("sqlite", "file:"+filepath.Join(dir, "shop.db")+"?"+pragmas.Encode())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	if _, err := db.ExecContext(t.Context(), `CREATE TABLE booked (id text)`); err != nil {
		t.Fatal(err)
	}
	store, err := sqlstore.SQLite(db, sqlstore.Options{})
	if err == nil {
		err = store.Create(t.Context())
	}
	if err != nil {
		t.Fatal(err)
	}
	verifier, err := inbox.NewStandardWebhooks(0, merchantSecret)
	if err != nil {
		t.Fatal(err)
	}
	in, err := inbox.New(inbox.Options[*sql.Tx]{
		Verifier: verifier, Store: store,
		Change: func(ctx context.Context, tx *sql.Tx, m inbox.Message) error {
			_, err := tx.ExecContext(ctx, `INSERT INTO booked VALUES ($1)`, string(m.Body))
			return err
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	return &merchant{
		inbox: in, db: db,
		arrived: map[string]int{}, accepted: map[string]bool{}, keys: map[string]string{},
	}
}

// ServeHTTP implements http.Handler.
func (m *merchant) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	order := strings.TrimPrefix(r.URL.Path, "/")
	m.mu.Lock()
	m.arrived[order]++
	n := m.arrived[order]
	m.keys[order] = r.Header.Get("Idempotency-Key")
	m.mu.Unlock()
	if n < 3 {
		_, _ = io.Copy(io.Discard, r.Body) // the sender may be killed
		_, _ = io.WriteString(w, "fail")
		return
	}
	m.inbox.ServeHTTP(w, r)
	var booked int
	row := m.db.QueryRowContext(context.Background(), `SELECT count(*) FROM booked WHERE id = $1`,
		order)
	if err := row.Scan(&booked); err == nil && booked > 0 {
		m.mu.Lock()
		m.accepted[order] = true
		m.mu.Unlock()
	}
}

func (m *merchant) count() (accepted int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return len(m.accepted)
}

// checkBooked checks that each order was booked once.
func (m *merchant) checkBooked(t *testing.T, orders int) {
	t.Helper()
	var rows, distinct int
	row := m.db.QueryRowContext(t.Context(), `SELECT count(*), count(DISTINCT id) FROM booked`)
	if err := row.Scan(&rows, &distinct); err != nil {
		t.Fatal(err)
	}
	if rows != orders || distinct != orders {
		t.Errorf("%d bookings of %d orders, want each of %d once", rows, distinct, orders)
	}
}

// TestKillParked kills the program while deliveries are parked: they are stored until their next
// attempt is due. No delivery may be lost or sent early, and each order must be booked once. An
// accepted delivery may be sent again only if it was in flight at a kill. There are 3 kills, or the
// number in PENSTOCK_KILLS.
func TestKillParked(t *testing.T) {
	t.Parallel()
	const each = 60 // orders that arrive before each start
	planned := 3
	if os.Getenv("PENSTOCK_KILLS") != "" {
		planned = kills(t)
	}
	orders := (planned + 1) * each
	waits := []time.Duration{1200 * time.Millisecond, 1300 * time.Millisecond}
	dir := t.TempDir()
	m := newMerchant(t, dir)
	server := httptest.NewServer(m)
	defer server.Close()
	config := parkedConfig(t, dir, server.URL)
	k := &killed{t: t, config: config, feed: func() {}}
	defer k.kill()
	deadline := time.Now().Add(60*time.Second + time.Duration(planned)*5*time.Second)
	for round := range planned + 1 {
		var lines strings.Builder
		for n := range each {
			fmt.Fprintf(&lines, "order-%d\n", round*each+n)
		}
		write(t, filepath.Join(dir, "in", fmt.Sprintf("%03d.log", round)), lines.String())
		k.start()
		until := time.Now().Add(time.Duration(150+97*(round%8)) * time.Millisecond)
		for time.Now().Before(until) || round == planned && m.count() < orders {
			if time.Now().After(deadline) {
				t.Fatalf("%d of %d orders were accepted\n%s", m.count(), orders, k.errs.String())
			}
			k.step()
		}
		if round < planned {
			k.kill()
		}
	}
	k.drain()
	checkParked(t, m, config, waits, planned, orders)
	checkStats(t, config, orders)
	m.checkBooked(t, orders)
}

func parkedConfig(t *testing.T, dir, target string) string {
	t.Helper()
	u, err := url.Parse(target)
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, "penstock.yaml")
	text := fmt.Sprintf(`state: %s
pipelines:
  paid:
    source: {spool_dir: {path: %s, include: ["*.log"], finished: rename}}
    sink:
      http:
        url: '"%s/" + message'
        idempotency_key: message
        allow: {hosts: [%s], ports: [%s], http: true, private: true}
        accept: body == "success"
        schedule: [1200ms, 1300ms, 3s, 3s, 3s, 1h]
        sign: {standard_webhooks: {secrets: [%s]}}
`, filepath.Join(dir, "state"), filepath.Join(dir, "in"), target, u.Hostname(), u.Port(), merchantSecret)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// perHost is the sink's default limit of concurrent attempts to one host.
const perHost = 16

// checkParked compares the histories of the deliveries with the requests that have arrived. A
// request that is in no history was in flight at a kill.
func checkParked(t *testing.T, m *merchant, config string, waits []time.Duration, kills,
	orders int) {
	t.Helper()
	args := []string{"parked", "show", "--json", config}
	for n := range orders {
		args = append(args, fmt.Sprintf("order-%d", n))
	}
	decode := json.NewDecoder(bytes.NewReader(runProgram(t, args...)))
	repeated := 0
	for n := range orders {
		var d struct {
			Key, State string
			Parked     time.Time `json:"parked_at"`
			History    []struct {
				At     time.Time
				Event  string
				Detail string
			}
		}
		if err := decode.Decode(&d); err != nil {
			t.Fatal(err)
		}
		arrived, planned := m.arrived[d.Key], d.Parked
		if d.Key != fmt.Sprintf("order-%d", n) || m.keys[d.Key] != d.Key || d.State != "done" {
			t.Errorf("delivery %d is %+v, and the receiver got the key %q", n, d, m.keys[d.Key])
		}
		for i, e := range d.History {
			if i > 0 && i <= len(waits) {
				planned = planned.Add(waits[i-1])
			}
			if e.Event != "refuse" && e.Event != "accept" || e.At.Before(planned) {
				t.Errorf("%s: entry %d is %+v, planned for %v", d.Key, i+1, e, planned)
			}
		}
		if arrived < len(d.History) || arrived > len(d.History)+kills {
			t.Errorf("%s has %d entries, and %d requests arrived", d.Key, len(d.History), arrived)
		}
		repeated += arrived - len(d.History)
	}
	if repeated > kills*perHost {
		t.Errorf("%d attempts were repeated; at most %d were in flight at the kills", repeated,
			kills*perHost)
	}
	t.Logf("%d orders, %d kills: none lost, none early, %d attempts repeated", orders, kills,
		repeated)
}

// runProgram runs a command and returns its standard output.
func runProgram(t *testing.T, args ...string) []byte {
	t.Helper()
	bin, err := program()
	if err != nil {
		t.Fatal(err)
	}
	out, err := exec.Command(bin, args...).Output()
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// checkStats compares `penstock parked stats` with the orders.
func checkStats(t *testing.T, config string, orders int) {
	t.Helper()
	out := runProgram(t, "parked", "stats", "--json", config)
	var stats struct{ Parked, Done, Dead, Cancelled int }
	if err := json.NewDecoder(bytes.NewReader(out)).Decode(&stats); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	if stats.Done != orders || stats.Parked+stats.Dead+stats.Cancelled != 0 {
		t.Errorf("parked stats %+v, want %d done", stats, orders)
	}
}
