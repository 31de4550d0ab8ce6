//go:build unix

package endtoend

import (
	"fmt"
	"io"
	nethttp "net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"

	"github.com/penstock-io/penstock/engine/connector/connectortest"
)

// fault is one kind of disturbance of a running group.
type fault struct {
	name    string
	engines int // that may repeat records if their sink has no ledger
	strike  func(g *copies)
}

// kafkaFaults are faults that cause no repetitions: a consumer group still delivers each record
// only once if its sink has a ledger.
var kafkaFaults = []fault{
	{"kill of an engine", 1, func(g *copies) {
		m := g.anyMember()
		m.kill()
		m.start()
	}},
	{"suspended engine", 1, func(g *copies) {
		m := g.anyMember()
		if err := m.cmd.Process.Signal(syscall.SIGSTOP); err != nil {
			g.t.Fatal(err)
		}
		g.produceFor(suspension(g.t))
		if err := m.cmd.Process.Signal(syscall.SIGCONT); err != nil {
			g.t.Fatal(err)
		}
	}},
	{"cut network", 1, func(g *copies) {
		l := g.anyLink()
		l.Cut()
		g.produceFor(g.moment())
		l.Heal()
	}},
	{"stalled network", 1, func(g *copies) {
		l := g.anyLink()
		l.Stall()
		g.produceFor(g.moment())
		l.Heal()
	}},
	{"kill of the broker", 3, func(g *copies) {
		g.server.Kill(g.t)
		g.server.Start(g.t)
	}},
	{"topic created again", 3, func(g *copies) {
		awaitLag(g.t, g.admin, g.tick.C) // the broker deletes the records with the topic
		g.recreate("in")
	}},
}

// resetRecords is the number of records of each partition that an offset reset repeats.
const resetRecords = 200

// offsetReset kills the members, and sets the offsets of their group back by resetRecords records
// in each partition. The members must then deliver these records again, so tests that allow no
// repetitions do not use this fault.
var offsetReset = fault{"offset reset", 3, func(g *copies) {
	for _, m := range g.members {
		m.kill()
	}
	g.resetOffsets(resetRecords)
	for _, m := range g.members {
		m.start()
	}
}}

