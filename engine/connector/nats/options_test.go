package nats_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/penstock-io/penstock/engine"
	"github.com/penstock-io/penstock/engine/connector/all"
)

// Options that every source and every sink needs.
const (
	source = "url: 'nats://a:4222', stream: S, "
	sink   = "url: 'nats://a:4222', subject: s, "
)

// refusals lists wrong options with the error messages.
var refusals = []struct{ name, role, options, want string }{
	{"no url", "source", "stream: S", `nats.url is missing`},
	{"no stream", "source", "url: 'nats://a'", `nats.stream is missing`},
	{
		"no URL",
		"source",
		"url: 'a:4222', stream: S",
		`nats.url: an entry is not a URL such as nats://nats-1:4222`,
	},
	{"password in URL", "source", "url: 'nats://u:hush@a', stream: S",
		`nats.url: an entry has a user or password; use the options user and password, or token`},
	{
		"scheme",
		"source",
		"url: 'http://a', stream: S",
		`nats.url: the entry of host a has the scheme http, want nats, tls, ws or wss`,
	},
	{
		"path",
		"source",
		"url: 'nats://a/b', stream: S",
		`nats.url: the entry of host a has a path or query; stream and subject are options`,
	},
	{
		"stream",
		"source",
		"url: 'nats://a', stream: 'a.b'",
		`nats.stream: "a.b" holds '.'; names have no space`,
	},
	{
		"durable",
		"source",
		source + "durable: 'a b'",
		`nats.durable: "a b" holds ' '; names have no space`,
	},
	{
		"subject",
		"source",
		source + "subject: 'a..b'",
		`nats.subject: "a..b" has an empty token: two dots, or one at an end`,
	},
	{
		"wildcard",
		"source",
		source + "subject: 'a.>.b'",
		`nats.subject: "a.>.b" has > before its end`,
	},
	{"ack_wait", "source", source + "ack_wait: 10ms", `nats.ack_wait is 10ms, want 1s to 1h`},
	{
		"max_ack_pending",
		"source",
		source + "max_ack_pending: 0",
		`nats.max_ack_pending is 0, want 1 to 1000000`,
	},
	{"memory", "source", source + "memory: 1KiB", `nats.memory is 1KiB, want 1MiB to 1GiB`},
	{
		"start",
		"source",
		source + "start: now",
		`nats.start: there is no "now"; want earliest or latest`,
	},
	{
		"truncated",
		"source",
		source + "durable: d, truncated: earliest",
		`nats.truncated: has no effect with durable`,
	},
	{
		"meta",
		"source",
		source + "meta: { subject: message }",
		`nats.meta: the field "message" has two meanings`,
	},
	{
		"two logins",
		"source",
		source + "user: a, token: b",
		`credentials, nkey, user and token exclude each other; give one of them`,
	},
	{
		"password alone",
		"source",
		source + "password: b",
		`nats.user is missing: name the user of password`,
	},
	{
		"no file",
		"source",
		source + "credentials: /nowhere/x.creds",
		`nats.credentials: open /nowhere/x.creds: no such file or directory`,
	},
	{
		"no key",
		"source",
		source + "nkey: NOKEY",
		`has no seed of a user's NKey: the line after the header must begin with SU`,
	},
	{
		"half a pair",
		"source",
		source + "tls: { cert: x }",
		`nats.tls.key is missing: add the key of tls.cert`,
	},
	{
		"connect_timeout",
		"source",
		source + "connect_timeout: 0s",
		`nats.connect_timeout is 0s, want 1ms to 1h`,
	},
	{"no subject", "sink", "url: 'nats://a:4222'", `nats.subject is missing`},
	{
		"wrong expression",
		"sink",
		"url: 'nats://a:4222', subject: '\"a.\" + nothing('",
		`nats.subject`,
	},
	{"format", "sink", sink + "format: xml", `nats.format: there is no "xml"; want json or raw`},
	{"header", "sink", sink + "headers: { Nats-Msg-Id: message }",
		`names that begin with Nats- have a meaning for the server; the option id sets Nats-Msg-Id`},
	{
		"header name",
		"sink",
		sink + "headers: { 'a b': message }",
		`the name has ' ', which is not allowed in a header name`,
	},
}

func TestRefusals(t *testing.T) {
	noKey := filepath.Join(t.TempDir(), "seed")
	if err := os.WriteFile(noKey, []byte("-----BEGIN USER NKEY SEED-----\nhush\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range refusals {
		t.Run(c.name, func(t *testing.T) {
			from, to := "stdin", "stdout"
			options := fmt.Sprintf("{ nats: { %s } }",
				strings.ReplaceAll(c.options, "NOKEY", noKey))
			if c.role == "source" {
				from = options
			} else {
				to = options
			}
			_, err := engine.Parse(
				[]byte(fmt.Sprintf("pipelines: { p: { source: %s, sink: %s } }", from, to)),
				all.Components()...)
			if err == nil {
				t.Fatal("the options are accepted")
			}
			if !strings.Contains(err.Error(), c.want) {
				t.Errorf("the error is\n%v\nwant\n%s", err, c.want)
			}
			if strings.Contains(err.Error(), "hush") {
				t.Errorf("the error has a secret: %v", err)
			}
		})
	}
}
