//go:build unix

package endtoend

import (
	"context"
	"database/sql"
	"fmt"
	"log/slog"
	"math"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/penstock-io/penstock/engine"
	"github.com/penstock-io/penstock/engine/connector/all"
	"github.com/penstock-io/penstock/engine/connector/connectortest"
	"github.com/penstock-io/penstock/engine/internal/lab/scenario"
)

const (
	// remoteSlower divides the rates of scenario s01, because all worker processes share one
	// machine.
	remoteSlower = 5
	// remoteInFlight bounds the batches in flight for each worker and sender.
	remoteInFlight = 2.6
	// remoteQueueInFlight is the same bound for `window: queue`.
	remoteQueueInFlight = 4.0
	remoteGoodput       = 0.97
	remoteJain          = 0.95
)

// remoteWorkers are `penstock worker` processes that write one table, and a DNS name for them.
type remoteWorkers struct {
	t      *testing.T
	dns    *connectortest.NameServer
	config string
	all    []*process
	listed []net.SRV
}

func newRemoteWorkers(t *testing.T, url string) *remoteWorkers {
	w := &remoteWorkers{t: t, dns: connectortest.NewNameServer(t)}
	w.dns.Set("machine.test", "127.0.0.1")
	w.config = write(t, filepath.Join(t.TempDir(), "worker.yaml"), fmt.Sprintf(`
state: ${WORKER_STATE}
pipelines:
  worker:
    processors:
      - parse: # the time in microseconds
          format: regex
          pattern: '^(?P<id>\d+) (?P<planned>\d+)\d{3}$'
          types: {id: integer, planned: integer}
      - set: {key: meta.id}
    sink:
      postgres:
        url: %q
        table: landed
        columns: [key, id, planned]
        mode: upsert
        key: [key] # the same at each worker that gets the batch
        ledger: "${WORKER_NAME}"
    limit: { rate: "${WORKER_RATE}/s", concurrency: 1 }
    batch: { records: 1, linger: 0s }
`, url))
	return w
}

// start starts a worker with the given rate on a free port, and lists it under the DNS name.
func (w *remoteWorkers) start(rate float64) *process {
	w.t.Helper()
	bin, err := program()
	if err != nil {
		w.t.Fatal(err)
	}
	port := connectortest.FreePort(w.t)
	address := fmt.Sprintf("127.0.0.1:%d", port)
	name := fmt.Sprintf("worker-%d", len(w.all))
	cmd := exec.Command(bin, "worker", "--listen", address, "--slots", "1",
		"--log-level", "error", w.config)
	cmd.Env = append(os.Environ(), "WORKER_STATE="+filepath.Join(w.t.TempDir(), name),
		"WORKER_NAME="+name, "WORKER_RATE="+strconv.FormatFloat(rate, 'f', -1, 64), "GOMAXPROCS=1")
	d := &process{t: w.t, cmd: cmd, ended: make(chan error, 1)}
	if err := cmd.Start(); err != nil {
		w.t.Fatal(err)
	}
	go func() { d.ended <- cmd.Wait() }()
	w.t.Cleanup(func() {
		_ = cmd.Process.Signal(syscall.SIGCONT)
		_ = cmd.Process.Kill()
	})
	w.all = append(w.all, d)
	w.listed = append(w.listed, net.SRV{Target: "machine.test", Port: uint16(port)})
	w.dns.Serve("_in._tcp.workers.test", w.listed...)
	eventually(w.t, name+" listens", func() bool {
		c, err := net.Dial("tcp", address)
		if err == nil {
			c.Close()
		}
		return err == nil
	})
	return d
}

// close ends the workers.
func (w *remoteWorkers) close() {
	for _, d := range w.all {
		_ = d.cmd.Process.Kill() // some have ended
	}
}

// sender is an engine that sends to the workers.
type sender struct {
	*engine.Engine
	stop context.CancelFunc
	wait func() error // for its end
}

