package endtoend

import (
	"bytes"
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/penstock-io/penstock/engine/connector/connectortest"
)

// kafkaPartitions is the number of partitions of a topic.
const kafkaPartitions = 6

// TestKillKafka repeatedly kills the program while it copies a topic into a file. No record may be
// lost, and each kill may repeat at most checkpoint.replay and one record. The session with the
// broker is long, so that it does not end on a busy machine: its end repeats records as well.
func TestKillKafka(t *testing.T) {
	t.Parallel()
	rnd := seeded(t)
	fake, err := kfake.NewCluster(
		kfake.NumBrokers(1), kfake.SeedTopics(kafkaPartitions,
			"in"), kfake.GroupMinSessionTimeout(time.Millisecond),
	)
	if err != nil {
		t.Fatal(err)
	}
	defer fake.Close()
	const records, replay = 40_000, 256 << 10
	want, total, longest := produceNumbered(t, kafkaClient(t, fake.ListenAddrs()), rnd, records)
	dir := t.TempDir()
	config := write(t, filepath.Join(dir, "penstock.yaml"), fmt.Sprintf(`
state: ./state
pipelines:
  crash:
    source: { kafka: { brokers: [%q], topics: [in], group: crash, session_timeout: 3s } }
    sink: { file: { path: ./out.log, format: raw } }
    batch: { bytes: 16KiB }
    limit: { bytes: 2MB/s } # so that kills strike while it copies
    checkpoint: { replay: %dB, sync: 50ms }
`, fake.ListenAddrs()[0], replay))
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
		text := strings.TrimSuffix(line, "\n")
		if _, ok := want[text]; !ok {
			t.Fatalf("%q was never produced", text)
		}
		want[text]++
	}
	repeated := countCopies(t, want, 1)
	t.Logf("%d kills: 0 of %d records lost, %d bytes repeated", struck, records, repeated)
	if bound := struck * (replay + longest); repeated > bound {
		t.Errorf("%d bytes were repeated after %d kills, want at most %d", repeated, struck, bound)
	}
}

// produceNumbered produces different records to the topic "in". It returns a map with a count of 0
// for each record, the total length of the records, and the length of the longest one. The lengths
// include a line end for each record.
func produceNumbered(t *testing.T, client *kgo.Client, rnd *rand.Rand,
	records int) (want map[string]int, total, longest int64) {
	t.Helper()
	want = make(map[string]int)
	for part := 0; part < records; part += 5000 {
		var batch []*kgo.Record
		for n := part; n < part+5000; n++ {
			text := fmt.Sprintf("record %d %0*d", n, 1+rnd.IntN(100), n)
			partition := int32(n % kafkaPartitions)
			record := &kgo.Record{Topic: "in", Partition: partition, Value: []byte(text)}
			batch = append(batch, record)
			want[text] = 0
			total += int64(len(text) + 1)
			longest = max(longest, int64(len(text)+1))
		}
		if err := client.ProduceSync(t.Context(), batch...).FirstErr(); err != nil {
			t.Fatal(err)
		}
	}
	return want, total, longest
}

// TestKillKafkaSQLite kills the program three times while it copies a topic into a table. Each
// record must be in the table once.
func TestKillKafkaSQLite(t *testing.T) {
	t.Parallel()
	rnd := seeded(t)
	fake, err := kfake.NewCluster(
		kfake.NumBrokers(1), kfake.SeedTopics(kafkaPartitions, "in"),
		kfake.GroupMinSessionTimeout(time.Millisecond),
	)
	if err != nil {
		t.Fatal(err)
	}
	defer fake.Close()
	want, total, _ := produceNumbered(t, kafkaClient(t, fake.ListenAddrs()), rnd, 20_000)
	dir := t.TempDir()
	config := write(t, filepath.Join(dir, "penstock.yaml"), fmt.Sprintf(`
state: ./state
pipelines:
  crash:
    source: { kafka: { brokers: [%q], topics: [in], group: crash, session_timeout: 1s } }
    sink: { sqlite: { path: ./out.db, table: lines } }
    batch: { bytes: 16KiB }
    limit: { bytes: 1MB/s } # so that kills strike while it copies
    checkpoint: { sync: 50ms }
`, fake.ListenAddrs()[0]))
	db := connectortest.OpenSQLite(t, filepath.Join(dir, "out.db"))
	connectortest.Execute(t, db, "PRAGMA journal_mode = WAL")
	connectortest.Execute(t, db, "CREATE TABLE lines (message TEXT)")
	written := func() int64 {
		return number(db, `SELECT coalesce(sum(length(message) + 1), 0) FROM lines`)
	}
	struck := 0
	for range 3 {
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
			t.Fatalf("%q: was produced: %v, rows before this one: %d", text, ok, n)
		}
		want[text]++
	}
	countCopies(t, want, 1)
	t.Logf("%d kills: each of %d records is in the table once", struck, len(want))
}

