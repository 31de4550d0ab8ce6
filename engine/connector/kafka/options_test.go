package kafka_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/sasl/scram"

	"github.com/penstock-io/penstock/engine"
	"github.com/penstock-io/penstock/engine/connector/all"
	"github.com/penstock-io/penstock/engine/connector/connectortest"
)

// base holds the options that every source needs.
const base = "brokers: ['a:1'], group: g, topics: [t], "

// refusals lists wrong options of the source with the error messages.
var refusals = []struct{ name, options, want string }{
	{"no brokers", "group: g, topics: [t]", `kafka.brokers is missing`},
	{"empty brokers", "brokers: [], group: g, topics: [t]", `kafka.brokers is empty`},
	{
		"scheme", "brokers: ['kafka://a:9092'], group: g, topics: [t]",
		`kafka.brokers: "kafka://a:9092" has a scheme; write HOST:PORT, and tls: {enabled: true} for TLS`,
	},
	{"no port", "brokers: [a], group: g, topics: [t]", `kafka.brokers: "a" is not HOST:PORT, such as kafka-1:9092`},
	{
		"bad port", "brokers: ['a:0'], group: g, topics: [t]",
		`kafka.brokers: "a:0" has the port "0", want a number from 1 to 65535`,
	},
	{"broker twice", "brokers: ['a:1', 'a:1'], group: g, topics: [t]", `kafka.brokers: "a:1" stands twice`},
	{"no topics", "brokers: ['a:1'], group: g", `kafka.topics is missing; name topics, or give topic_pattern`},
	{
		"topics and pattern", base + "topic_pattern: x",
		`kafka.topic_pattern: conflicts with topics; set one of them`,
	},
	{"topic twice", "brokers: ['a:1'], group: g, topics: [t, t]", `kafka.topics: "t" stands twice`},
	{
		"name of a topic", "brokers: ['a:1'], group: g, topics: ['a b']",
		`kafka.topics: "a b" holds ' '; names have letters, digits, '.', '_' and '-'`,
	},
	{"empty topic", "brokers: ['a:1'], group: g, topics: ['']", `kafka.topics: a name is empty`},
	{"dots", "brokers: ['a:1'], group: g, topics: ['..']", `kafka.topics: ".." is no name of a topic`},
	{
		"pattern", "brokers: ['a:1'], group: g, topic_pattern: 'a('",
		"kafka.topic_pattern: error parsing regexp: missing closing ): `a(`",
	},
	{"no group", "brokers: ['a:1'], topics: [t]", `kafka.group is missing`},
	{
		"empty group", "brokers: ['a:1'], group: ' ', topics: [t]",
		`kafka.group is empty: processes with the same group share the partitions`,
	},
	{
		"brace", "brokers: ['a:1'], group: 'g-{pipeline}', topics: [t]",
		`kafka.group: "g-{pipeline}" has a brace that is not part of {route}`,
	},
	{
		"start", base + "start: now",
		`kafka.start: there is no "now"; want earliest or latest`,
	},
	{
		"truncated", base + "truncated: latest",
		`kafka.truncated: there is no "latest"; want stop or earliest`,
	},
	{
		"isolation", base + "isolation: none",
		`kafka.isolation: there is no "none"; want read_committed or read_uncommitted`,
	},
	{"memory", base + "memory: 1KiB", `kafka.memory is 1KiB, want 1MiB or more`},
	{
		"session", base + "session_timeout: 1ms",
		`kafka.session_timeout is 1ms, want 1s to 10m0s; brokers allow 6s to 30m by default`,
	},
	{
		"revoke", base + "revoke_timeout: 1m",
		`kafka.revoke_timeout is 1m0s, want more than 0s and at most 15s`,
	},
	{
		"connect", base + "connect_timeout: 0s",
		`kafka.connect_timeout is 0s, want 1ms or more`,
	},
	{
		"two meanings", base + "meta: { key: message }",
		`kafka.meta: the field "message" has two meanings; give one another name`,
	},
	{
		"field twice", base + "meta: { key: k, topic: k }",
		`kafka.meta: the field "k" has two meanings; give one another name`,
	},
	{
		"path", base + "meta: { key: a.b }",
		`kafka.meta: the name "a.b" has a path; write a plain name, and move the field with rename`,
	},
	{
		"no mechanism", base + "sasl: { user: u }",
		`kafka.sasl.mechanism is missing, want one of plain, scram_sha_256, scram_sha_512, oauthbearer`,
	},
	{
		"mechanism", base + "sasl: { mechanism: gssapi }",
		`kafka.sasl.mechanism: there is no "gssapi"; want plain, scram_sha_256, scram_sha_512 or oauthbearer`,
	},
	{
		"no user", base + "sasl: { mechanism: scram_sha_256 }",
		`kafka.sasl.user is missing: mechanism scram_sha_256 needs a user`,
	},
	{
		"no password", base + "sasl: { mechanism: plain, user: u }",
		`kafka.sasl.password is missing: mechanism plain needs a password`,
	},
	{
		"in the clear", base + "sasl: { mechanism: plain, user: u, password: p }",
		`kafka.sasl.mechanism: plain sends the password in the clear; set tls, or insecure: true`,
	},
	{
		"no token", base + "sasl: { mechanism: oauthbearer }",
		`kafka.sasl.token is missing: mechanism oauthbearer needs token or token_file`,
	},
	{
		"token of scram", base + "sasl: { mechanism: scram_sha_256, user: u, password: p, token: t }",
		`kafka.sasl.token: belongs to mechanism oauthbearer, not scram_sha_256`,
	},
	{
		"two tokens", base + "sasl: { mechanism: oauthbearer, token: t, token_file: /f }",
		`kafka.sasl.token_file: conflicts with token; set one of them`,
	},
	{
		"no key", base + "tls: { cert: /c.pem }",
		`kafka.tls.key is missing: add the key of tls.cert`,
	},
	{
		"no cert", base + "tls: { key: /c.pem }",
		`kafka.tls.cert is missing: add the certificate of tls.key`,
	},
	{
		"no authorities", base + "tls: { ca: /missing.pem }",
		`kafka.tls.ca: open /missing.pem: no such file or directory`,
	},
	{"unknown key", base + "topcis: [t]", `kafka has no option "topcis"`},
}

