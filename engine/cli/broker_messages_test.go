package cli

import (
	"fmt"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	natsgo "github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
)

// TestBrokerMessages checks the messages for bad input to pipelines with Kafka, NATS and clusters.
// Each message must name the position of the mistake and the remedy, and none may contain the
// password.
func TestBrokerMessages(t *testing.T) {
	t.Parallel()
	kafka, locked := kafkaOfMessages(t), lockedKafka(t)
	nats, login, bare := natsOfMessages(t), natsServer(t, "right", true), natsServer(t, "", false)
	nobody := closedAddress(t)
	const validate, run = "validate", "run --once"
	source := func(broker, options string) string {
		return fmt.Sprintf("{kafka: {brokers: [%q], connect_timeout: 10s, group: g, %s}}", broker,
			options)
	}
	stream := func(url, options string) string {
		return fmt.Sprintf("{nats: {url: %q, %s}}", url, options)
	}
	into := func(options string) string {
		return fmt.Sprintf("{kafka: {brokers: [%q], topic: out, transactional: true%s}}", kafka,
			options)
	}
	const shared = "state: {nats: {url: \"nats://127.0.0.1:4222\"}}"
	for i, c := range []struct {
		command, state, source, sink, want string
	}{
		// Kafka
		{run, "", source(kafka, "topics: [order]"), "drop",
			`topic "order" does not exist: create it, or correct its name`},
		{run, "", source(nobody, "topics: [orders]"), "drop",
			"brokers " + nobody + " cannot be reached: check the addresses: "},
		{run, "", source(locked, "topics: [orders], sasl: {mechanism: scram_sha_256, user: u, "+
			"password: hunter2}"), "drop", "brokers " + locked + " close the connection: check tls and sasl"},
		{run, "", source(locked, "topics: [orders]"), "drop",
			"brokers " + locked + " close the connection: check tls and sasl"},
		{run, "", strings.Replace(source(kafka, "topics: [orders], tls: {enabled: true}"),
			"10s", "1s", 1), "drop",
			"no broker of " + kafka + " answers: check the addresses, tls and sasl"},
		{run, "", source(kafka, "topics: [short]"), "drop",
			`partition "short/0" is not read: the group's offset is 99, but the log ends at 20: it ` +
				`was truncated or created again; set truncated: earliest to read it from its start`},
		{run, "", source(kafka, "topics: [trimmed]"), "drop",
			`partition "trimmed/0" is not read: 7 offsets from 5 on were deleted before they were ` +
				`read; set truncated: earliest to resume at 12, or reset the group's offset`},
		{run, "", source(kafka, "topics: [again]"), "drop",
			`partition "again/0" is not read: the group's offset 15 was stored for another topic of ` +
				`that name, or changed since; set it with kafka-consumer-groups --reset-offsets`},
		{validate, "", source("kafka://a:9092", "topics: [orders]"), "drop",
			`kafka.brokers: "kafka://a:9092" has a scheme; write HOST:PORT, and tls: {enabled: true} ` +
				`for TLS`},
		{validate, "", source("a:1", "topics: [t], sasl: {mechanism: plain, user: u, "+
			"password: hunter2}"), "drop",
			"kafka.sasl.mechanism: plain sends the password in the clear; set tls, or insecure: true"},
		{validate, "", source("a:1", "topics: [t], sasl: {mechanism: gssapi}"), "drop",
			`kafka.sasl.mechanism: there is no "gssapi"; want plain, scram_sha_256, scram_sha_512 ` +
				`or oauthbearer`},
		{validate, "", "stdin", into(""), "needs source kafka: its offsets are part of the transaction"},
		{validate, "", source("b:1", "topics: [t]"), into(""), "their brokers have none in common"},
		{validate, "", source(kafka, "topics: [t]"), into(", dead_letter_topic: t"),
			`dead_letter_topic: "t" is a topic of the source, so that dead letters would be read ` +
				`again`},
		{run, "", source(kafka, "topics: [orders]"),
			fmt.Sprintf("{kafka: {brokers: [%q], topic: nowhere}}", kafka),
			`topic "nowhere" does not exist: create it, or correct its name`},
		// NATS
		{run, "", stream(nats, "stream: NONE"), "drop", `stream "NONE" does not exist at NATS ` +
			nats + ": create it, or correct its name"},
		{run, "", stream(login, "stream: S, user: admin, password: hunter2"), "drop",
			"NATS " + login + " refuses the login: check credentials, nkey, user or token"},
		{run, "", stream(bare, "stream: S"), "drop",
			"nobody answers for JetStream at NATS " + bare + ": enable it, or check domain"},
		{run, "", stream(nats, "stream: ORDERS, durable: none"), "drop",
			`consumer "none" of stream "ORDERS" has the ack policy none, with which messages are lost: ` +
				`it must be explicit`},
		{run, "", stream(nats, "stream: ORDERS, durable: few"), "drop",
			`consumer "few" of stream "ORDERS" gives up a message after 5 deliveries, which loses it: ` +
				`set max_deliver to -1`},
		{run, "", stream(nats, "stream: ORDERS, durable: other"), "drop",
			`consumer "other" of stream "ORDERS" reads the subjects ["orders.a"], and the option ` +
				`subject is ""`},
		{run, "", stream(nats, "stream: ORDERS, subject: else.a"), "drop",
			`stream "ORDERS" takes the subjects ["orders.>"], and the option subject is "else.a": ` +
				`correct it`},
		{run, "", stream(nats, "stream: ORDERS"),
			fmt.Sprintf("{nats: {url: %q, subject: silent}}", nats),
			`stream "SILENT" has no_ack, so that stored and lost messages cannot be told apart: ` +
				`remove no_ack`},
		{validate, "", stream("nats://u:hunter2@a", "stream: S"), "drop",
			"nats.url: an entry has a user or password"},
		{validate, "", stream("http://a", "stream: S"), "drop",
			"nats.url: the entry of host a has the scheme http, want nats, tls, ws or wss"},
		// clusters
		{validate, shared, "{spool_dir: {path: a}}", "drop", "cannot be shared with `state.nats`"},
		{validate, shared, stream("nats://a", "stream: S"), "{file: {path: out}}",
			"sink file cannot be shared with `state.nats`: it appends"},
		{run, fmt.Sprintf("state: {nats: {url: %q, bucket: ttl, replicas: 1}}", nats),
			stream(nats, "stream: ORDERS"), "drop",
			`bucket "ttl": bucket has a TTL of 1h0m0s, after which progress is lost: use a bucket ` +
				`without a TTL`},
		{run, fmt.Sprintf("state: {nats: {url: %q, bucket: newer, replicas: 1}}", nats),
			stream(nats, "stream: ORDERS"), "drop",
			"progress of p/main in the bucket has format 2, but this penstock reads up to 1: use " +
				"the version that wrote it, or a newer one"},
		{run, fmt.Sprintf("state: {nats: {url: %q, bucket: large, replicas: 3}}", nats),
			stream(nats, "stream: ORDERS"), "drop",
			"it cannot be created with replicas: 3: start that many servers as a cluster, or set " +
				"replicas: 1"},
	} {
		t.Run(fmt.Sprint(i), func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			state := c.state
			if state == "" {
				state = fmt.Sprintf("state: %q", dir+"/state")
			} else {
				dir := fmt.Sprintf("state: {dir: %q, ", dir+"/state")
				state = strings.Replace(state, "state: {", dir, 1)
			}
			path := dir + "/penstock.yaml"
			writeFile(t, path, fmt.Sprintf("%s\nadmin: off\npipelines: {p: {source: %s, sink: %s}}\n",
				state, c.source, c.sink))
			got := realProgram().try(t, append(strings.Fields(c.command), path)...)
			said := got.out + got.stderr
			if got.code == exitOK || !strings.Contains(said, c.want) {
				t.Errorf("%s %s to %s: exit code %d, want an error with %q:\n%s", c.command, c.source,
					c.sink, got.code, c.want, said)
			}
			if strings.Contains(said, "hunter2") {
				t.Errorf("the output has the password:\n%s", said)
			}
		})
	}
}

