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
        sink: {http: {endpoints: ["http://h"], body: raw, headers: {A: b}}}
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
  pipe:
    source: stdin
    sink: stdout
  datagrams:
    source: {syslog: {listen: "127.0.0.1:9"}}
    sink: drop
  streams:
    source: {socket: {listen: "127.0.0.1:10"}}
    sink: drop
  pushed:
    source: {http_server: {listen: "127.0.0.1:9"}}
    sink: drop
`

// TestUnchangedConfigIsEqual: whatever a component derives from its options, reading a config again
// makes equal routes, so that Apply restarts none.
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
					used[string(u.Component.Role)+" "+u.Component.Name] = true
				}
			}
		}
	}
	if want := len(all.Components()); len(used) != want {
		t.Errorf("%d of %d components were compared: %v", len(used), want, used)
	}
}

// TestNewRefuses: New returns typed errors, and makes no file.
func TestNewRefuses(t *testing.T) {
	t.Chdir(t.TempDir())
	cfg, err := engine.Parse([]byte("pipelines: {p: {source: countdown, sink: console}}"), components...)
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