func TestRefusedOptions(t *testing.T) {
	for _, c := range refusals {
		t.Run(c.name, func(t *testing.T) {
			text := "state: /state\npipelines: { p: { source: { kafka: { " + c.options + " } }, sink: drop } }\n"
			_, err := engine.Parse([]byte(text), all.Components()...)
			first, _, _ := strings.Cut(fmt.Sprint(err), "\n")
			if _, message, _ := strings.Cut(first, ": "); message != c.want {
				t.Errorf("got  %s\nwant %s", message, c.want)
			}
		})
	}
}

// TestRefusedByBrokers checks that a mistake that only the brokers can detect ends the run with a
// remedy.
func TestRefusedByBrokers(t *testing.T) {
	t.Parallel()
	plain := newCluster(t, kfake.SeedTopics(1, "orders"))
	locked := newCluster(t, kfake.SeedTopics(1, "orders"), kfake.EnableSASL(),
		kfake.Superuser("SCRAM-SHA-256", "user", "right"))
	nobody := connectortest.FreeAddress(t)
	for _, c := range []struct{ name, brokers, options, want string }{
		{"unknown topic", plain.brokers(), "topics: [order]",
			`topic "order" does not exist: create it, or correct its name`},
		{"nobody listens", "['" + nobody + "']", "topics: [orders]",
			"brokers " + nobody + " cannot be reached: check the addresses: "},
		{
			"wrong password", locked.brokers(),
			"topics: [orders], sasl: { mechanism: scram_sha_256, user: user, password: wrong }",
			"close the connection: check tls and sasl",
		},
		{
			"wrong mechanism", locked.brokers(),
			"topics: [orders], sasl: { mechanism: scram_sha_512, user: user, password: right }",
			"close the connection: check tls and sasl",
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			cl := *plain
			cl.t = t
			started := time.Now()
			n, err := cl.tryAt(newArrivals(), c.brokers,
				route{source: ", connect_timeout: 10s, " + c.options, once: true})
			if err != nil {
				t.Fatal(err)
			}
			if err := n.wait(); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("Run = %v, want %s", err, c.want)
			}
			if strings.Contains(fmt.Sprint(n.err), "wrong\"") || time.Since(started) > patience {
				t.Errorf("the message has the password, or took too long: %v", n.err)
			}
		})
	}
}

