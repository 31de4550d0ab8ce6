package sqlstore_test

import (
	"bufio"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"database/sql"
	"encoding/hex"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/penstock-io/penstock/engine/inbox/sqlstore"
	"github.com/penstock-io/penstock/inbox"
	"github.com/penstock-io/penstock/retry"
)

// childDatabase is the name of an environment variable. If it is set, this test binary serves an
// inbox until it is killed. The value of the variable is the path of the database.
const childDatabase = "PENSTOCK_TEST_INBOX"

func TestMain(m *testing.M) {
	if path := os.Getenv(childDatabase); path != "" {
		fmt.Fprintln(os.Stderr, serve(path))
		os.Exit(1)
	}
	os.Exit(m.Run())
}

// serve answers notifications, and prints the address at which it does.
func serve(path string) error {
	db, err := sql.Open("sqlite", dataSource(path))
	if err != nil {
		return err
	}
	store, err := sqlstore.SQLite(db, sqlstore.Options{})
	if err != nil {
		return err
	}
	in, err := inbox.New(inbox.Options[*sql.Tx]{
		Verifier: &inbox.HMAC{Header: "X-Signature", Secrets: []string{"Jefe"}},
		Store:    store,
		Key:      func(m inbox.Message) (string, error) { return string(m.Body), nil },
		Change: func(ctx context.Context, tx *sql.Tx, m inbox.Message) error {
			if _, err := tx.ExecContext(ctx, `INSERT INTO payments VALUES ($1, 1)`,
				string(m.Body)); err != nil {
				return err
			}
			_, err := tx.ExecContext(ctx, `UPDATE account SET balance = balance + 1`)
			return err
		},
	})
	if err != nil {
		return err
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	fmt.Println(l.Addr())
	return http.Serve(l, in)
}

// TestKilled kills the receiver at random moments, while a sender repeats each notification until
// it reads "success". Each notification must be applied once, and no acknowledged notification may
// be lost.
func TestKilled(t *testing.T) {
	const kills, senders, seed = 12, 4, 3
	path := filepath.Join(t.TempDir(), "shop.db")
	db := openSQLite(t, path)
	s, err := sqlstore.SQLite(db, sqlstore.Options{})
	prepare(t, db, s, err)
	execute(t, db, `CREATE TABLE account (balance integer); INSERT INTO account VALUES (0)`)

	r := receiver{path: path, moved: make(chan struct{})}
	ctx, stop := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	var mu sync.Mutex // guards sent and answered
	sent, answered := 0, 0
	for n := range senders {
		wg.Go(func() {
			for i := 0; ctx.Err() == nil; i++ {
				body := fmt.Sprintf("order %d-%d", n, i)
				mu.Lock()
				sent++
				mu.Unlock()
				r.notify(t.Context(), t, body)
				mu.Lock()
				answered++
				mu.Unlock()
			}
		})
	}
	random := rand.New(rand.NewPCG(seed, 0))
	for range kills {
		r.start(t)
		mu.Lock()
		until := answered + 1 + random.IntN(20)
		mu.Unlock()
		for enough := false; !enough; {
			retry.Sleep(t.Context(), time.Duration(random.IntN(2000))*time.Microsecond)
			mu.Lock()
			enough = answered >= until
			mu.Unlock()
		}
		r.kill()
	}
	stop()
	r.start(t)
	wg.Wait()
	r.kill()
	rows := number(t, db, `SELECT count(*) FROM payments`)
	distinct := number(t, db, `SELECT count(DISTINCT event) FROM payments`)
	balance := number(t, db, `SELECT balance FROM account`)
	if rows != int64(sent) || distinct != rows || balance != rows || answered != sent {
		t.Errorf("%d payments of %d orders, balance %d; want each of %d once, of which %d were "+
			"answered",
			rows, distinct, balance, sent, answered)
	}
}

// receiver is the child that serves the inbox.
type receiver struct {
	path string
	cmd  *exec.Cmd

	mu    sync.Mutex // guards the fields below
	addr  string
	moved chan struct{} // closed when addr changes
}

func (r *receiver) start(t *testing.T) {
	t.Helper()
	r.cmd = exec.CommandContext(t.Context(), os.Args[0])
	r.cmd.Env = append(os.Environ(), childDatabase+"="+r.path)
	r.cmd.Stderr = os.Stderr
	out, err := r.cmd.StdoutPipe()
	if err == nil {
		err = r.cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatalf("the receiver did not start: %v", err)
	}
	r.mu.Lock()
	r.addr = strings.TrimSpace(line)
	close(r.moved)
	r.moved = make(chan struct{})
	r.mu.Unlock()
}

func (r *receiver) kill() {
	_ = r.cmd.Process.Kill()
	_ = r.cmd.Wait()
}

// notify repeats a notification until it is answered with success.
func (r *receiver) notify(ctx context.Context, t *testing.T, body string) {
	signature := sign(body)
	for ctx.Err() == nil {
		r.mu.Lock()
		addr, moved := r.addr, r.moved
		r.mu.Unlock()
		if addr != "" {
			req, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+addr,
				strings.NewReader(body))
			if err != nil {
				t.Error(err)
				return
			}
			req.Header.Set("X-Signature", signature)
			if res, err := http.DefaultClient.Do(req); err == nil {
				text, err := io.ReadAll(res.Body)
				res.Body.Close()
				if err == nil && res.StatusCode == http.StatusOK && string(text) == "success" {
					return
				}
				continue
			}
		}
		select {
		case <-moved:
		case <-time.After(100 * time.Millisecond):
		case <-ctx.Done():
		}
	}
}

func sign(body string) string {
	mac := hmac.New(sha256.New, []byte("Jefe"))
	mac.Write([]byte(body))
	return hex.EncodeToString(mac.Sum(nil))
}
