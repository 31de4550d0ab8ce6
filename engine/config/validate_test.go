package config

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/penstock-io/penstock/stream"
)

// built returns a config made in Go from the test's components.
func built() *Config {
	use := func(role stream.Role, name string, options any) Use {
		for _, c := range testComponents() {
			if c.Role == role && c.Name == name {
				return Use{Component: c, Options: options}
			}
		}
		panic("no component " + name)
	}
	r := DefaultRoute("main", "/state")
	r.Processors = []Use{use(stream.ProcessorRole, "where", &whereOptions{Expr: "true"})}
	r.Sink = use(stream.SinkRole, "http", &httpOptions{Endpoints: []string{"http://a"}})
	return &Config{State: "/state", Pipelines: []Pipeline{{
		Name: "access", Source: use(stream.SourceRole, "spool_dir", &spoolOptions{Path: "/spool"}),
		Routes: []Route{r},
	}}}
}

// TestValidate checks that a config built in Go is refused for the same mistakes as a config in a
// file. The error must name the pipeline and the route.
func TestValidate(t *testing.T) {
	if err := built().Validate(); err != nil {
		t.Fatalf("the config that the others are made from: %v", err)
	}
	const in = `pipeline "access", route "main": `
	for _, tc := range []struct {
		name   string
		change func(c *Config, r *Route)
		want   string
	}{
		{"no state", func(c *Config, _ *Route) { c.State = "" }, "state is empty"},
		{"admin",
			func(c *Config, _ *Route) { c.Admin.Address = "0.0.0.0:1" },
			"admin: 0.0.0.0:1 can be reached from other machines"},
		{"telemetry",
			func(c *Config, _ *Route) { c.Telemetry = Telemetry{OTLP: "http://127.0.0.1:4318"} },
			"telemetry: interval is 0s"},
		{"no pipelines", func(c *Config, _ *Route) { c.Pipelines = nil }, "there is no pipeline"},
		{"name", func(c *Config, _ *Route) {
			c.Pipelines[0].Name = "A b"
		}, `pipeline name "A b": use 1 to 64`},
		{"two of a name",
			func(c *Config, _ *Route) { c.Pipelines = append(c.Pipelines, c.Pipelines[0]) },
			`two pipelines are named "access"`},
		{"two routes of a name",
			func(c *Config, r *Route) { c.Pipelines[0].Routes = append(c.Pipelines[0].Routes, *r) },
			`two routes are named "access/main"`},
		{"no routes", func(c *Config, _ *Route) {
			c.Pipelines[0].Routes = nil
		}, `pipeline "access" has no route`},
		{"no source", func(c *Config, _ *Route) {
			c.Pipelines[0].Source = Use{}
		}, `pipeline "access" has no source`},
		{"no sink", func(_ *Config, r *Route) {
			r.Sink = Use{}
		}, `pipeline "access", route "main" has no sink`},
		{"role",
			func(c *Config, r *Route) {
				r.Sink = c.Pipelines[0].Source
			}, in + "spool_dir is a source, not a sink"},
		{"no options", func(_ *Config, r *Route) {
			r.Sink.Options = nil
		}, in + "sink http has no options"},
		{"options",
			func(_ *Config, r *Route) { r.Sink.Options = &httpOptions{Tries: -1} },
			in + "http: tries and ratio do not fit together"},
		{"a zero route", func(_ *Config, r *Route) { r.Drain = 0 }, in + "drain is 0"},
		{"enum",
			func(_ *Config, r *Route) {
				r.Flow.Window = "wide"
			}, in + `flow.window is "wide", want auto, linear,`},
		{"timeout",
			func(_ *Config, r *Route) { r.Flow.Timeout = "2h" },
			in + "flow.timeout (2h) must be shorter than flow.abandon (1m)"},
		{"size", func(_ *Config, r *Route) {
			r.Flow.Size = 3
		}, in + "flow.size needs window: fixed"},
		{"max",
			func(_ *Config, r *Route) { r.Flow.Window, r.Flow.Size, r.Flow.Max = "fixed", 3, 7 },
			in + "flow.max has no effect"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			c := built()
			tc.change(c, &c.Pipelines[0].Routes[0])
			err := c.Validate()
			if one, ok := errors.AsType[*Error](err); !ok ||
				!strings.HasPrefix(one.Error(), tc.want) {
				t.Errorf("got %v, want an *Error that begins %q", err, tc.want)
			}
		})
	}
	c := built()
	r := &c.Pipelines[0].Routes[0]
	r.Flow.Window, r.Flow.Size, r.Retry.Backoff, r.Flow.Order = "fixed", 3, "fixed", "partition"
	if err := c.Validate(); err != nil || r.Retry.Max != r.Retry.Base {
		t.Errorf("a fixed window and backoff: %v, retry.max %v, want that of retry.base", err,
			r.Retry.Max)
	}
}