// chaosRounds is the number of faults of each kind.
func chaosRounds(t *testing.T) int {
	t.Helper()
	text := os.Getenv("PENSTOCK_CHAOS")
	if text == "" {
		t.Skip("PENSTOCK_CHAOS is not set: make chaos")
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 1 {
		t.Fatalf("PENSTOCK_CHAOS is %q, want a number of faults of each kind", text)
	}
	return n
}

// suspension is the time for which an engine is suspended. It is longer than the session timeout,
// so the broker gives the engine's partitions to others. In long runs, it is also longer than the
// timeout of transactions, so the broker aborts an open one.
func suspension(t *testing.T) time.Duration {
	if chaosRounds(t) < 10 {
		return 5 * time.Second
	}
	return 15 * time.Second
}

// disturb causes each fault several times, in random order, while the test produces records.
func (g *copies) disturb(faults []fault) {
	g.t.Helper()
	g.batch = 50 // a copy in order must keep up, also after an engine was suspended
	var order []fault
	for range chaosRounds(g.t) {
		order = append(order, faults...)
	}
	g.rnd.Shuffle(len(order), func(i, j int) { order[i], order[j] = order[j], order[i] })
	for _, f := range order {
		g.produceForAWhile()
		begin := time.Now()
		f.strike(g)
		g.t.Logf("%s: %v", f.name, time.Since(begin).Round(time.Millisecond))
		g.disturbed += f.engines
	}
	g.produceForAWhile()
}

// TestChaosKafka runs three engines that share a topic of a real broker, and disturbs them. Each
// engine reaches the broker through its own network link. No record may be lost. Sinks with a
// ledger must receive no record twice, and transactional sinks must keep the order of records with
// the same key. For the HTTP sink, repetitions are bounded.
func TestChaosKafka(t *testing.T) {
	chaosRounds(t)
	t.Setenv("PENSTOCK_KAFKA", "full")
	t.Run("transactions", func(t *testing.T) {
		g := startCopies(t, func(broker string) string {
			return fmt.Sprintf(`
    sink: { kafka: { brokers: [%q], topic: out, key: key, format: raw, transactional: true } }
    flow: { order: partition }`, broker) + copySettings
		}, 3)
		g.disturb(kafkaFaults)
		awaitLag(t, g.admin, g.tick.C)
		g.stop()
		texts := kafkaTexts(t, g.server.URL, g.admin)
		g.checkOrder(texts)
		g.exactly(texts)
	})
	t.Run("postgres", func(t *testing.T) {
		server := connectortest.StartServer(t, "postgres", "psql")
		db := openPostgres(t, server.URL)
		connectortest.Execute(t, db, "CREATE TABLE lines (message TEXT, key TEXT)")
		g := startCopies(t, func(string) string {
			return fmt.Sprintf(`
    sink: { postgres: { url: %q, table: lines, workers: 2 } }`, server.URL) + copySettings
		}, 3)
		g.disturb(kafkaFaults)
		awaitLag(t, g.admin, g.tick.C)
		g.stop()
		g.exactly(connectortest.Column(t, db, `SELECT message FROM lines`))
	})
	t.Run("failing postgres", chaosFailingPostgres)
	t.Run("http", chaosHTTP)
}

// chaosReplay bounds the bytes of an engine that a kill can repeat: those in flight, and those
// delivered and not committed yet.
const chaosReplay = 8 << 10

// chaosHTTP copies into an HTTP server that is slow for some requests and refuses others. When an
// engine is disturbed, the records within its checkpoint.replay may be repeated. Each offset reset
// may repeat another 200 records (the constant resetRecords) of each partition.
func chaosHTTP(t *testing.T) {
	r := newFlakyReceiver(t)
	g := startCopies(t, func(string) string {
		return fmt.Sprintf(`
    sink: { http: { endpoints: [%q], body: raw } }
    retry: { base: 20ms, max: 200ms }
    batch: { records: 100, bytes: 2KiB }
    checkpoint: { replay: %dB, sync: 100ms }`, r.server.URL, chaosReplay)
	}, 3)
	g.disturb(slices.Concat(kafkaFaults, []fault{offsetReset}))
	awaitLag(t, g.admin, g.tick.C)
	g.stop()
	records := g.compare(r.texts())
	repeated := 0
	for text, n := range g.arrived {
		repeated += max(0, n-1) * len(text)
	}
	longest := len(fmt.Sprint("record ", g.ids))
	bound := g.disturbed*(chaosReplay+longest) +
		chaosRounds(t)*resetRecords*kafkaPartitions*longest
	t.Logf("0 of %d records lost; %d (%d bytes) arrived more than once, at most %d bytes may",
		g.ids, records, repeated, bound)
	if repeated > bound {
		t.Errorf("%d bytes were repeated by %d disturbed engines and %d offset resets, "+
			"want at most %d", repeated, g.disturbed, chaosRounds(t), bound)
	}
}

func (g *copies) anyMember() *member           { return g.members[g.rnd.IntN(len(g.members))] }
func (g *copies) anyLink() *connectortest.Link { return g.links[g.rnd.IntN(len(g.links))] }

// moment returns a random time up to 6 s, which may be shorter or longer than a session.
func (g *copies) moment() time.Duration {
	return time.Duration(g.rnd.IntN(6000)) * time.Millisecond
}

func (g *copies) produceFor(d time.Duration) {
	for begin := time.Now(); time.Since(begin) < d; {
		<-g.tick.C
		g.produce()
	}
}

func (g *copies) stop() {
	for _, m := range g.members {
		m.kill()
	}
}

// exactly fails the test unless each acknowledged record occurs once in texts.
func (g *copies) exactly(texts []string) {
	g.t.Helper()
	if repeated := g.compare(texts); repeated > 0 {
		g.t.Errorf("%d records are there more than once", repeated)
	}
	g.t.Logf("each of %d records is there once", g.ids)
}

// checkOrder fails if the numbered records of one key are not in order. The texts contain the
// records of a partition in their order in that partition. All records of a key are in one
// partition.
func (g *copies) checkOrder(texts []string) {
	g.t.Helper()
	last := make(map[int]int)
	for _, text := range texts {
		number, err := strconv.Atoi(strings.TrimPrefix(text, "record "))
		if err != nil {
			g.t.Fatalf("%q is not a record of this test", text)
		}
		key := number % kafkaPartitions
		if before, ok := last[key]; ok && number < before {
			g.t.Fatalf("%q comes after record %d of the same key", text, before)
		}
		last[key] = number
	}
}

func (g *copies) recreate(topic string) {
	g.t.Helper()
	if _, err := g.admin.DeleteTopic(g.t.Context(), topic); err != nil {
		g.t.Fatal(err)
	}
	await(g.t, time.Minute, "the topic is created again", func() bool {
		_, err := g.admin.CreateTopic(g.t.Context(), kafkaPartitions, 1, nil, topic)
		return err == nil
	})
	g.awaitTopics(topic)
	g.client.Close() // it has sequence numbers of the deleted topic
	g.client = kafkaClient(g.t, []string{g.server.URL})
	g.admin = kadm.NewClient(g.client)
}

// resetOffsets sets the group's offsets back by n records, as an operator's tool does.
func (g *copies) resetOffsets(n int64) {
	g.t.Helper()
	await(g.t, time.Minute, "the offsets are set back", func() bool {
		now, err := g.admin.FetchOffsets(g.t.Context(), "copy")
		if err != nil {
			return false
		}
		to := make(kadm.Offsets)
		now.Each(func(o kadm.OffsetResponse) {
			to.AddOffset(o.Topic, o.Partition, max(0, o.At-n), -1)
		})
		set, err := g.admin.CommitOffsets(g.t.Context(), "copy", to) // fails while it has members
		return err == nil && set.Error() == nil
	})
}

// flakyReceiver accepts lines over HTTP. It refuses some requests, and is slow for others.
type flakyReceiver struct {
	server *httptest.Server

	mu       sync.Mutex // guards the fields below
	requests int
	lines    []string
}

func newFlakyReceiver(t *testing.T) *flakyReceiver {
	r := &flakyReceiver{}
	r.server = httptest.NewServer(nethttp.HandlerFunc(r.accept))
	t.Cleanup(r.server.Close)
	return r
}

func (r *flakyReceiver) accept(w nethttp.ResponseWriter, q *nethttp.Request) {
	body, err := io.ReadAll(q.Body)
	if err != nil {
		return
	}
	r.mu.Lock()
	r.requests++
	n := r.requests
	r.mu.Unlock()
	if n%7 == 0 {
		w.WriteHeader(nethttp.StatusServiceUnavailable)
		return
	}
	if n%11 == 0 {
		timer := time.NewTimer(200 * time.Millisecond)
		<-timer.C
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for line := range strings.Lines(string(body)) {
		r.lines = append(r.lines, strings.TrimSuffix(line, "\n"))
	}
}

func (r *flakyReceiver) texts() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.lines)
}
