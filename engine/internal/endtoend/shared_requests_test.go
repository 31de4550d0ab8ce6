//go:build unix

package endtoend

import (
	"context"
	"database/sql"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/penstock-io/penstock/engine/connector/connectortest"
)

// sharedNode is one of several processes with the same pipeline, route and database.
type sharedNode struct {
	config, url, admin string
	cmd                *exec.Cmd
}

func newSharedNode(t *testing.T, db, table, more string) *sharedNode {
	t.Helper()
	n := &sharedNode{admin: connectortest.FreeAddress(t)}
	address := connectortest.FreeAddress(t)
	n.url = "http://" + address + "/"
	n.config = write(t, filepath.Join(t.TempDir(), "penstock.yaml"), fmt.Sprintf(`
state: ./state
admin: { address: %q }
pipelines:
  push:
    source: { http_server: { listen: %q, deadline: 20s } }
    sink: { postgres: { url: %q, table: %s } }
    retry: { base: 20ms, max: 200ms }
%s`, n.admin, address, db, table, more))
	return n
}

func (n *sharedNode) start(t *testing.T) {
	t.Helper()
	n.cmd = startEngine(t, n.config)
}

func (n *sharedNode) kill() {
	_ = n.cmd.Process.Kill()
	_ = n.cmd.Wait()
}

// suspend stops the process and waits until none of its threads runs.
func (n *sharedNode) suspend(t *testing.T) {
	t.Helper()
	n.signal(t, syscall.SIGSTOP)
	await(t, time.Minute, "the process is stopped", func() bool {
		pid := strconv.Itoa(n.cmd.Process.Pid)
		state, err := exec.Command("ps", "-o", "state=", "-p", pid).Output()
		if err != nil {
			t.Fatal(err)
		}
		return strings.HasPrefix(string(state), "T")
	})
}

func (n *sharedNode) signal(t *testing.T, s syscall.Signal) {
	t.Helper()
	if err := n.cmd.Process.Signal(s); err != nil {
		t.Fatal(err)
	}
}

// post sends a request until it is answered with 200.
func (n *sharedNode) post(t *testing.T, key, body string) {
	t.Helper()
	await(t, time.Minute, "the request is answered with 200",
		func() bool { return n.try(t.Context(), key, body) == http.StatusOK })
}

// try sends a request once, and returns the status, or 0 without a response.
func (n *sharedNode) try(ctx context.Context, key, body string) int {
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, n.url, strings.NewReader(body))
	if err != nil {
		return 0
	}
	r.Header.Set("Idempotency-Key", key)
	response, err := http.DefaultClient.Do(r)
	if err != nil {
		return 0
	}
	_ = response.Body.Close()
	return response.StatusCode
}

// duplicates returns the line of the metric for duplicate requests.
func (n *sharedNode) duplicates(t *testing.T) string {
	t.Helper()
	response, err := http.Get("http://" + n.admin + "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		if strings.Contains(line, "requests_duplicate") && !strings.HasPrefix(line, "#") {
			return line
		}
	}
	return ""
}

// textOf returns n lines that begin with name.
func textOf(name string, n int) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, "%s-%d\n", name, i)
	}
	return b.String()
}

// hasOnce checks that a table has n rows, each with a message of its own.
func hasOnce(t *testing.T, db *sql.DB, table string, n int64) {
	t.Helper()
	rows := number(db, "SELECT count(*) FROM "+table)
	distinct := number(db, "SELECT count(DISTINCT message) FROM "+table)
	if rows != n || distinct != n {
		t.Errorf("%s has %d rows, %d of them distinct; want %d", table, rows, distinct, n)
	}
}

