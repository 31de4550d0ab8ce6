//go:build unix

package endtoend

import (
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	natsgo "github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/penstock-io/penstock/engine/connector/connectortest"
)

// sharedNodes are the processes of the cluster.
var sharedNodes = []string{"a", "b", "c"}

// natsCluster is a cluster of three NATS servers in this process.
type natsCluster struct {
	urls      string
	addresses []string
	options   []*server.Options
	servers   []*server.Server
	js        jetstream.JetStream
}

func startNATSCluster(t *testing.T) *natsCluster {
	t.Helper()
	var routes []*url.URL
	var ports [6]int
	for i := range ports {
		ports[i] = connectortest.FreePort(t)
	}
	for _, port := range ports[3:] {
		routes = append(routes, &url.URL{Scheme: "nats", Host: fmt.Sprintf("127.0.0.1:%d", port)})
	}
	trio := &natsCluster{servers: make([]*server.Server, 3)}
	for i := range 3 {
		trio.options = append(trio.options, &server.Options{
			ServerName: fmt.Sprint("n", i), Host: "127.0.0.1", Port: ports[i], JetStream: true,
			StoreDir: t.TempDir(), NoLog: true, NoSigs: true, Routes: routes,
			Cluster: server.ClusterOpts{
				Name: "trio", Host: "127.0.0.1", Port: ports[3+i],
				NoAdvertise: true, // a client stays with the servers of its config
			},
		})
		trio.addresses = append(trio.addresses, fmt.Sprintf("127.0.0.1:%d", ports[i]))
		trio.start(t, i)
		t.Cleanup(func() { trio.servers[i].Shutdown(); trio.servers[i].WaitForShutdown() })
	}
	trio.urls = "nats://" + strings.Join(trio.addresses, ",nats://")
	await(t, time.Minute, "a leader of the NATS servers", func() bool {
		return slices.ContainsFunc(trio.servers, (*server.Server).JetStreamIsLeader)
	})
	trio.connect(t)
	return trio
}

// connect connects the test to the servers, and creates the stream "in".
func (n *natsCluster) connect(t *testing.T) {
	t.Helper()
	conn, err := natsgo.Connect(n.urls, natsgo.MaxReconnects(-1),
		natsgo.RetryOnFailedConnect(true))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(conn.Close)
	if n.js, err = jetstream.New(conn); err != nil {
		t.Fatal(err)
	}
	await(t, time.Minute, "the stream", func() bool {
		cfg := jetstream.StreamConfig{Name: "in", Subjects: []string{"in"}, Replicas: 3}
		_, err = n.js.CreateStream(t.Context(), cfg)
		return err == nil
	})
}

func (n *natsCluster) start(t *testing.T, i int) {
	t.Helper()
	s, err := server.NewServer(n.options[i].Clone())
	if err != nil {
		t.Fatal(err)
	}
	s.Start()
	n.servers[i] = s
}

// restart ends a server and starts it again with its data.
func (n *natsCluster) restart(t *testing.T, i int) {
	t.Helper()
	n.servers[i].Shutdown()
	n.servers[i].WaitForShutdown()
	n.start(t, i)
}

// owner returns the node that has the lease of the pipeline, and the epoch of the lease. The node
// is "" if there is no owner or NATS does not answer.
func (n *natsCluster) owner(t *testing.T) (node string, epoch uint64) {
	t.Helper()
	kv, err := n.js.KeyValue(t.Context(), "penstock")
	if err != nil {
		return "", 0
	}
	e, err := kv.Get(t.Context(), "lease.orders")
	if err != nil {
		return "", 0
	}
	var v struct {
		Owner string
		Epoch uint64
	}
	if err := json.Unmarshal(e.Value(), &v); err != nil {
		t.Fatal(err)
	}
	node, _, _ = strings.Cut(v.Owner, "/")
	return node, v.Epoch
}

// awaitOwner waits until a node has the lease of the pipeline, and returns it and its epoch.
func (n *natsCluster) awaitOwner(t *testing.T) (node string, epoch uint64) {
	t.Helper()
	await(t, time.Minute, "an owner of the lease", func() bool {
		node, epoch = n.owner(t)
		return node != ""
	})
	return node, epoch
}

