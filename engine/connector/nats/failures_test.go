package nats_test

import (
	"crypto/rand"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/nats-io/nats-server/v2/server"
	natsgo "github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/nats-io/nkeys"

	"github.com/penstock-io/penstock/engine/connector/connectortest"
)

// fails checks the error of a finite run.
func (c *cluster) fails(options, want string) {
	c.t.Helper()
	n, err := c.try(newArrivals(), route{source: options, once: true})
	if err == nil {
		err = n.wait()
	}
	if err == nil || !strings.Contains(err.Error(), want) {
		c.t.Errorf("the run ended with\n%v\nwant\n%s", err, want)
	}
	if err != nil && strings.Contains(err.Error(), "hush") {
		c.t.Errorf("the error has a secret: %v", err)
	}
}

// TestFailures checks that failures that need an operator have a remedy in the error.
func TestFailures(t *testing.T) {
	t.Parallel()
	c := newCluster(t, nil)
	c.fails(durable, `stream "ORDERS" does not exist at NATS nats://127.0.0.1:`)
	c.fails("", `stream "ORDERS" does not exist at NATS nats://127.0.0.1:`)
	s := c.create(nil)
	create := func(name string, set func(*jetstream.ConsumerConfig)) {
		o := jetstream.ConsumerConfig{
			Durable:    name,
			AckPolicy:  jetstream.AckExplicitPolicy,
			MaxDeliver: -1,
		}
		set(&o)
		if _, err := s.CreateConsumer(t.Context(), o); err != nil {
			t.Fatal(err)
		}
	}
	create("none", func(o *jetstream.ConsumerConfig) { o.AckPolicy = jetstream.AckNonePolicy })
	create("few", func(o *jetstream.ConsumerConfig) { o.MaxDeliver = 5 })
	create("headers", func(o *jetstream.ConsumerConfig) { o.HeadersOnly = true })
	create("groups", func(o *jetstream.ConsumerConfig) {
		o.PriorityPolicy, o.PriorityGroups = jetstream.PriorityPolicyOverflow, []string{"a"}
	})
	create("other", func(o *jetstream.ConsumerConfig) { o.FilterSubject = "orders.a" })
	if _, err := c.js.CreatePushConsumer(t.Context(), "ORDERS", jetstream.ConsumerConfig{
		Durable: "push", DeliverSubject: "x", AckPolicy: jetstream.AckExplicitPolicy,
	}); err != nil {
		t.Fatal(err)
	}
	c.fails(", durable: none",
		`consumer "none" of stream "ORDERS" has the ack policy none, with which messages are lost: it must be explicit`)
	c.fails(", durable: few",
		`consumer "few" of stream "ORDERS" gives up a message after 5 deliveries, which loses it: set max_deliver to -1`)
	c.fails(", durable: headers",
		`consumer "headers" of stream "ORDERS" is headers_only, so that its messages have no data: remove this setting`)
	c.fails(", durable: groups",
		`consumer "groups" of stream "ORDERS" has priority groups, which the source does not support`)
	c.fails(", durable: other",
		`consumer "other" of stream "ORDERS" reads the subjects ["orders.a"], and the option subject is ""`)
	c.fails(", durable: push",
		`consumer "push" of stream "ORDERS" pushes its messages, and only a pull consumer can be shared`)
	c.fails(", durable: d, subject: else.a",
		`stream "ORDERS" takes the subjects ["orders.>"], and the option subject is "else.a": correct it`)
	c.fails(", subject: 'orders'", `the option subject is "orders": correct it`)
	c.fails(", durable: d, domain: hub", `enable it, or check domain`)
	c.fails(", durable: d, tls: { server_name: x }",
		`use tls:// if the server has it, else nats:// without tls`)
}

// TestNoServer checks the error if there is no server at the URL.
func TestNoServer(t *testing.T) {
	t.Parallel()
	port := connectortest.FreePort(t)
	c := &cluster{t: t, port: port}
	c.fails(durable,
		fmt.Sprintf("no server of NATS nats://127.0.0.1:%d answers: check url and tls", port))
}

// TestNoJetStream checks the error of a server without JetStream.
func TestNoJetStream(t *testing.T) {
	t.Parallel()
	c := newCluster(t, func(o *server.Options) { o.JetStream = false })
	c.fails(durable, "enable it")
}

// TestLogins checks the ways to log in.
func TestLogins(t *testing.T) {
	t.Parallel()
	pair, err := nkeys.CreatePair(nkeys.PrefixByteUser)
	if err != nil {
		t.Fatal(err)
	}
	public, _ := pair.PublicKey()
	seed, _ := pair.Seed()
	file := filepath.Join(t.TempDir(), "user.nk")
	if err := os.WriteFile(file, seed, 0o600); err != nil {
		t.Fatal(err)
	}
	secret := rand.Text() + "hush"
	c := newCluster(t, func(o *server.Options) {
		o.Users = []*server.User{{Username: "admin", Password: secret}}
		o.Nkeys = []*server.NkeyUser{{Nkey: public}}
	}, natsgo.UserInfo("admin", secret))
	c.create(nil)
	texts := c.publish("a", 10)
	for _, login := range []string{"user: admin, password: " + secret, "nkey: " + file} {
		got := newArrivals()
		if err := c.start(got, route{source: ", " + login, once: true}).wait(); err != nil {
			t.Fatal(err)
		}
		checkAll(t, got, texts)
	}
	c.fails(", user: admin, password: wronghush",
		"refuses the login: check credentials, nkey, user or token")
	c.fails("", "refuses the login")
}

// TestRevokedLogin checks that a route ends with an error if the server begins to refuse the login
// while the stream is read. Otherwise it would look idle.
func TestRevokedLogin(t *testing.T) {
	t.Parallel()
	for name, options := range map[string]string{"shared": durable, "by sequence": ""} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			app := &server.User{Username: "app", Password: "y"}
			c := newCluster(t, func(o *server.Options) {
				o.Users = []*server.User{{Username: "admin", Password: "x"}, app}
			}, natsgo.UserInfo("admin", "x"))
			c.create(nil)
			texts := c.publish("a", 10)
			got := newArrivals()
			n := c.start(got, route{source: options + ", user: app, password: y"})
			arrived := func() bool { return got.distinct() == len(texts) }
			until(t, "the messages", arrived)
			app.Password = "z"
			c.restartServer()
			const want = "refuses the login: check credentials, nkey, user or token"
			until(t, "the route ends", func() bool {
				return strings.Contains(n.engine.Status().Routes[0].Error, want)
			})
		})
	}
}

// TestDeniedAPI checks the error if the user has no permission for the JetStream API.
func TestDeniedAPI(t *testing.T) {
	t.Parallel()
	c := newCluster(t, func(o *server.Options) {
		o.Users = []*server.User{
			{Username: "admin", Password: "x"},
			{Username: "app", Password: "y", Permissions: &server.Permissions{
				Publish: &server.SubjectPermission{Deny: []string{"$JS.API.CONSUMER.>"}},
			}},
		}
	}, natsgo.UserInfo("admin", "x"))
	c.create(nil)
	c.fails(durable+", user: app, password: y",
		`the user may not do this: grant the permission: nats: permissions violation`)
}