// countCopies fails if a record has not arrived, and returns the bytes that arrived more than once.
func countCopies(t *testing.T, arrived map[string]int, lineEnd int) (repeated int64) {
	t.Helper()
	lost := 0
	for text, n := range arrived {
		if n == 0 {
			if lost++; lost == 1 {
				t.Errorf("%q is lost", text)
			}
		}
		repeated += int64(max(0, n-1) * (len(text) + lineEnd))
	}
	if lost > 0 {
		t.Errorf("%d of %d records are lost", lost, len(arrived))
	}
	return repeated
}

func kafkaClient(t testing.TB, brokers []string, o ...kgo.Opt) *kgo.Client {
	t.Helper()
	client, err := kgo.NewClient(append(o, kgo.SeedBrokers(brokers...),
		kgo.RecordPartitioner(kgo.ManualPartitioner()))...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(client.Close)
	return client
}

// TestKillKafkaGroup runs three programs that copy a topic of a real broker into another one, and
// kills them at random while records are produced. No record may be lost. The number of repeated
// records is printed.
func TestKillKafkaGroup(t *testing.T) {
	g := startCopies(t, toKafka(false), 0)
	for range kills(t) {
		g.produceForAWhile()
		m := g.members[g.rnd.IntN(len(g.members))]
		m.kill()
		m.start()
	}
	repeated := g.finish()
	t.Logf("%d kills of 3 programs: 0 of %d records lost, %d repeated", kills(t), g.ids, repeated)
}

// copies is a set of programs in one consumer group that copy the topic "in" of a real broker, for
// example to the topic "out".
type copies struct {
	t       *testing.T
	rnd     *rand.Rand
	server  *connectortest.Server
	links   []*connectortest.Link // of the members to the broker; empty: they connect directly
	client  *kgo.Client
	admin   *kadm.Client
	members []*member
	tick    *time.Ticker
	arrived map[string]int // by text: the copies; of acknowledged records only
	ids     int
	batch   int // records that are produced at once

	disturbed int // engines that may have repeated records
}

// target is the part of a member's pipeline that follows the source.
type target func(broker string) string

// copySettings are the settings of most targets for batches and progress.
const copySettings = `
    batch: { records: 100 }
    checkpoint: { sync: 100ms }`

func toKafka(transactional bool) target {
	return func(broker string) string {
		return fmt.Sprintf(`
    sink: { kafka: { brokers: [%q], topic: out, format: raw, transactional: %v } }`, broker,
			transactional) + copySettings
	}
}

// startCopies starts a broker and three members. If links is not zero, each member reaches the
// broker through a network link of its own.
func startCopies(t *testing.T, to target, links int) *copies {
	t.Helper()
	if os.Getenv("PENSTOCK_KAFKA") == "" {
		t.Skip("skipped: it starts a real broker; `make kafka-short` runs it")
	}
	dir := t.TempDir()
	g := &copies{
		t: t, rnd: seeded(t), arrived: make(map[string]int),
		tick:  time.NewTicker(20 * time.Millisecond),
		batch: 500,
	}
	t.Cleanup(g.tick.Stop)
	t.Cleanup(g.logs)
	g.server = connectortest.NewServer(t, "kafka", "java")
	t.Setenv("KAFKA_PROPERTIES", write(t, filepath.Join(dir, "kafka.properties"),
		"group.min.session.timeout.ms=1000\n"+g.listeners(links)))
	g.server.Start(t)
	g.client = kafkaClient(t, []string{g.server.URL})
	g.admin = kadm.NewClient(g.client)
	for _, topic := range []string{"in", "out"} {
		if _, err := g.admin.CreateTopic(t.Context(), kafkaPartitions, 1, nil, topic); err != nil {
			t.Fatal(err)
		}
	}
	g.awaitTopics("in", "out")
	for i := range 3 {
		broker := g.server.URL
		if links > 0 {
			broker = g.links[i].Address()
		}
		path := filepath.Join(dir, fmt.Sprint(i), "penstock.yaml")
		m := &member{t: t, config: write(t, path, fmt.Sprintf(`
state: ./state
pipelines:
  copy:
    source:
      kafka: { brokers: [%q], topics: [in], group: copy, session_timeout: 2s, meta: { key: key } }%s
`, broker, to(broker)))}
		m.start()
		g.members = append(g.members, m)
	}
	return g
}

// logs prints the last lines of each member's log if the test has failed.
func (g *copies) logs() {
	if !g.t.Failed() {
		return
	}
	for i, m := range g.members {
		lines := strings.Split(m.printed(), "\n")
		g.t.Logf("log of member %d:\n%s", i,
			strings.Join(lines[max(0, len(lines)-100):], "\n"))
	}
}

// listeners makes network links to the broker and returns the broker's settings. Each link needs
// its own listener, because a broker tells each client the address of the listener to which the
// client has connected.
func (g *copies) listeners(links int) string {
	if links == 0 {
		return ""
	}
	g.t.Helper()
	const all = "PLAINTEXT://%s,CONTROLLER://127.0.0.1:%d"
	controller := connectortest.FreePort(g.t)
	listeners := fmt.Sprintf(all, g.server.Address(), controller)
	advertised := listeners
	protocols := "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT"
	for i := range links {
		address := connectortest.FreeAddress(g.t)
		link := connectortest.NewLink(g.t, address)
		g.links = append(g.links, link)
		listeners += fmt.Sprintf(",LINK%d://%s", i, address)
		advertised += fmt.Sprintf(",LINK%d://%s", i, link.Address())
		protocols += fmt.Sprintf(",LINK%d:PLAINTEXT", i)
	}
	return fmt.Sprintf("listeners=%s\nadvertised.listeners=%s\n"+
		"listener.security.protocol.map=%s\ncontroller.quorum.bootstrap.servers=127.0.0.1:%d\n",
		listeners, advertised, protocols, controller)
}

// awaitTopics waits until the broker knows the topics that the controller has created. A program
// that starts earlier would fail.
func (g *copies) awaitTopics(names ...string) {
	g.t.Helper()
	for deadline := time.Now().Add(time.Minute); ; <-g.tick.C {
		topics, err := g.admin.ListTopics(g.t.Context(), names...)
		ready := err == nil && len(topics) == len(names)
		topics.EachPartition(func(p kadm.PartitionDetail) {
			ready = ready && p.Err == nil && p.Leader >= 0
		})
		topics.EachError(func(kadm.TopicDetail) { ready = false })
		if ready {
			return
		}
		if time.Now().After(deadline) {
			g.t.Fatalf("the topics %q have no leaders: %v", names, err)
		}
	}
}

// produceForAWhile produces for 0.2 to 1.4 seconds.
func (g *copies) produceForAWhile() {
	for range 10 + g.rnd.IntN(60) {
		<-g.tick.C
		g.produce()
	}
}

func (g *copies) produce() {
	var batch []*kgo.Record
	for range g.batch {
		text := fmt.Sprintf("record %d", g.ids)
		partition := int32(g.ids % kafkaPartitions)
		batch = append(batch, &kgo.Record{Topic: "in", Partition: partition, Value: []byte(text),
			Key: fmt.Append(nil, "key ", partition)})
		g.ids++
	}
	if err := g.client.ProduceSync(g.t.Context(), batch...).FirstErr(); err != nil {
		g.t.Fatal(err)
	}
	for _, r := range batch { // logged after the broker's acknowledgement
		g.arrived[string(r.Value)] = 0
	}
}

// finish waits until all records are copied, and fails the test if one is lost. It returns the
// number of repeated records in the target. Records of uncommitted transactions do not count.
func (g *copies) finish() (repeated int) {
	awaitLag(g.t, g.admin, g.tick.C)
	for _, m := range g.members {
		m.kill()
	}
	return g.compare(kafkaTexts(g.t, g.server.URL, g.admin))
}

// compare fails if an acknowledged record is not among texts, and returns the number of repeats.
func (g *copies) compare(texts []string) (repeated int) {
	g.t.Helper()
	for _, text := range texts {
		if _, ok := g.arrived[text]; !ok {
			g.t.Fatalf("%q was never produced", text)
		}
		g.arrived[text]++
	}
	countCopies(g.t, g.arrived, 0)
	for _, n := range g.arrived {
		repeated += max(0, n-1)
	}
	return repeated
}

// member is a program in a group.
type member struct {
	t      testing.TB
	config string
	cmd    *exec.Cmd
	ended  chan error
	mu     sync.Mutex // guards errs
	errs   bytes.Buffer
}

// Write implements io.Writer for the program's standard error.
func (m *member) Write(p []byte) (int, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.errs.Write(p)
}

// printed returns the text that the program has written.
func (m *member) printed() string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.errs.String()
}