// TestValidateShowsThePlace loads a config and then changes it in Go. An error in it must have the
// position of the route in the file.
func TestValidateShowsThePlace(t *testing.T) {
	c, dir := mustLoad(t, minimal)
	c.Pipelines[0].Routes[0].Memory = 1
	want := dir + `/penstock.yaml:2:3: pipeline "access", route "main": memory (1B) is smaller`
	if err := c.Validate(); err == nil || !strings.HasPrefix(err.Error(), want) {
		t.Errorf("Validate = %v, want an error that begins %s", err, want)
	}
}

// TestParse checks that text in memory is read like a file.
func TestParse(t *testing.T) {
	c, err := Parse("mail/config", []byte(minimal),
		LoadOptions{Components: testComponents(), Env: noEnv})
	if err != nil || c.State != "mail/state" {
		t.Errorf("Parse = %v, state %q, want mail/state", err, c.State)
	}
	_, err = Parse("config", []byte("pipelnes: {}\n"),
		LoadOptions{Components: testComponents(), Env: noEnv})
	if err == nil || !strings.HasPrefix(err.Error(), "config:1:1: ") ||
		!strings.Contains(err.Error(), `did you mean "pipelines"`) {
		t.Errorf("Parse = %v", err)
	}
	_, err = Parse("config", make([]byte, maxConfigBytes+1), LoadOptions{Env: noEnv})
	if err == nil || !strings.Contains(err.Error(), "is larger than 1MiB") {
		t.Errorf("Parse of a large text = %v", err)
	}
}

// TestEqual loads a config twice and compares the routes, which must be equal. Every change of an
// option must be detected.
func TestEqual(t *testing.T) {
	const text = `
pipelines:
  a:
    source: {spool_dir: {path: /in, include: [a, b]}}
    processors: [{where: x > 1}, {set: {k: v, l: w}}, {drop_fields: [m]}]
    sink: {http: {endpoints: ["http://h"], headers: {A: b}, password: secret, tls: {ca: [/ca]}}}
    batch: {linger: 10ms}
  b: {source: {spool_dir: {path: /in}}, sink: {file: {path: /f, rotate: {bytes: 1KiB}}}, drain: 1s}
  c: {source: {spool_dir: {path: /in}}, sink: "null"}
`
	read := func(from, to string) *Config {
		t.Helper()
		if strings.Count(text, from) < 1 {
			t.Fatalf("the config has no %q", from)
		}
		c, _ := mustLoad(t, strings.Replace(text, from, to, 1))
		return c
	}
	same := func(a, b *Config) bool {
		for i := range a.Pipelines {
			p, q := &a.Pipelines[i], &b.Pipelines[i]
			if !p.Source.Equal(q.Source) || !p.Routes[0].Equal(&q.Routes[0]) {
				return false
			}
		}
		return true
	}
	c := read("a", "a")
	// Dead letters are beneath state, which is in the folder of the test's file.
	for i := range c.Pipelines {
		c.Pipelines[i].Routes[0].DeadLetters.Dir = "/dead"
	}
	for _, change := range [][2]string{
		{"a", "a"}, {"[a, b]", "[a]"}, {"path: /in,", "path: /on,"}, {"x > 1", "x > 2"},
		{"k: v", "k: u"}, {"k: v, ", ""}, {"[m]", "[n]"},
		{"A: b", "A: c"}, {"secret", "public"}, {"/ca", "/cb"}, {"10ms", "11ms"},
		{", rotate: {bytes: 1KiB}", ""}, {"1KiB", "2KiB"},
		{"1s", "2s"}, {`"null"`, "drop"}, {"{where: x > 1}, ", ""},
	} {
		other := read(change[0], change[1])
		for i := range other.Pipelines {
			other.Pipelines[i].Routes[0].DeadLetters.Dir = "/dead"
		}
		if want := change[0] == change[1]; same(c, other) != want {
			t.Errorf("with %q in place of %q: equal is %v, want %v", change[1], change[0], !want,
				want)
		}
	}
	a, off := Admin{Address: "127.0.0.1:1", Token: "t"}, Admin{Address: AdminOff}
	if b := a; !a.Equal(&b) || a.Equal(&off) || !off.Equal(&Admin{}) ||
		a.Equal(&Admin{Address: "127.0.0.1:1", Token: "u"}) {
		t.Error("admin addresses are not compared")
	}
	if r := c.Pipelines[0].Routes[0]; r.Drain != 30*time.Second {
		t.Errorf("drain is %v", r.Drain)
	}
}
