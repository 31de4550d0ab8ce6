package main

import (
	"context"
	"database/sql"
	_ "embed"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	_ "github.com/jackc/pgx/v5/stdlib"
	_ "modernc.org/sqlite"

	"github.com/penstock-io/penstock/engine/connector/connectortest"
)

//go:embed reader.yaml
var readerConfig string

//go:embed worker.yaml
var workerConfig string

// serviceName is the name of the SRV records in which the reader finds the workers.
const serviceName = "_penstock._tcp.workers.test"

// pool has the workers, and the DNS server with their SRV records.
type pool struct {
	dir     string
	names   *connectortest.NameServer
	workers []*worker
	log     *os.File // output of the processes
	listed  []net.SRV
}

// worker is a `penstock worker` process.
type worker struct {
	address string
	rate    float64 // batches per second
	cmd     *exec.Cmd
	ended   chan struct{} // closed after err is set
	err     error
}

// startPool writes the configs and starts the DNS server. flow and sink are parts of the configs,
// as YAML.
func startPool(dir, flow, sink string) (p *pool, err error) {
	p = &pool{dir: dir}
	fill := strings.NewReplacer("${FLOW}", flow, "${SINK}", sink)
	for name, text := range map[string]string{"reader.yaml": readerConfig, "worker.yaml": workerConfig} {
		if err := os.WriteFile(p.file(name), []byte(fill.Replace(text)), 0o600); err != nil {
			return nil, err
		}
	}
	if p.log, err = os.Create(p.file("log")); err != nil {
		return nil, err
	}
	if p.names, err = connectortest.StartNameServer(); err == nil {
		p.names.Set("machine.test", "127.0.0.1")
	}
	return p, err
}

func (p *pool) file(name string) string { return filepath.Join(p.dir, name) }

// close kills the workers that are still running.
func (p *pool) close() {
	for _, w := range p.workers {
		_ = w.kill() // some workers have already ended
	}
	p.names.Close()
	_ = p.log.Close()
}

// printed returns the last lines that the processes have logged, as an error that explains why the
// run failed. It returns nil if they have logged nothing.
func (p *pool) printed() error {
	text, err := os.ReadFile(p.log.Name())
	if err != nil || len(text) == 0 {
		return err
	}
	const most = 2000
	return fmt.Errorf("the processes printed:\n%s", text[max(0, len(text)-most):])
}

// child returns a command that runs this program as penstock with the given arguments. The process
// is ended when ctx is done.
func (p *pool) child(ctx context.Context, environment []string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, os.Args[0], append(args, "--log-level", "error")...)
	cmd.Env = append(append(os.Environ(), "DIR="+p.dir), environment...)
	cmd.Stderr = p.log
	return cmd
}

// add starts a worker with a limit of rate batches per second.
func (p *pool) add(ctx context.Context, rate float64) error {
	address, err := freeAddress()
	if err != nil {
		return err
	}
	p.workers = append(p.workers, &worker{address: address, rate: rate})
	return p.start(ctx, len(p.workers)-1)
}

// start starts the process of worker n. When the worker accepts connections, start adds it to the
// DNS records.
func (p *pool) start(ctx context.Context, n int) error {
	w := p.workers[n]
	name := fmt.Sprintf("worker-%02d", n+1)
	environment := []string{"NAME=" + name, "GOMAXPROCS=1",
		"RATE=" + strconv.FormatFloat(w.rate*batchRecords, 'f', -1, 64)}
	w.cmd = p.child(ctx, environment, "worker", "--listen", w.address, "--slots", "1",
		p.file("worker.yaml"))
	ended := make(chan struct{})
	w.ended = ended
	if err := w.cmd.Start(); err != nil {
		close(ended)
		return err
	}
	go func() { w.err = w.cmd.Wait(); close(ended) }()
	if err := w.awaitPort(); err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	return p.list(w, true)
}

// list adds a worker to the DNS records or, if up is false, removes it.
func (p *pool) list(w *worker, up bool) error {
	_, text, err := net.SplitHostPort(w.address)
	if err != nil {
		return err
	}
	port, err := strconv.ParseUint(text, 10, 16)
	if err != nil {
		return err
	}
	record := net.SRV{Target: "machine.test", Port: uint16(port)}
	p.listed = slices.DeleteFunc(p.listed, func(r net.SRV) bool { return r == record })
	if up {
		p.listed = append(p.listed, record)
	}
	p.names.Serve(serviceName, p.listed...)
	return nil
}

// patience is the maximum time for a process to start or to end.
const patience = 30 * time.Second

// awaitPort waits until the worker accepts connections.
func (w *worker) awaitPort() error {
	tick := time.NewTicker(askEvery)
	defer tick.Stop()
	for late := time.After(patience); ; {
		select {
		case <-tick.C:
			if conn, err := net.Dial("tcp", w.address); err == nil {
				return conn.Close()
			}
		case <-w.ended:
			return fmt.Errorf("ended: %w", w.err)
		case <-late:
			return fmt.Errorf("does not listen after %v", patience)
		}
	}
}

// kill kills the worker with SIGKILL.
func (w *worker) kill() error {
	err := w.cmd.Process.Kill()
	<-w.ended
	return err
}

// drain makes a worker finish its batches, and then removes it from DNS.
func (p *pool) drain(w *worker) error {
	if err := w.cmd.Process.Signal(os.Interrupt); err != nil {
		return err
	}
	select {
	case <-w.ended:
		return errors.Join(w.err, p.list(w, false))
	case <-time.After(patience):
		return fmt.Errorf("a worker does not end within %v of SIGINT", patience)
	}
}

// freeAddress returns a loopback address with a port that is not in use.
func freeAddress() (string, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	return l.Addr().String(), l.Close()
}

// store is the database with the table of records.
type store struct {
	*sql.DB
	sink string // sink of the workers, as YAML
}

// openStore creates the table.
func openStore(postgres, dir string) (s *store, err error) {
	const options = `table: landed, columns: {key: text, id: integer, line: text}, ` +
		`mode: upsert, key: [key], ledger: "${NAME}"`
	s = &store{}
	if postgres != "" {
		s.sink = fmt.Sprintf(`{ postgres: { url: %q, %s } }`, postgres, options)
		s.DB, err = sql.Open("pgx", postgres)
	} else {
		path := filepath.ToSlash(filepath.Join(dir, "landed.db"))
		s.sink = fmt.Sprintf(`{ sqlite: { path: %q, %s } }`, path, options)
		s.DB, err = sql.Open("sqlite", path+"?_pragma=busy_timeout(10000)&_pragma=journal_mode(WAL)")
	}
	if err != nil {
		return nil, err
	}
	for _, text := range []string{
		"DROP TABLE IF EXISTS landed",
		"CREATE TABLE landed (key text PRIMARY KEY, id bigint NOT NULL, line text NOT NULL)",
	} {
		if _, err := s.Exec(text); err != nil {
			return nil, errors.Join(fmt.Errorf("making the table: %w", err), s.Close())
		}
	}
	return s, nil
}

// writeRecords writes a file with the records for the reader.
func writeRecords(dir string, count int) error {
	if err := os.Mkdir(dir, 0o700); err != nil {
		return err
	}
	var text []byte
	for id := range count {
		text = fmt.Appendf(text, "%d GET /item/%d HTTP/1.1 200\n", id+1, id%997)
	}
	return os.WriteFile(filepath.Join(dir, "access.log"), text, 0o600)
}