func (m *member) start() {
	m.t.Helper()
	bin, err := program()
	if err != nil {
		m.t.Fatal(err)
	}
	m.cmd = exec.Command(bin, "run", m.config)
	m.cmd.Stderr = m
	if err := m.cmd.Start(); err != nil {
		m.t.Fatal(err)
	}
	m.ended = make(chan error, 1)
	go func(cmd *exec.Cmd, ended chan<- error) { ended <- cmd.Wait() }(m.cmd, m.ended)
	m.t.Cleanup(m.kill)
}

// kill ends the member with SIGKILL.
func (m *member) kill() {
	if m.cmd == nil {
		return
	}
	select {
	case err := <-m.ended:
		m.mu.Lock()
		defer m.mu.Unlock()
		m.t.Errorf("a program ended by itself: %v\n%s", err, m.errs.String())
	default:
		_ = m.cmd.Process.Signal(syscall.SIGKILL)
		<-m.ended
	}
	m.cmd = nil
}

// awaitLag waits until the consumer group has committed everything. It fails if the lag does not
// fall for a minute.
func awaitLag(t *testing.T, admin *kadm.Client, tick <-chan time.Time) {
	t.Helper()
	deadline, least := time.Now().Add(time.Minute), int64(math.MaxInt64)
	for {
		lags, err := admin.Lag(kadm.RequireStable(t.Context()), "copy")
		if err == nil && lags.Error() == nil {
			if lag, known := lagOf(lags["copy"].Lag["in"]); known && lag < least {
				deadline, least = time.Now().Add(time.Minute), lag
			}
		}
		if least == 0 {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("the lag does not become 0: %v %v", lags, err)
		}
		<-tick
	}
}

