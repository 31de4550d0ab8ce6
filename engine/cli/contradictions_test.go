package cli

import (
	"strings"
	"testing"

	"github.com/penstock-io/penstock/engine"
	"github.com/penstock-io/penstock/engine/connector/all"
)

// TestContradictions checks that a config is refused if two of its options contradict each other,
// or if an option has no effect because of another one. It also checks that an option may
// contradict the default of another one.
func TestContradictions(t *testing.T) {
	const (
		sourceOf = "state: s\npipelines: { p: { source: { %s }, sink: { drop: } } }"
		sinkOf   = "state: s\npipelines: { p: { source: { stdin: }, sink: { %s } } }"
		procOf   = "state: s\npipelines: { p: { source: { stdin: }, processors: [{ %s }], sink: { drop: } } }"
	)
	for _, c := range []struct{ form, component, want string }{
		{sinkOf, "exec: { command: [cat], timeout: 5s }",
			"timeout: needs protocol storm, but this is lines; flow.abandon limits an attempt"},
		{sinkOf, "exec: { command: [cat], protocol: storm, timeout: 5s }", ""},
		{sinkOf, "exec: { command: [cat], pending: 5 }", "pending: needs protocol storm"},
		{procOf, "exec: { command: [cat], pending: 5 }", "pending: needs protocol storm"},
		{procOf, "exec: { command: [cat], protocol: storm, pending: 5 }", ""},
		{sinkOf, "http: { url: message, allow: { hosts: [a.example] }, limit: { burst: 3 } }",
			"limit.burst: needs rate"},
		{sinkOf, "http: { url: message, allow: { hosts: [a.example] }, timeout: 5s }", ""},
		{sinkOf, "http: { url: message, allow: { hosts: [a.example] }, timeout: 5s, " +
			"connect_timeout: 6s }", "connect_timeout is 6s, longer than timeout"},
		{sourceOf, "spool_dir: { path: s }", "it would read s/checkpoint.log, a file of the state"},
		{sourceOf, "spool_dir: { path: ., recursive: true }", "it would read s/checkpoint.log"},
		{sourceOf, "spool_dir: { path: ., recursive: true, exclude: ['s/*'] }", ""},
		{sourceOf, "spool_dir: { path: . }", ""},
		{sourceOf, "tail: { include: ['./**/*.log'] }", "it would read s/checkpoint.log"},
		{sourceOf, "tail: { include: ['*/*.lock'] }", "it would read s/penstock.lock"},
		{sourceOf, "tail: { include: ['*/*.txt'] }", ""},
		{sourceOf, "http_server: { listen: 127.0.0.1:0, deadline: 5s }", ""},
		{sourceOf, "http_server: { listen: 127.0.0.1:0, deadline: 5s, header_timeout: 6s }",
			"header_timeout is 6s, longer than deadline"},
		{sourceOf, "otlp: { listen: 127.0.0.1:0, deadline: 5s, read_timeout: 6s }",
			"read_timeout is 6s, longer than deadline"},
		{sourceOf, "nats: { url: nats://a.example, stream: S, ack_wait: 5s }",
			"ack_wait: needs durable"},
		{sourceOf, "nats: { url: nats://a.example, stream: S, max_ack_pending: 5 }",
			"max_ack_pending: needs durable"},
		{sourceOf, "nats: { url: nats://a.example, stream: S, durable: d, ack_wait: 5s, " +
			"max_ack_pending: 5 }", ""},
		{sourceOf, "socket: { network: udp, listen: 127.0.0.1:0, delimiter: nul }",
			"delimiter: has no effect with network udp"},
		{sourceOf, "socket: { network: tcp, listen: 127.0.0.1:0, delimiter: nul }", ""},
	} {
		text := strings.Replace(c.form, "%s", c.component, 1)
		_, err := engine.Parse([]byte(text), all.Components()...)
		if c.want == "" && err != nil || c.want != "" &&
			(err == nil || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%s: %v, want %q", c.component, err, c.want)
		}
	}
}

// TestStateOfBuiltConfig checks that a config that was changed in Go is refused if a source reads
// the state directory.
func TestStateOfBuiltConfig(t *testing.T) {
	c, err := engine.Parse([]byte("state: s\npipelines: { p: { source: { spool_dir: { path: in } }, "+
		"sink: { drop: } } }"), all.Components()...)
	if err != nil {
		t.Fatal(err)
	}
	c.State = "in"
	const want = "it would read in/checkpoint.log"
	if err := c.Validate(); err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("%v, want %q", err, want)
	}
}
