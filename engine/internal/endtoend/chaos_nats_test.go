//go:build unix

package endtoend

import (
	"fmt"
	"path/filepath"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/penstock-io/penstock/engine/connector/connectortest"
)

// clusterFault is one kind of disturbance of engines that share a pipeline over NATS.
type clusterFault struct {
	name   string
	strike func(r *sharedRun)
}

var clusterFaults = []clusterFault{
	{"kill of the owner", func(r *sharedRun) {
		owner, _ := r.nats.awaitOwner(r.t)
		r.kill(owner)
		r.awaitRows(r.rows(), 30*time.Second)
		r.start(owner)
	}},
	{"suspended owner", func(r *sharedRun) {
		owner, _ := r.nats.awaitOwner(r.t)
		r.signal(owner, syscall.SIGSTOP)
		<-time.After(15 * time.Second)
		r.signal(owner, syscall.SIGCONT)
	}},
	{"cut network of the owner", func(r *sharedRun) {
		owner, _ := r.nats.awaitOwner(r.t)
		link := r.links[owner]
		link.Cut()
		r.awaitRows(r.rows(), 30*time.Second)
		link.Heal()
	}},
	{"stalled network of the owner", func(r *sharedRun) {
		owner, _ := r.nats.awaitOwner(r.t)
		link := r.links[owner]
		link.Stall()
		r.awaitRows(r.rows(), 30*time.Second)
		link.Heal()
	}},
	{"kill of a NATS server", func(r *sharedRun) {
		r.nats.restart(r.t, r.rnd.IntN(len(r.nats.servers)))
		r.awaitRows(r.rows(), 30*time.Second)
	}},
	{"purged stream", func(r *sharedRun) {
		r.producer.pause.Lock() // a purge loses undelivered messages
		defer r.producer.pause.Unlock()
		want := r.producer.acked.Load()
		await(r.t, time.Minute, "all messages are in the table",
			func() bool { return r.rows() >= want })
		s, err := r.nats.js.Stream(r.t.Context(), "in")
		if err == nil {
			err = s.Purge(r.t.Context())
		}
		if err != nil {
			r.t.Fatal(err)
		}
	}},
}

// TestChaosNATS runs three engines that share a pipeline from three NATS servers into PostgreSQL,
// and disturbs them. Each engine reaches one of the servers through its own network link. At the
// end, each message must be in the table once.
func TestChaosNATS(t *testing.T) {
	rounds := chaosRounds(t)
	trio := startNATSCluster(t)
	server := connectortest.StartServer(t, "postgres", "psql")
	db := openPostgres(t, server.URL)
	connectortest.Execute(t, db, "CREATE TABLE lines (message TEXT)")
	links := make(map[string]*connectortest.Link)
	for i, node := range sharedNodes {
		links[node] = connectortest.NewLink(t, trio.addresses[i])
	}
	config := write(t, filepath.Join(t.TempDir(), "penstock.yaml"), fmt.Sprintf(`
state: { dir: "./state-${NODE}", nats: { url: "nats://${LINK}", node: "${NODE}" } }
pipelines:
  orders:
    source: { nats: { url: "nats://${LINK}", stream: in } }
    sink: { postgres: { url: %q, table: lines, workers: 4 } }
    batch: { records: 200 }
    checkpoint: { sync: 200ms }
`, server.URL))
	r := startNodes(t, trio, config, links, db)
	defer r.logs()
	r.rnd = seeded(t)
	r.producer = trio.produce(t, 5*time.Millisecond)
	r.awaitRows(0, time.Minute)
	var order []clusterFault
	for range rounds {
		order = append(order, clusterFaults...)
	}
	r.rnd.Shuffle(len(order), func(i, j int) { order[i], order[j] = order[j], order[i] })
	for _, f := range order {
		pauseRandomly(r.rnd)
		begin := time.Now()
		f.strike(r)
		t.Logf("%s: %v", f.name, time.Since(begin).Round(time.Millisecond))
		r.awaitRows(r.rows(), 30*time.Second)
	}
	r.check(r.producer)
	names := []string{}
	for _, f := range clusterFaults {
		names = append(names, f.name)
	}
	slices.Sort(names)
	t.Logf("%d times each of %q: each of %d messages is in the table once", rounds, names,
		r.producer.acked.Load())
}
