package engine_test

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/penstock-io/penstock/engine"
	"github.com/penstock-io/penstock/engine/config"
	"github.com/penstock-io/penstock/engine/connector/all"
)

// everything names each built-in component with options of every kind.
const everything = `
state: /state
pipelines:
  spool:
    source: {spool_dir: {path: /spool, include: ["*.log"], finished: rename}}
    routes:
      file:
        processors:
          - parse: {format: combined}
          - where: status >= 400 and path startsWith "/api/"
          - set: {site: '"shop"', kib: (size ?? 0) / 1024}
          - drop: [identity, user]
          - rename: {agent: user_agent}
        sink: {file: {path: /out, rotate: {bytes: 1MiB}}}
      regex:
        processors: [{parse: {format: regex, pattern: '^(?P<n>\d+) (?P<text>.*)$', types: {n: integer}}}]
        sink:
          http: {endpoints: ["http://h", {dns: w, port: 80}, {srv: s.w}], body: raw, headers: {A: b}}
      dissect:
        processors: [{parse: {format: dissect, pattern: "%{a} %{b}"}}, {exec: {command: [cat]}}]
        sink: {sqlite: {path: /db, table: t, columns: {a: c, b: d}}}
  tail:
    source: {tail: {include: [/var/log/*.log]}}
    routes:
      postgres: {processors: [{parse: {format: json}}], sink: {postgres: {url: "postgres://u:p@h/d", table: t, columns: [a]}}}
      mysql: {processors: [{parse: {format: json}}], sink: {mysql: {url: "u:p@tcp(h)/d", table: t, columns: [a]}}}
      exec: {sink: {exec: {command: [cat]}}}
  table:
    source: {table: {sqlite: /db, table: t, order_by: [id]}}
    sink: drop
  command:
    source: {exec: {command: [df], every: 1m, timeout: 30s}}
    sink: drop
  journal:
    source: {journald: {units: [nginx.service]}}
    sink: drop
  pipe:
    source: stdin
    sink: stdout
  datagrams:
    source: {syslog: {listen: "127.0.0.1:9"}}
    sink: drop
  streams:
    source: {socket: {listen: "127.0.0.1:10"}}
    sink: drop
  telemetry:
    source: {otlp: {listen: "127.0.0.1:11"}}
    sink: drop
  pushed:
    source: {http_server: {listen: "127.0.0.1:9"}}
    sink: drop
  polled:
    source:
      http_poll: {url: "http://u:p@h/", records: body.items, next: last?.id, cursor: c, id: id}
    sink:
      http:
        url: '"https://shop.example/" + message'
        allow: {hosts: [shop.example]}
        schedule: 'plan == "gold" ? "1s 2s" : ""'
        exhausted: keep
        limit: {rate: 10/s, burst: 3}
        async: {location: headers.location, done: status == 200}
  search:
    source: {spool_dir: {path: ./search}}
    processors: [{parse: {format: json}}]
    sink:
      elasticsearch:
        endpoints: ["https://h:9200"]
        data_stream: '"logs-" + app'
        timestamp: at
        routing: app
        api_key: "a:b"
  lines:
    source: {spool_dir: {path: ./lines}}
    sink: {loki: {endpoints: ["http://h:3100"], labels: {job: x}, tenant: t}}
  rows:
    source: {spool_dir: {path: ./rows}}
    sink: {clickhouse: {endpoints: ["http://h:8123"], table: t, settings: {max_threads: 1}}}
  topics:
    source: {kafka: {brokers: ["h:9092"], topics: [a, b], group: g}}
    sink: {kafka: {brokers: ["h:9092"], topic: t, key: message}}
  letters:
    source:
      kafka: {brokers: ["h:9092"], topics: [a], group: letters}
    sink:
      kafka:
        brokers: ["h:9092"]
        topic: t
        transactional: true
        dead_letter_topic: dead
  standby:
    source:
      http_server: {listen: "127.0.0.1:12", ack: buffered, buffer: {bytes: 1GiB}}
    sink:
      failover:
        - http: {endpoints: ["http://h"], body: raw}
        - loki: {endpoints: ["http://h:3100"], labels: {job: x}}
  subjects:
    source: {nats: {url: "nats://h", stream: S, durable: d}}
    sink: {nats: {url: "nats://h", subject: '"s." + message', headers: {A: message}}}
`

// TestUnchangedConfigIsEqual reads each config twice. The sources and routes of the two results
// must be equal, because Apply restarts those that differ. Values that components derive from their
// options, such as compiled expressions, must not make a difference.
func TestUnchangedConfigIsEqual(t *testing.T) {
	files, err := filepath.Glob("../examples/*/penstock.yaml")
	files = slices.DeleteFunc(files, func(path string) bool {
		_, err := os.Stat(filepath.Join(filepath.Dir(path), "go.mod"))
		return err == nil // it names components of its own
	})
	if err != nil || len(files) < 4 {
		t.Fatalf("found %v, %v", files, err)
	}
	everyday := filepath.Join(t.TempDir(), "penstock.yaml")
	if err := os.WriteFile(everyday, []byte(everything), 0o600); err != nil {
		t.Fatal(err)
	}
	used := map[string]bool{}
	for _, path := range append(files, everyday) {
		a, err := engine.Load(path, all.Components()...)
		if err != nil {
			t.Fatal(err)
		}
		b, err := engine.Load(path, all.Components()...)
		if err != nil {
			t.Fatal(err)
		}
		for i := range a.Pipelines {
			p, q := &a.Pipelines[i], &b.Pipelines[i]
			if used[p.Source.Component.Name] = true; !p.Source.Equal(q.Source) {
				t.Errorf("%s: source %s differs from itself", path, p.Source.Component.Name)
			}
			for j := range p.Routes {
				r, s := &p.Routes[j], &q.Routes[j]
				if !r.Equal(s) {
					t.Errorf("%s: route %s/%s differs from itself", path, p.Name, r.Name)
				}
				for _, u := range append(r.Processors, r.Sink) {
					used[string(u.Component.Role)+" "+u.Component.Name+u.Component.When] = true
				}
			}
		}
	}
	if want := len(all.Components()); len(used) != want {
		t.Errorf("%d of %d components were compared: %v", len(used), want, used)
	}
}

// TestNewRefuses checks that New returns typed errors and creates no file.
func TestNewRefuses(t *testing.T) {
	t.Chdir(t.TempDir())
	cfg, err := engine.Parse([]byte("pipelines: {p: {source: countdown, sink: console}}"),
		components...)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := engine.New(cfg, engine.Options{}); err != nil {
		t.Fatal(err)
	}
	cfg.Pipelines[0].Routes[0].Batch.Bytes = -1
	_, err = engine.New(cfg, engine.Options{})
	const want = `config:1:13: pipeline "p", route "main": batch.bytes`
	if _, ok := errors.AsType[*config.Error](err); !ok || !strings.HasPrefix(err.Error(), want) {
		t.Errorf("New = %v, want a *config.Error that begins %s", err, want)
	}
	if files, _ := filepath.Glob("*"); len(files) > 0 {
		t.Errorf("New made %v", files)
	}
}
