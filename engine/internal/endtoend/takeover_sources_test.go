//go:build unix

package endtoend

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/penstock-io/penstock/engine/connector/connectortest"
)

// TestTakeoverKafka kills members of a Kafka group with default settings. After each kill, the
// others must take over within 15 s, and mostly within 10 s. Before the kills, it checks that there
// is no rebalance while all members live.
func TestTakeoverKafka(t *testing.T) {
	n := takeoverKills(t)
	broker := connectortest.StartServer(t, "kafka", "java").URL
	client := kafkaClient(t, []string{broker})
	_, err := kadm.NewClient(client).CreateTopic(t.Context(), kafkaPartitions, 1, nil, "in")
	if err != nil {
		t.Fatal(err)
	}
	var r *takeoverRun
	r = startTakeover(t, takeoverSource{
		yaml: func(string) string {
			return fmt.Sprintf(`
state: ./state
pipelines:
  orders:
    source: { kafka: { brokers: [%q], topics: [in], group: orders } }`, broker)
		},
		events: "rebalances", all: true,
		produce: func() *producer { return produceKafka(t, client) },
		victim:  func() string { return r.anyNode() },
	})
	<-time.After(5 * time.Second) // until the last members have joined
	r.checkQuiet()
	r.measure(n, 10*time.Second, 15*time.Second)
}