// producer publishes numbered messages. It counts a message after the server has acknowledged it.
type producer struct {
	acked atomic.Int64
	pause sync.Mutex // held while a message is published
	stop  context.CancelFunc
	done  chan error
}

func (n *natsCluster) produce(t *testing.T, pause time.Duration) *producer {
	ctx, cancel := context.WithCancel(t.Context())
	p := &producer{stop: cancel, done: make(chan error, 1)}
	go func() {
		tick := time.NewTicker(pause)
		defer tick.Stop()
		for id := int64(0); ; {
			// If a publish got no response, the same message is published again. The server
			// recognizes a second copy by the message id and discards it.
			p.pause.Lock()
			_, err := n.js.Publish(context.WithoutCancel(ctx), "in", fmt.Append(nil, id),
				jetstream.WithMsgID(strconv.FormatInt(id, 10)))
			if err == nil {
				id++
				p.acked.Store(id)
			}
			p.pause.Unlock()
			select {
			case <-ctx.Done():
				p.done <- nil
				return
			case <-tick.C:
			}
		}
	}()
	return p
}

// sharedRun is a set of engines with the same config, and the table to which they deliver.
type sharedRun struct {
	t      *testing.T
	nats   *natsCluster
	db     *sql.DB
	config string

	links    map[string]*connectortest.Link // of the nodes to NATS; may be nil
	rnd      *rand.Rand                     // may be nil, like producer
	producer *producer

	mu        sync.Mutex // guards processes
	processes map[string]*exec.Cmd
}

func startShared(t *testing.T, trio *natsCluster, sink string, db *sql.DB) *sharedRun {
	t.Helper()
	config := write(t, filepath.Join(t.TempDir(), "penstock.yaml"), fmt.Sprintf(`
state: { dir: "./state-${NODE}", nats: { url: %q, node: "${NODE}" } }
pipelines:
  orders:
    source: { nats: { url: %q, stream: in } }
    sink: %s
    batch: { records: 200 }
    checkpoint: { sync: 200ms }
`, trio.urls, trio.urls, sink))
	return startNodes(t, trio, config, nil, db)
}

// startNodes starts an engine for each node. In the config, the environment variable NODE is the
// node's name, and LINK is the address of the node's network link to the NATS servers.
func startNodes(t *testing.T, trio *natsCluster, config string,
	links map[string]*connectortest.Link,
	db *sql.DB) *sharedRun {
	t.Helper()
	r := &sharedRun{t: t, nats: trio, db: db, config: config, links: links,
		processes: make(map[string]*exec.Cmd)}
	for _, node := range sharedNodes {
		r.start(node)
	}
	t.Cleanup(func() {
		for _, node := range sharedNodes {
			r.kill(node)
		}
	})
	return r
}

func (r *sharedRun) log(node string) string {
	return filepath.Join(filepath.Dir(r.config), node+".log")
}

func (r *sharedRun) start(node string) {
	r.t.Helper()
	bin, err := program()
	if err != nil {
		r.t.Fatal(err)
	}
	cmd := exec.Command(bin, "run", r.config)
	cmd.Env = append(os.Environ(), "NODE="+node)
	if link := r.links[node]; link != nil {
		cmd.Env = append(cmd.Env, "LINK="+link.Address())
	}
	log, err := os.OpenFile(r.log(node), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		r.t.Fatal(err)
	}
	defer log.Close()
	cmd.Stderr = log
	if err := cmd.Start(); err != nil {
		r.t.Fatal(err)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.processes[node] = cmd
}

func (r *sharedRun) signal(node string, sig os.Signal) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if cmd := r.processes[node]; cmd != nil {
		_ = cmd.Process.Signal(sig)
	}
}

// kill ends a process by kill -9.
func (r *sharedRun) kill(node string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if cmd := r.processes[node]; cmd != nil {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		delete(r.processes, node)
	}
}

func (r *sharedRun) rows() int64 { return number(r.db, `SELECT count(*) FROM lines`) }

// awaitRows waits until the table has more rows than before.
func (r *sharedRun) awaitRows(before int64, bound time.Duration) {
	r.t.Helper()
	event := fmt.Sprintf("more than %d rows", before)
	await(r.t, bound, event, func() bool { return r.rows() > before })
}