// send runs a pipeline from the arrivals source to the workers.
func (w *remoteWorkers) send(name string, count int64, flow string) *sender {
	w.t.Helper()
	config := write(w.t, filepath.Join(w.t.TempDir(), "sender.yaml"), fmt.Sprintf(`
state: ./state
pipelines:
  remote:
    source: { arrivals: { name: %s, count: %d, rate: 0, seed: 7 } }
    sink:
      http:
        endpoints: [{ srv: _in._tcp.workers.test }]
        discovery: { interval: 200ms, resolver: %q }
        body: raw
    batch: { linger: 0s }
    flow: { %s }
`, name, count, w.dns.Addr(), flow))
	c, err := engine.Load(config, append(all.Components(), arrivals)...)
	if err != nil {
		w.t.Fatal(err)
	}
	e, err := engine.New(c, engine.Options{Once: true, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		w.t.Fatal(err)
	}
	ended := make(chan error, 1)
	ctx, cancel := context.WithCancel(w.t.Context())
	w.t.Cleanup(cancel)
	go func() { ended <- e.Run(ctx) }()
	return &sender{e, cancel, func() error { return <-ended }}
}

// landedBetween counts the records that were stored for the first time between two times.
func landedBetween(db *sql.DB, from, to time.Time) float64 {
	const form = "2006-01-02 15:04:05.999999-07"
	const count = "SELECT count(*) FROM landed WHERE at >= '%s' AND at < '%s'"
	return float64(number(db, fmt.Sprintf(count, from.Format(form), to.Format(form))))
}

// remoteFigures are measurements over a part of a run.
type remoteFigures struct {
	goodput  float64       // records first stored, relative to the rates
	inFlight float64       // batches, as a multiple of one batch per worker
	p99      time.Duration // from reading a record to storing it
	each     []float64     // records delivered by each sender
}

// String returns the figures for a log.
func (f remoteFigures) String() string {
	return fmt.Sprintf("goodput %.3f; in flight %.2f of one batch for each worker; p99 %v",
		f.goodput, f.inFlight, f.p99.Round(time.Millisecond))
}

// measure observes the senders between the times from and to. It returns figures for this time: the
// deliveries of each sender, the mean number of batches in flight, the goodput, and the 99th
// percentile of the latency. The goodput is a share of the parameter total, which is the sum of the
// workers' rates.
func measure(t *testing.T, db *sql.DB, total float64, from, to time.Time,
	senders ...*sender) (f remoteFigures) {
	t.Helper()
	at(t, from)
	delivered := func() (all []float64) {
		for _, s := range senders {
			all = append(all, float64(s.Status().Routes[0].Delivered))
		}
		return all
	}
	f.each = delivered()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	sum, n := 0.0, 0.0
	for time.Now().Before(to) {
		<-tick.C
		for _, s := range senders {
			for _, w := range s.Status().Routes[0].Workers {
				sum += float64(w.InFlight)
			}
		}
		n++
	}
	for i, d := range delivered() {
		f.each[i] = d - f.each[i]
	}
	f.inFlight = sum / max(1, n) / float64(len(rates))
	f.goodput = landedBetween(db, from, to) / (total * to.Sub(from).Seconds())
	const p99 = "SELECT coalesce(percentile_disc(0.99) WITHIN GROUP (ORDER BY " +
		"(extract(epoch FROM at) * 1e6)::bigint - planned), 0) FROM landed WHERE at >= %s"
	since := fmt.Sprintf("to_timestamp(%f)", float64(from.UnixNano())/1e9)
	f.p99 = time.Microsecond * time.Duration(number(db, fmt.Sprintf(p99, since)))
	return f
}

// jain returns Jain's index of fairness: 1 if all values are equal.
func jain(values []float64) float64 {
	sum, squares := 0.0, 0.0
	for _, v := range values {
		sum, squares = sum+v, squares+v*v
	}
	return sum * sum / (float64(len(values)) * squares)
}

const landedTable = `CREATE TABLE landed (key text PRIMARY KEY, id bigint NOT NULL, ` +
	`planned bigint NOT NULL, at timestamptz NOT NULL DEFAULT clock_timestamp())`

// remoteRun starts twelve workers on an empty table, and returns the sum of their rates.
func remoteRun(t *testing.T, url string, db *sql.DB) (w *remoteWorkers, total float64) {
	t.Helper()
	connectortest.Execute(t, db, `DROP TABLE IF EXISTS landed`)
	connectortest.Execute(t, db, landedTable)
	w = newRemoteWorkers(t, url)
	for _, rate := range rates {
		w.start(rate / remoteSlower)
		total += rate / remoteSlower
	}
	return w, total
}

const remoteWarmup = 8 * time.Second

// simulateRemote returns the simulated goodput of the twelve worker processes. It logs the figures.
func simulateRemote(
	t *testing.T, algorithm string, service scenario.Service,
) (goodput float64) {
	t.Helper()
	s := scaled(t, "s01-saturated", 1)
	for i := range s.Workers {
		s.Workers[i].Rate /= remoteSlower
	}
	s.Service, s.RTT = service, time.Millisecond
	f := simulate(t, s, algorithm, true)
	t.Logf("%s, simulated, %s service times: %v", algorithm, service,
		remoteFigures{goodput: f[scenario.Goodput],
			inFlight: f[scenario.InFlightMean] / float64(len(rates)),
			p99:      time.Duration(f[scenario.LatencyP99] * float64(time.Millisecond))})
	return f[scenario.Goodput]
}

// TestUnequalRemote runs one reader and twelve worker processes of unequal rates, which write into
// PostgreSQL. While they are undisturbed, they must reach the sum of their rates with few batches
// in flight, as in the simulator. Then one worker hangs, one is killed, one drains and two join.
// Each record must be in the table once, although the records have no keys of their own.
//
// With `window: queue`, the goodput must be as good, but more batches may be in flight. The
// simulator shows why: the more service times vary, the more batches `queue` keeps in flight.
func TestUnequalRemote(t *testing.T) {
	run := length(t, 30*time.Second, 10*time.Second)
	for _, service := range []scenario.Service{scenario.Exponential, scenario.Deterministic} {
		simulateRemote(t, "queue", service)
	}
	simulateRemote(t, "credit", scenario.Exponential)
	simulated := simulateRemote(t, "credit", scenario.Deterministic)
	server := connectortest.StartServer(t, "postgres", "psql")
	db := openPostgres(t, server.URL)
	undisturbed(t, func(t *testing.T) string {
		w, total := remoteRun(t, server.URL, db)
		s := w.send("queue", 1_000_000, "window: queue")
		from := time.Now().Add(remoteWarmup)
		f := measure(t, db, total, from, from.Add(run), s)
		t.Logf("queue:  %v", f)
		s.stop()
		_ = s.wait() // it was stopped
		w.close()
		if missed := f.missed(remoteQueueInFlight); missed != "" {
			return "queue: " + missed
		}
		return unequalRemote(t, server.URL, db, run, simulated)
	})
}

func unequalRemote(t *testing.T, url string, db *sql.DB, run time.Duration,
	simulated float64) (missed string) {
	t.Helper()
	w, total := remoteRun(t, url, db)
	count := int64(total * (remoteWarmup + 2*run).Seconds() * 0.9)
	s := w.send("credit", count, "window: credit")
	from := time.Now().Add(remoteWarmup)
	to := from.Add(run)
	f := measure(t, db, total, from, to, s)
	t.Logf("credit: %v", f)

	hanging := w.all[4]
	hanging.signal(syscall.SIGSTOP)
	w.all[0].signal(syscall.SIGKILL)
	w.start(rates[0] / remoteSlower)
	w.start(rates[1] / remoteSlower)
	w.all[1].signal(syscall.SIGTERM)
	if code := w.all[1].exit(30 * time.Second); code != 0 {
		t.Errorf("the worker that drained exits with %d", code)
	}
	at(t, to.Add(run/2))
	hanging.signal(syscall.SIGCONT)
	if err := s.wait(); err != nil {
		t.Fatal(err)
	}
	r := s.Status().Routes[0]
	t.Logf("%d records at %.0f/s; attempts %d, redelivered %d", count, total, r.Attempts,
		r.Redelivered)
	rows := number(db, `SELECT count(*) FROM landed`)
	if n := number(db, `SELECT count(DISTINCT id) FROM landed`); n != count || rows != count {
		t.Errorf("%d rows of %d records are in the table, want each of %d once", rows, n, count)
	}
	if math.Abs(f.goodput-simulated) > agreeWithin {
		return fmt.Sprintf("goodput is %.3f, simulated %.3f: want at most %g between them",
			f.goodput, simulated, agreeWithin)
	}
	return f.missed(remoteInFlight)
}

// missed returns the bound that the figures do not meet, or "". The parameter inFlight bounds the
// batches in flight per worker and sender.
func (f remoteFigures) missed(inFlight float64) string {
	switch {
	case f.goodput < remoteGoodput:
		return fmt.Sprintf("goodput is %.3f of the rates, want at least %v", f.goodput,
			remoteGoodput)
	case f.inFlight > inFlight*float64(len(f.each)):
		return fmt.Sprintf("%.2f batches a worker are in flight, want at most %v for each of %d "+
			"senders", f.inFlight, inFlight, len(f.each))
	case jain(f.each) < remoteJain:
		return fmt.Sprintf("the senders delivered %.0f records: Jain's index is %.3f, want at "+
			"least %v", f.each, jain(f.each), remoteJain)
	}
	return ""
}

// TestUnequalRemoteSenders runs two readers that share twelve worker processes. They must get equal
// shares, and use the workers fully.
func TestUnequalRemoteSenders(t *testing.T) {
	run := length(t, 30*time.Second, 10*time.Second)
	server := connectortest.StartServer(t, "postgres", "psql")
	db := openPostgres(t, server.URL)
	undisturbed(t, func(t *testing.T) string {
		w, total := remoteRun(t, server.URL, db)
		a := w.send("sender-a", 1_000_000, "window: credit")
		b := w.send("sender-b", 1_000_000, "window: credit")
		from := time.Now().Add(remoteWarmup)
		f := measure(t, db, total, from, from.Add(run), a, b)
		t.Logf("%v; Jain's index %.3f", f, jain(f.each))
		for _, s := range []*sender{a, b} {
			s.stop()
			_ = s.wait() // it was stopped
		}
		w.close()
		return f.missed(remoteInFlight)
	})
}