// produceKafka produces numbered records, in turn to the partitions of the topic "in".
func produceKafka(t *testing.T, client *kgo.Client) *producer {
	ctx, cancel := context.WithCancel(t.Context())
	p := &producer{stop: cancel, done: make(chan error, 1)}
	go func() {
		tick := time.NewTicker(20 * time.Millisecond)
		defer tick.Stop()
		for id := int64(0); ; {
			var batch []*kgo.Record
			for range 2 * kafkaPartitions {
				batch = append(batch, &kgo.Record{Topic: "in",
					Partition: int32(id % kafkaPartitions), Value: fmt.Append(nil, id)})
				id++
			}
			err := client.ProduceSync(context.WithoutCancel(ctx), batch...).FirstErr()
			if err != nil {
				p.done <- err
				return
			}
			p.acked.Store(id)
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

// TestTakeoverNATSConsumer kills processes that share a durable consumer of NATS.
func TestTakeoverNATSConsumer(t *testing.T) {
	n := takeoverKills(t)
	trio := startNATSProcesses(t)
	var r *takeoverRun
	r = startTakeover(t, takeoverSource{
		yaml: func(string) string {
			return fmt.Sprintf(`
state: ./state
pipelines:
  orders:
    source: { nats: { url: %q, stream: in, durable: orders } }`, trio.urls)
		},
		events: `"redelivered"`, all: true,
		produce: func() *producer { return trio.produce(t, 5*time.Millisecond) },
		victim:  func() string { return r.anyNode() },
	})
	r.checkQuiet()
	r.measure(n, 10*time.Second, 15*time.Second)
}

// leased returns a takeoverSource for a NATS stream that one of three engines reads, under a lease
// in NATS.
func leased(t *testing.T, trio *natsProcesses, victim func() string) takeoverSource {
	return takeoverSource{
		yaml: func(node string) string {
			return fmt.Sprintf(`
state: { dir: ./state, nats: { url: %q, node: %s } }
pipelines:
  orders:
    source: { nats: { url: %q, stream: in } }`, trio.urls, node, trio.urls)
		},
		events:  "lease_takeovers_total",
		produce: func() *producer { return trio.produce(t, 5*time.Millisecond) },
		victim:  victim,
	}
}

// TestTakeoverLease kills the owner of a lease.
func TestTakeoverLease(t *testing.T) {
	n := takeoverKills(t)
	trio := startNATSProcesses(t)
	r := startTakeover(t, leased(t, trio, func() string {
		owner, _ := trio.awaitOwner(t)
		return owner
	}))
	r.checkQuiet()
	r.measure(n, 10*time.Second, 15*time.Second)
}

// TestTakeoverLeader kills the NATS server that is the leader of the bucket of the leases. Every
// lease must keep its owner. Then, several times, it kills such a server together with the owner of
// a lease. Another engine must take over within 25 s.
func TestTakeoverLeader(t *testing.T) {
	n := max(1, takeoverKills(t)/2)
	trio := startNATSProcesses(t)
	killed := -1
	r := startTakeover(t, leased(t, trio, func() string {
		if killed >= 0 {
			trio.run(t, killed)
			trio.awaitCurrent(t)
		}
		owner, _ := trio.awaitOwner(t)
		killed = trio.leader(t)
		trio.kill(killed)
		return owner
	}))
	owner, epoch := trio.awaitOwner(t)
	leader := trio.leader(t)
	trio.kill(leader)
	<-time.After(quietTime)
	trio.run(t, leader)
	trio.awaitCurrent(t)
	r.awaitDeliveries()
	if next, later := trio.awaitOwner(t); next != owner || later != epoch {
		t.Errorf("%s was the owner with epoch %d, and after the end of the leader %s is with %d",
			owner, epoch, next, later)
	}
	r.measure(n, 25*time.Second, 25*time.Second)
}

// natsProcesses are three NATS servers that can be killed, because each is a process.
type natsProcesses struct {
	natsCluster
	settings []natsSettings
	running  []*exec.Cmd
	stdin    []io.Closer
}

func startNATSProcesses(t *testing.T) *natsProcesses {
	t.Helper()
	trio := &natsProcesses{running: make([]*exec.Cmd, 3), stdin: make([]io.Closer, 3)}
	var routes, urls []string
	for i := range 3 {
		s := natsSettings{Name: fmt.Sprint("n", i), Dir: t.TempDir(),
			Port: connectortest.FreePort(t), Route: connectortest.FreePort(t)}
		trio.settings = append(trio.settings, s)
		routes = append(routes, fmt.Sprintf("nats://127.0.0.1:%d", s.Route))
		urls = append(urls, fmt.Sprintf("nats://127.0.0.1:%d", s.Port))
	}
	trio.urls = strings.Join(urls, ",")
	for i := range trio.settings {
		trio.settings[i].Routes = routes
		trio.run(t, i)
	}
	t.Cleanup(func() {
		for i := range trio.running {
			trio.kill(i)
		}
	})
	trio.connect(t)
	return trio
}

// run starts a server with its data.
func (n *natsProcesses) run(t *testing.T, i int) {
	t.Helper()
	text, err := json.Marshal(n.settings[i])
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), "PENSTOCK_NATS_SERVER="+string(text))
	if n.stdin[i], err = cmd.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	n.running[i] = cmd
}

// kill ends a server with SIGKILL.
func (n *natsProcesses) kill(i int) {
	if cmd := n.running[i]; cmd != nil {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		n.stdin[i].Close()
		n.running[i] = nil
	}
}

// leader returns the server that leads the bucket of the leases.
func (n *natsProcesses) leader(t *testing.T) (leader int) {
	t.Helper()
	await(t, time.Minute, "a leader of the bucket", func() bool {
		s, err := n.js.Stream(t.Context(), "KV_penstock")
		if err != nil || s.CachedInfo().Cluster == nil {
			return false
		}
		_, err = fmt.Sscanf(s.CachedInfo().Cluster.Leader, "n%d", &leader)
		return err == nil
	})
	return leader
}

// awaitCurrent waits until all servers have all messages. If another server were killed earlier,
// the cluster could lose its majority.
func (n *natsProcesses) awaitCurrent(t *testing.T) {
	t.Helper()
	await(t, time.Minute, "all servers are current", func() bool {
		for _, name := range []string{"KV_penstock", "in"} {
			s, err := n.js.Stream(t.Context(), name)
			if err != nil || s.CachedInfo().Cluster == nil || s.CachedInfo().Cluster.Leader == "" {
				return false
			}
			current := 1
			for _, peer := range s.CachedInfo().Cluster.Replicas {
				if peer.Current && !peer.Offline {
					current++
				}
			}
			if current < 3 {
				return false
			}
		}
		return true
	})
}