// check waits until each acknowledged message is in the table, and compares.
func (r *sharedRun) check(p *producer) {
	r.t.Helper()
	p.stop()
	if err := <-p.done; err != nil {
		r.t.Fatal(err)
	}
	want := p.acked.Load()
	await(r.t, time.Minute, fmt.Sprintf("%d rows", want), func() bool { return r.rows() >= want })
	distinct := number(r.db, `SELECT count(DISTINCT message) FROM lines`)
	most := number(r.db, `SELECT coalesce(max(CAST(message AS INTEGER)), 0) FROM lines`)
	if rows := r.rows(); rows != distinct || most != distinct-1 || distinct < want {
		r.t.Errorf("%d rows, %d of them different, the highest %d; want 0 to %d once",
			rows, distinct, most, want-1)
	}
}

func (r *sharedRun) logs() {
	if !r.t.Failed() {
		return
	}
	for _, node := range sharedNodes {
		r.t.Logf("log of %s:\n%s", node, read(r.t, r.log(node)))
	}
}

// clusterKills returns the number of kills, from the variable PENSTOCK_CLUSTER. If the variable is
// not set, it skips the test.
func clusterKills(t *testing.T) int {
	t.Helper()
	text := os.Getenv("PENSTOCK_CLUSTER")
	if text == "" {
		t.Skip("PENSTOCK_CLUSTER is not set: make cluster-short")
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 1 {
		t.Fatalf("PENSTOCK_CLUSTER is %q, want a number of kills", text)
	}
	return n
}

func sharedSQLite(t *testing.T, trio *natsCluster) *sharedRun {
	path := filepath.Join(t.TempDir(), "out.db")
	db := connectortest.OpenSQLite(t, path)
	connectortest.Execute(t, db, "PRAGMA journal_mode = WAL")
	connectortest.Execute(t, db, "CREATE TABLE lines (message TEXT)")
	return startShared(t, trio, fmt.Sprintf("{ sqlite: { path: %q, table: lines } }", path), db)
}

// TestClusterKill repeatedly kills the owner of a pipeline while messages arrive. After each kill
// another process must deliver within 15 s, and mostly within 10 s. Each message must be in the
// table once. At the end, the owner gets a stop signal, and another process must be the owner
// within 3 s.
func TestClusterKill(t *testing.T) {
	n := clusterKills(t)
	rnd := seeded(t)
	trio := startNATSCluster(t)
	r := sharedSQLite(t, trio)
	defer r.logs()
	p := trio.produce(t, 5*time.Millisecond)
	r.awaitRows(0, time.Minute)
	var took []time.Duration
	for range n {
		pauseRandomly(rnd)
		owner, epoch := trio.awaitOwner(t)
		killed := time.Now()
		r.kill(owner)
		before := r.rows()
		r.awaitRows(before, 30*time.Second)
		took = append(took, time.Since(killed))
		if next, later := trio.awaitOwner(t); later <= epoch || next == owner {
			t.Fatalf("after %s with epoch %d comes %s with epoch %d", owner, epoch, next, later)
		}
		r.start(owner)
	}
	owner, epoch := trio.awaitOwner(t)
	r.signal(owner, syscall.SIGTERM)
	stopped := time.Now()
	await(t, 3*time.Second, "an owner after a handover", func() bool {
		next, later := trio.owner(t)
		return next != owner && next != "" && later > epoch
	})
	handover := time.Since(stopped)
	r.check(p)
	slices.Sort(took)
	median, worst := took[len(took)/2], took[len(took)-1]
	t.Logf("%d kills, %d messages: takeover: median %v, worst %v; handover %v",
		n, p.acked.Load(), median, worst, handover)
	if median > 10*time.Second || worst > 15*time.Second {
		t.Errorf("takeovers took %v, want a median of at most 10s and at most 15s each", took)
	}
}

// pauseRandomly waits up to 2 s, so that kills strike at any time between two renewals.
func pauseRandomly(rnd *rand.Rand) {
	timer := time.NewTimer(time.Duration(rnd.IntN(2000)) * time.Millisecond)
	<-timer.C
}

// slowInserts makes each inserted row take about 2 ms.
var slowInserts = []string{
	`CREATE FUNCTION slow() RETURNS trigger LANGUAGE plpgsql AS
	$$ BEGIN PERFORM pg_sleep(0.002); RETURN NEW; END $$`,
	`CREATE TRIGGER slow BEFORE INSERT ON lines FOR EACH ROW EXECUTE FUNCTION slow()`,
}

// suspendInCopy suspends a process while the database executes a COPY of this process. If the
// database is not executing one, the process continues and is suspended again later.
func (r *sharedRun) suspendInCopy(node string) {
	r.t.Helper()
	await(r.t, time.Minute, "a suspension in a COPY", func() bool {
		r.signal(node, syscall.SIGSTOP)
		const running = `SELECT count(*) FROM pg_stat_activity
WHERE state = 'active' AND query ILIKE 'copy %'`
		if number(r.db, running) > 0 {
			return true
		}
		r.signal(node, syscall.SIGCONT)
		return false
	})
}

// TestClusterSuspend suspends the owner for 15 s in the middle of a COPY. Another process must take
// over. When the first process continues, it must neither write a message a second time nor take
// the pipeline back.
func TestClusterSuspend(t *testing.T) {
	n := max(1, clusterKills(t)/2)
	rnd := seeded(t)
	trio := startNATSCluster(t)
	postgres := connectortest.StartServer(t, "postgres", "psql")
	db := openPostgres(t, postgres.URL)
	connectortest.Execute(t, db, "CREATE TABLE lines (message TEXT)")
	for _, statement := range slowInserts {
		connectortest.Execute(t, db, statement)
	}
	sink := fmt.Sprintf("{ postgres: { url: %q, table: lines, workers: 4 } }", postgres.URL)
	r := startShared(t, trio, sink, db)
	defer r.logs()
	p := trio.produce(t, 2*time.Millisecond)
	r.awaitRows(0, time.Minute)
	for range n {
		pauseRandomly(rnd)
		owner, epoch := trio.awaitOwner(t)
		r.suspendInCopy(owner)
		suspended := time.Now()
		var next string
		var later uint64
		// the server may still commit a transaction of the suspended owner until another one begins
		await(t, 15*time.Second, "an owner after "+owner, func() bool {
			next, later = trio.owner(t)
			return next != "" && next != owner && later > epoch
		})
		r.awaitRows(r.rows(), time.Until(suspended.Add(15*time.Second)))
		t.Logf("delivered again %v after the owner was suspended", time.Since(suspended))
		<-time.After(time.Until(suspended.Add(15 * time.Second)))
		r.signal(owner, syscall.SIGCONT)
		pauseRandomly(rnd)
		r.awaitRows(r.rows(), 15*time.Second)
		if again, epoch := trio.awaitOwner(t); again != next || epoch != later {
			t.Errorf("%s with epoch %d was the owner, and then %s with epoch %d",
				next, later, again, epoch)
		}
	}
	r.check(p)
	t.Logf("%d times suspended for 15s in a COPY, %d messages", n, p.acked.Load())
}

// TestClusterDev runs `penstock cluster dev` and kills the owner. Another process must take over.
// After an interrupt, each message must be in the table once.
func TestClusterDev(t *testing.T) {
	clusterKills(t)
	bin, err := program()
	if err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(t.TempDir(), "dev")
	m := &member{t: t, cmd: exec.Command(bin, "cluster", "dev", "--dir", dir)}
	m.cmd.Stdout, m.cmd.Stderr = m, m
	if err := m.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- m.cmd.Wait() }()
	defer m.cmd.Process.Kill()
	said := regexp.MustCompile(`(?m) ([abc]) owns the pipeline orders; to kill it: kill -9 (\d+)$`)
	var found [][]string
	owners := func(n int) func() bool {
		return func() bool {
			found = said.FindAllStringSubmatch(m.printed(), -1)
			return len(found) >= n
		}
	}
	await(t, time.Minute, "an owner", owners(1))
	pid, _ := strconv.Atoi(found[0][2])
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	await(t, time.Minute, "another owner", owners(2))
	if found[0][1] == found[1][1] {
		t.Errorf("%s was killed and owns the pipeline again", found[0][1])
	}
	if err := m.cmd.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	select {
	case err := <-ended:
		said := strings.TrimSpace(m.printed())
		if err != nil || !strings.HasSuffix(said, "in the table, 0 twice") {
			t.Errorf("ended with %v:\n%s", err, m.printed())
		}
	case <-time.After(time.Minute):
		t.Errorf("it does not end:\n%s", m.printed())
	}
}