// TestSharedRequests sends the same requests to two processes that write to one database and share
// one ledger there. Each record must be stored once, and neither process may make the other one
// fail.
func TestSharedRequests(t *testing.T) {
	t.Parallel()
	p := sharedPair{server: connectortest.StartServer(t, "postgres", "psql")}
	p.db = openPostgres(t, p.server.URL)
	t.Run("answered", p.answered)
	t.Run("killed", p.killed)
	t.Run("at once", p.atOnce)
	t.Run("suspended", p.suspended)
}

// sharedPair starts two processes for a table.
type sharedPair struct {
	server *connectortest.Server
	db     *sql.DB
}

// start returns two processes that have loaded their ledger: each has stored one request.
func (p sharedPair) start(t *testing.T, table, more string) (a, b *sharedNode) {
	t.Helper()
	connectortest.Execute(t, p.db, "CREATE TABLE "+table+" (message text)")
	a = newSharedNode(t, p.server.URL, table, more)
	b = newSharedNode(t, p.server.URL, table, more)
	a.start(t)
	b.start(t)
	a.post(t, table+"-a", table+" from a\n") // the tables share one ledger
	b.post(t, table+"-b", table+" from b\n")
	t.Cleanup(func() { a.kill(); b.kill() })
	return a, b
}

// answered sends a request to one process and then to the other. After a restart of both, it sends
// the request to both again. Its records must be stored only once.
func (p sharedPair) answered(t *testing.T) {
	a, b := p.start(t, "answered", "")
	a.post(t, "k", textOf("k", 10))
	b.post(t, "k", textOf("k", 10))
	hasOnce(t, p.db, "answered", 12)
	if text := b.duplicates(t); !strings.HasSuffix(text, " 1\n") {
		t.Errorf("the duplicate is not counted: %q", text)
	}
	a.kill()
	b.kill()
	b.start(t)
	b.post(t, "k", textOf("k", 10))
	a.start(t)
	a.post(t, "k", textOf("k", 10))
	hasOnce(t, p.db, "answered", 12)
}

// killed kills a process during its commit, which the database server still completes. Then it
// repeats the request at the other process, which must not store the records again.
func (p sharedPair) killed(t *testing.T) {
	a, b := p.start(t, "killed", "")
	connectortest.Execute(t, p.db, `CREATE FUNCTION slow() RETURNS trigger LANGUAGE plpgsql AS
		$$BEGIN PERFORM pg_sleep(1); RETURN NULL; END$$`)
	connectortest.Execute(t, p.db, `CREATE CONSTRAINT TRIGGER slow AFTER INSERT ON killed
		DEFERRABLE INITIALLY DEFERRED FOR EACH ROW WHEN (NEW.message = 'k-0')
		EXECUTE FUNCTION slow()`)
	var sender sync.WaitGroup
	sender.Go(func() { a.try(t.Context(), "k", textOf("k", 3)) })
	await(t, time.Minute, "the commit runs", func() bool {
		return number(p.db, `SELECT count(*) FROM pg_stat_activity
			WHERE query = 'COMMIT' AND state = 'active'`) > 0
	})
	a.kill()
	sender.Wait()
	b.post(t, "k", textOf("k", 3))
	hasOnce(t, p.db, "killed", 5)
}

// atOnce sends each request to both processes at the same time.
func (p sharedPair) atOnce(t *testing.T) {
	a, b := p.start(t, "atonce", "    batch: { records: 7 }\n")
	var senders sync.WaitGroup
	const requests = 200
	want := int64(2)
	for k := range requests {
		want += int64(1 + k%25)
	}
	for _, n := range []*sharedNode{a, b} {
		for w := range 4 {
			senders.Go(func() {
				for k := w; k < requests; k += 4 {
					n.post(t, fmt.Sprint(k), textOf(fmt.Sprint(k), 1+k%25))
				}
			})
		}
	}
	senders.Wait()
	hasOnce(t, p.db, "atonce", want)
}