// lagOf returns the lag of all partitions of a topic. known is false if the lag of a partition is
// unknown. There are two causes: the offsets of the partition could not be listed, or its committed
// offset is beyond its end, because it belongs to a deleted topic of the same name. The library's
// sum of the lags cannot be used, because it counts such a partition as 0.
func lagOf(parts map[int32]kadm.GroupMemberLag) (lag int64, known bool) {
	for _, p := range parts {
		if p.Err != nil || p.Commit.At > p.End.Offset {
			return 0, false
		}
		lag += p.Lag
	}
	return lag, len(parts) == kafkaPartitions
}

// kafkaTexts returns the values of the committed records in the topic out.
func kafkaTexts(t *testing.T, broker string, admin *kadm.Client) (all []string) {
	t.Helper()
	ends, err := admin.ListCommittedOffsets(t.Context(), "out")
	if err != nil {
		t.Fatal(err)
	}
	client := kafkaClient(t, []string{broker}, kgo.ConsumeTopics("out"),
		kgo.FetchIsolationLevel(kgo.ReadCommitted()), kgo.KeepControlRecords())
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	at := make(map[int32]int64)
	for ended := false; !ended; {
		got := client.PollFetches(ctx)
		if err := got.Err(); err != nil {
			t.Fatalf("read %d records: %v", len(all), err)
		}
		got.EachRecord(func(r *kgo.Record) {
			at[r.Partition] = r.Offset + 1
			if !r.Attrs.IsControl() {
				all = append(all, string(r.Value))
			}
		})
		ended = true
		ends.Each(func(o kadm.ListedOffset) { ended = ended && at[o.Partition] >= o.Offset })
	}
	return all
}