// TestTwoRoutes checks that routes cannot share a group, because they would share its partitions.
func TestTwoRoutes(t *testing.T) {
	c := newCluster(t, kfake.SeedTopics(1, "orders"))
	texts := c.produce("orders", "a", 1, 20)
	run := func(group string) error {
		text := "state: /state\npipelines: { p: { source: { kafka: { topics: [orders], brokers: " +
			c.brokers() + ", group: '" + group +
			"' } }, routes: { one: { sink: drop }, two: { sink: drop } } } }\n"
		n, err := c.run(text, newArrivals(), route{once: true})
		if err != nil {
			t.Fatal(err)
		}
		return n.wait()
	}
	const want = "the routes of this pipeline would share the partitions of group \"g\"; write group: g-{route}"
	if err := run("g"); err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("Run = %v, want %s", err, want)
	}
	if err := run("g-{route}"); err != nil {
		t.Fatal(err)
	}
	for _, group := range []string{"g-p.one", "g-p.two"} {
		if at, _ := c.committed(group, "orders", 0); at != int64(len(texts)) {
			t.Errorf("group %s has committed %d, want %d", group, at, len(texts))
		}
	}
}

// TestLogin checks a source that connects with TLS and a password.
func TestLogin(t *testing.T) {
	ca, config := selfSigned(t)
	c := &cluster{t: t, topic: "orders", group: "g"}
	var err error
	c.Cluster, err = kfake.NewCluster(kfake.NumBrokers(1), kfake.SeedTopics(1, "orders"),
		kfake.TLS(config), kfake.EnableSASL(),
		kfake.Superuser("SCRAM-SHA-256", "user", "secret"), kfake.GroupMinSessionTimeout(time.Millisecond))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	pool := x509.NewCertPool()
	text, err := os.ReadFile(ca)
	if err != nil || !pool.AppendCertsFromPEM(text) {
		t.Fatal("no certificate", err)
	}
	withClient(t, c, c.ListenAddrs(), kgo.DialTLSConfig(&tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS12}),
		kgo.SASL(scram.Auth{User: "user", Pass: "secret"}.AsSha256Mechanism()))
	texts := c.produce("orders", "a", 1, 20)
	got := newArrivals()
	login := ", topics: [orders], tls: { ca: " + ca +
		" }, sasl: { mechanism: scram_sha_256, user: user, password: secret }"
	if err := c.runOnce(got, login); err != nil {
		t.Fatal(err)
	}
	checkAll(t, got, texts)
}

// selfSigned returns the path of a certificate for 127.0.0.1, and a server configuration that uses
// it.
func selfSigned(t *testing.T) (path string, config *tls.Config) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "test"}, NotBefore: time.Now().Add(-time.Hour),
		NotAfter: time.Now().Add(time.Hour), IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		IsCA: true, BasicConstraintsValid: true,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	path = filepath.Join(t.TempDir(), "ca.pem")
	if err := os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), 0o600); err != nil {
		t.Fatal(err)
	}
	return path, &tls.Config{Certificates: []tls.Certificate{{Certificate: [][]byte{der},
		PrivateKey: key}}, MinVersion: tls.VersionTLS12}
}