// suspended suspends a process with an open transaction, and sends the same request to the other
// one. After the first process resumes, the records must be stored once, and both processes must
// acknowledge the request.
func (p sharedPair) suspended(t *testing.T) {
	// Else an attempt of a could time out before a is suspended, and end its transaction.
	a, b := p.start(t, "suspended", "    flow: { timeout: 30s }\n")
	tx, err := p.db.Begin()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := tx.Exec("LOCK TABLE suspended IN EXCLUSIVE MODE"); err != nil {
		t.Fatal(err)
	}
	waiting := func(query string) func() bool {
		return func() bool {
			return number(p.db, `SELECT count(*) FROM pg_stat_activity
				WHERE wait_event_type = 'Lock' AND query LIKE '`+query+`'`) > 0
		}
	}
	var senders sync.WaitGroup
	senders.Go(func() { a.post(t, "k", textOf("k", 5)) })
	await(t, time.Minute, "the first process waits for the table", waiting("DO%LOCK TABLE%"))
	a.suspend(t)
	if err := tx.Rollback(); err != nil {
		t.Fatal(err)
	}
	senders.Go(func() { b.post(t, "k", textOf("k", 5)) })
	await(t, time.Minute, "the second process waits for the request", waiting("%penstock_marks%"))
	a.signal(t, syscall.SIGCONT)
	senders.Wait()
	hasOnce(t, p.db, "suspended", 7)
}

// TestKillShared kills two processes, which share one ledger, at random. Clients repeat each
// request, at randomly chosen processes, until it is acknowledged. The table must have each record
// of these requests once.
func TestKillShared(t *testing.T) {
	t.Parallel()
	server := connectortest.StartServer(t, "postgres", "psql")
	db := openPostgres(t, server.URL)
	connectortest.Execute(t, db, "CREATE TABLE records (message text)")
	rnd := seeded(t)
	var nodes [2]*sharedNode
	for i := range nodes {
		nodes[i] = newSharedNode(t, server.URL, "records", "    batch: { records: 7 }\n")
		nodes[i].start(t)
	}
	const clients = 6
	var sent [clients]int64
	var senders sync.WaitGroup
	done := make(chan struct{})
	for c := range clients {
		own := rand.New(rand.NewPCG(rnd.Uint64(), rnd.Uint64()))
		senders.Go(func() { sent[c] = sendShared(t, nodes, own, c, done) })
	}
	for range kills(t) {
		target := number(db, "SELECT count(*) FROM records") + int64(20+rnd.IntN(300))
		await(t, time.Minute, "records are stored",
			func() bool { return number(db, "SELECT count(*) FROM records") > target })
		n := nodes[rnd.IntN(2)]
		n.kill()
		n.start(t)
	}
	close(done)
	senders.Wait()
	want := int64(0)
	for _, n := range sent {
		want += n
	}
	hasOnce(t, db, "records", want)
	t.Logf("%d kills, %d records acknowledged", kills(t), want)
	for _, n := range nodes {
		n.kill()
	}
}

// sendShared sends requests until done is closed. It repeats each request, every time at a randomly
// chosen process, until the request is acknowledged. In a quarter of the attempts, it does not wait
// for the response, and repeats the request in any case. It returns the number of records.
func sendShared(t *testing.T, nodes [2]*sharedNode, rnd *rand.Rand, client int,
	done chan struct{}) (records int64) {
	for k := 0; ; k++ {
		select {
		case <-done:
			return records
		default:
		}
		name, size := fmt.Sprintf("%d-%d", client, k), 1+rnd.IntN(20)
		await(t, time.Minute, "a request is acknowledged", func() bool {
			n := nodes[rnd.IntN(2)]
			if rnd.IntN(4) > 0 {
				return n.try(t.Context(), name, textOf(name, size)) == http.StatusOK
			}
			ctx, cancel := context.WithTimeout(t.Context(),
				time.Duration(rnd.IntN(20))*time.Millisecond)
			defer cancel()
			n.try(ctx, name, textOf(name, size))
			return false
		})
		records += int64(size)
	}
}