// kafkaOfMessages returns the address of a broker. The group g has committed offsets that do not
// fit the logs of its topics: beyond the end, before the first record, or with damaged metadata.
func kafkaOfMessages(t *testing.T) string {
	t.Helper()
	k, err := kfake.NewCluster(kfake.NumBrokers(1),
		kfake.SeedTopics(1, "orders", "short", "trimmed", "again", "out"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(k.Close)
	client, err := kgo.NewClient(kgo.SeedBrokers(k.ListenAddrs()...))
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	var records []*kgo.Record
	for n := range 20 {
		for _, topic := range []string{"orders", "short", "trimmed", "again"} {
			records = append(records, &kgo.Record{Topic: topic, Value: fmt.Append(nil, n)})
		}
	}
	if err := client.ProduceSync(t.Context(), records...).FirstErr(); err != nil {
		t.Fatal(err)
	}
	admin := kadm.NewClient(client)
	at := make(kadm.Offsets)
	at.Add(kadm.Offset{Topic: "short", At: 99, LeaderEpoch: -1})
	at.Add(kadm.Offset{Topic: "trimmed", At: 5, LeaderEpoch: -1})
	at.Add(kadm.Offset{Topic: "again", At: 15, LeaderEpoch: -1, Metadata: "penstock1.AAAAAAAA"})
	if err := admin.CommitAllOffsets(t.Context(), "g", at); err != nil {
		t.Fatal(err)
	}
	gone := make(kadm.Offsets)
	gone.AddOffset("trimmed", 0, 12, -1)
	if _, err := admin.DeleteRecords(t.Context(), gone); err != nil {
		t.Fatal(err)
	}
	return k.ListenAddrs()[0]
}

// lockedKafka returns the address of a broker that requires a login.
func lockedKafka(t *testing.T) string {
	t.Helper()
	k, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.SeedTopics(1, "orders"), kfake.EnableSASL(),
		kfake.Superuser("SCRAM-SHA-256", "u", "right"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(k.Close)
	return k.ListenAddrs()[0]
}

// natsServer returns the URL of a server, which requires a login if password is not empty.
func natsServer(t *testing.T, password string, jetStream bool) string {
	t.Helper()
	o := &server.Options{Host: "127.0.0.1", Port: -1, JetStream: jetStream, StoreDir: t.TempDir(),
		NoLog: true, NoSigs: true}
	if password != "" {
		o.Users = []*server.User{{Username: "admin", Password: password}}
	}
	s, err := server.NewServer(o)
	if err != nil {
		t.Fatal(err)
	}
	s.Start()
	t.Cleanup(func() { s.Shutdown(); s.WaitForShutdown() })
	if !s.ReadyForConnections(time.Minute) {
		t.Fatal("the server does not start")
	}
	return s.ClientURL()
}

// natsOfMessages returns the URL of a NATS server. It has consumers, a stream and buckets with
// settings that penstock must refuse.
func natsOfMessages(t *testing.T) string {
	t.Helper()
	url := natsServer(t, "", true)
	conn, err := natsgo.Connect(url)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	js, err := jetstream.New(conn)
	if err != nil {
		t.Fatal(err)
	}
	s, err := js.CreateStream(t.Context(),
		jetstream.StreamConfig{Name: "ORDERS", Subjects: []string{"orders.>"}})
	if err != nil {
		t.Fatal(err)
	}
	for _, o := range []jetstream.ConsumerConfig{
		{Durable: "none", AckPolicy: jetstream.AckNonePolicy},
		{Durable: "few", AckPolicy: jetstream.AckExplicitPolicy, MaxDeliver: 5},
		{Durable: "other", AckPolicy: jetstream.AckExplicitPolicy, MaxDeliver: -1,
			FilterSubject: "orders.a"},
	} {
		if _, err := s.CreateConsumer(t.Context(), o); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := js.CreateStream(t.Context(), jetstream.StreamConfig{Name: "SILENT",
		Subjects: []string{"silent"}, NoAck: true}); err != nil {
		t.Fatal(err)
	}
	if _, err := js.CreateKeyValue(t.Context(),
		jetstream.KeyValueConfig{Bucket: "ttl", TTL: time.Hour}); err != nil {
		t.Fatal(err)
	}
	newer, err := js.CreateKeyValue(t.Context(), jetstream.KeyValueConfig{Bucket: "newer"})
	if err == nil {
		_, err = newer.Put(t.Context(), "progress.p.main", []byte(`{"format":2}`))
	}
	if err != nil {
		t.Fatal(err)
	}
	return url
}

// closedAddress returns an address without a listener.
func closedAddress(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}
