package endtoend

import (
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	natsgo "github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/penstock-io/penstock/engine/connector/connectortest"
)

// natsServer is a server in this process with the streams "in" and "out".
type natsServer struct {
	url     string
	js      jetstream.JetStream
	in, out jetstream.Stream
}

func startNATS(t testing.TB) *natsServer {
	t.Helper()
	s, err := server.NewServer(&server.Options{
		Host: "127.0.0.1", Port: -1, JetStream: true, StoreDir: t.TempDir(),
		NoLog: true, NoSigs: true,
	})
	if err != nil {
		t.Fatal(err)
	}
	s.Start()
	t.Cleanup(func() { s.Shutdown(); s.WaitForShutdown() })
	if !s.ReadyForConnections(time.Minute) {
		t.Fatal("the server does not start")
	}
	conn, err := natsgo.Connect(s.ClientURL())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(conn.Close)
	n := &natsServer{url: s.ClientURL()}
	if n.js, err = jetstream.New(conn); err != nil {
		t.Fatal(err)
	}
	n.in, n.out = n.stream(t, "in"), n.stream(t, "out")
	return n
}

func (n *natsServer) stream(t testing.TB, name string) jetstream.Stream {
	t.Helper()
	cfg := jetstream.StreamConfig{Name: name, Subjects: []string{name}}
	s, err := n.js.CreateStream(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// publish publishes different messages. After the server has acknowledged a message, publish adds
// it to arrived with a count of 0. It returns the total length of the messages as lines.
func (n *natsServer) publish(t *testing.T, arrived map[string]int, rnd *rand.Rand,
	count int) (total int64) {
	t.Helper()
	var acks []jetstream.PubAckFuture
	first := len(arrived)
	for i := range count {
		text := fmt.Sprintf("record %d %0*d", first+i, 1+rnd.IntN(100), i)
		ack, err := n.js.PublishAsync("in", []byte(text), jetstream.WithStallWait(time.Minute))
		if err != nil {
			t.Fatal(err)
		}
		acks = append(acks, ack)
	}
	for _, ack := range acks {
		select {
		case <-ack.Ok():
			text := string(ack.Msg().Data)
			arrived[text] = 0
			total += int64(len(text) + 1)
		case err := <-ack.Err():
			t.Fatal(err)
		}
	}
	return total
}

// awaitDone waits until a consumer of the stream "in" has no more messages. It fails if the number
// of remaining messages does not fall for a minute.
func (n *natsServer) awaitDone(t *testing.T, durable string) {
	t.Helper()
	deadline, least := time.Now().Add(time.Minute), uint64(math.MaxUint64)
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		c, err := n.in.Consumer(t.Context(), durable)
		if err == nil {
			left := c.CachedInfo().NumPending + uint64(c.CachedInfo().NumAckPending)
			if left < least {
				deadline, least = time.Now().Add(time.Minute), left
			}
		}
		if least == 0 {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("the consumer is not done: %v", err)
		}
		<-tick.C
	}
}

// TestKillNATSFile kills the program while it copies a stream, which it reads by sequence, into a
// file. No record may be lost, and each kill may repeat at most checkpoint.replay and one record.
func TestKillNATSFile(t *testing.T) {
	t.Parallel()
	rnd := seeded(t)
	s := startNATS(t)
	const records, replay, longest = 40_000, 256 << 10, 200
	want := make(map[string]int)
	total := s.publish(t, want, rnd, records)
	dir := t.TempDir()
	config := write(t, filepath.Join(dir, "penstock.yaml"), fmt.Sprintf(`
state: ./state
pipelines:
  crash:
    source: { nats: { url: %q, stream: in } }
    sink: { file: { path: ./out.log, format: raw } }
    batch: { bytes: 16KiB }
    limit: { bytes: 2MB/s } # so that kills strike while it copies
    checkpoint: { replay: %dB, sync: 50ms }
`, s.url, replay))
	written := func() int64 {
		info, err := os.Stat(filepath.Join(dir, "out.log"))
		if err != nil {
			return 0
		}
		return info.Size()
	}
	struck := int64(0)
	for range min(max(2, kills(t)/2), killsPerJob) {
		if killAt(t, config, rnd, total, written) {
			struck++
		}
	}
	if struck == 0 {
		t.Error("no kill struck while records were copied: the test shows nothing")
	}
	once(t, config)
	for line := range strings.Lines(string(read(t, filepath.Join(dir, "out.log")))) {
		want[strings.TrimSuffix(line, "\n")]++
	}
	if len(want) != records {
		t.Errorf("%d different lines, want %d", len(want), records)
	}
	repeated := countCopies(t, want, 1)
	t.Logf("%d kills: 0 of %d records lost, %d bytes repeated", struck, records, repeated)
	if bound := struck * (replay + longest); repeated > bound {
		t.Errorf("%d bytes were repeated after %d kills, want at most %d", repeated, struck, bound)
	}
}

// TestKillNATSSQLite kills the program while it copies a stream, which it reads by sequence, into a
// table. Each record must be in the table once.
func TestKillNATSSQLite(t *testing.T) {
	t.Parallel()
	rnd := seeded(t)
	s := startNATS(t)
	want := make(map[string]int)
	total := s.publish(t, want, rnd, 20_000)
	dir := t.TempDir()
	config := write(t, filepath.Join(dir, "penstock.yaml"), fmt.Sprintf(`
state: ./state
pipelines:
  crash:
    source: { nats: { url: %q, stream: in } }
    sink: { sqlite: { path: ./out.db, table: lines } }
    batch: { bytes: 16KiB }
    limit: { bytes: 1MB/s } # so that kills strike while it copies
    checkpoint: { sync: 50ms }
`, s.url))
	db := connectortest.OpenSQLite(t, filepath.Join(dir, "out.db"))
	connectortest.Execute(t, db, "PRAGMA journal_mode = WAL")
	connectortest.Execute(t, db, "CREATE TABLE lines (message TEXT)")
	written := func() int64 {
		return number(db, `SELECT coalesce(sum(length(message) + 1), 0) FROM lines`)
	}
	struck := 0
	for range 4 {
		if killAt(t, config, rnd, total, written) {
			struck++
		}
	}
	if struck == 0 {
		t.Error("no kill struck while records were copied: the test shows nothing")
	}
	once(t, config)
	for _, text := range connectortest.Column(t, db, `SELECT message FROM lines`) {
		if n, ok := want[text]; !ok || n > 0 {
			t.Fatalf("%q: was published: %v, rows before this one: %d", text, ok, n)
		}
		want[text]++
	}
	countCopies(t, want, 1)
	t.Logf("%d kills: each of %d records is in the table once", struck, len(want))
}

// startShared starts three programs that share a consumer of the stream "in". rest is the part of
// their pipeline after the source.
func (n *natsServer) startShared(t *testing.T, rest string) (members []*member) {
	t.Helper()
	dir := t.TempDir()
	for i := range 3 {
		path := filepath.Join(dir, fmt.Sprint(i), "penstock.yaml")
		m := &member{t: t, config: write(t, path, fmt.Sprintf(`
state: ./state
pipelines:
  copy:
    source: { nats: { url: %q, stream: in, durable: copy, ack_wait: 1s } }%s
    batch: { records: 100 }
`, n.url, rest))}
		m.start()
		members = append(members, m)
	}
	return members
}

// disturbShared publishes messages, kills or suspends members at random moments, and waits until
// the consumer has no more messages. Then it kills all members. It returns the published messages
// with a count of 0.
func (n *natsServer) disturbShared(t *testing.T, members []*member, rnd *rand.Rand,
	strike func(*member)) (arrived map[string]int) {
	t.Helper()
	arrived = make(map[string]int)
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for range kills(t) {
		for range 10 + rnd.IntN(50) {
			<-tick.C
			n.publish(t, arrived, rnd, 200)
		}
		strike(members[rnd.IntN(len(members))])
	}
	n.awaitDone(t, "copy")
	for _, m := range members {
		m.kill()
	}
	return arrived
}

// restart kills the member with SIGKILL and starts it again.
func (m *member) restart() {
	m.kill()
	m.start()
}

// checkOnce fails the test unless each of the published messages is among texts once.
func checkOnce(t *testing.T, arrived map[string]int, texts []string) {
	t.Helper()
	for _, text := range texts {
		if _, ok := arrived[text]; !ok {
			t.Fatalf("%q was never published", text)
		}
		arrived[text]++
	}
	if repeated := countCopies(t, arrived, 0); repeated > 0 {
		t.Errorf("%d bytes have arrived twice", repeated)
	}
	t.Logf("3 programs, struck %d times: each of %d messages is there once", kills(t),
		len(arrived))
}

// TestKillNATSShared runs three programs that share a consumer and copy a stream into another one,
// and kills them at random while records are published. No record may be lost. Records are
// repeated, but their ids must keep the repetitions out of the target stream.
func TestKillNATSShared(t *testing.T) {
	t.Parallel()
	rnd := seeded(t)
	s := startNATS(t)
	members := s.startShared(t, fmt.Sprintf(`
    sink: { nats: { url: %q, subject: out, format: raw } }`, s.url))
	arrived := s.disturbShared(t, members, rnd, (*member).restart)
	got, err := s.out.OrderedConsumer(t.Context(), jetstream.OrderedConsumerConfig{})
	if err != nil {
		t.Fatal(err)
	}
	info, err := s.out.Info(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	list, err := got.Messages()
	if err != nil {
		t.Fatal(err)
	}
	defer list.Stop()
	var texts []string
	for range info.State.Msgs {
		m, err := list.Next(jetstream.NextMaxWait(time.Minute))
		if err != nil {
			t.Fatal(err)
		}
		texts = append(texts, string(m.Data()))
	}
	checkOnce(t, arrived, texts)
}

// TestKillNATSSharedSQLite runs three programs that share a consumer and write to one table, with
// the record's id as the key. It kills them at random. Each record must be in the table once.
func TestKillNATSSharedSQLite(t *testing.T) {
	t.Parallel()
	rnd := seeded(t)
	s := startNATS(t)
	path := filepath.Join(t.TempDir(), "out.db")
	db := connectortest.OpenSQLite(t, path)
	connectortest.Execute(t, db, "PRAGMA journal_mode = WAL")
	connectortest.Execute(t, db, "CREATE TABLE lines (id TEXT PRIMARY KEY, message TEXT)")
	members := s.startShared(t, fmt.Sprintf(`
    processors: [{ set: { id: meta.id } }]
    sink: { sqlite: { path: %q, table: lines, mode: upsert, key: [id] } }`, path))
	arrived := s.disturbShared(t, members, rnd, (*member).restart)
	checkOnce(t, arrived, connectortest.Column(t, db, `SELECT message FROM lines`))
}
