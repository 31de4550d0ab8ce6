package config

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/penstock-io/penstock/stream"
)

// loadText loads a config from penstock.yaml in a new directory.
func loadText(t *testing.T, text string) (*Config, string, error) {
	t.Helper()
	dir := t.TempDir()
	path := filepath.Join(dir, "penstock.yaml")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	f, err := Load(path, LoadOptions{Components: testComponents(), Env: noEnv})
	return f, dir, err
}

func noEnv(string) (string, bool) { return "", false }

func mustLoad(t *testing.T, text string) (*Config, string) {
	t.Helper()
	f, dir, err := loadText(t, text)
	if err != nil {
		t.Fatalf("%v\nin\n%s", err, text)
	}
	if err := f.Validate(); err != nil {
		t.Errorf("Load accepts what Validate refuses: %v\nin\n%s", err, text)
	}
	return f, dir
}

const minimal = "pipelines:\n  access:\n    source: {spool_dir: {path: in}}\n    sink: {drop: {}}\n"

// TestDefaults pins all defaults, because existing configs rely on them.
func TestDefaults(t *testing.T) {
	f, dir := mustLoad(t, minimal)
	want := Route{
		Name:  "main",
		Sink:  f.Pipelines[0].Routes[0].Sink,
		Batch: Batch{Bytes: 256 << 10, Records: 5000, Linger: 200 * time.Millisecond},
		Flow: Flow{
			Window: "auto", Initial: 1, Max: 1000, Threshold: "auto", Step: "per_round",
			Dispatch: "least_completion",
			Timeout:  "auto", Abandon: time.Minute, Redeliver: 0.1, RedeliverRate: 10,
			Poison: 3, Poisoned: "keep", TraceMax: 256 << 20,
		},
		Retry: Retry{
			Backoff: "exponential", Base: 250 * time.Millisecond, Max: 30 * time.Second,
			Jitter:    "full",
			Exhausted: "keep", Waiting: Waiting{Records: 2_000_000},
		},
		DeadLetters: DeadLetters{Dir: filepath.Join(dir, "state", "dead"), Max: 1 << 30},
		Guard:       Guard{Share: 0.1, Records: 1000},
		Checkpoint:  Checkpoint{Replay: 32 << 20, Sync: time.Second},
		Memory:      32 << 20,
		Drain:       30 * time.Second,
		Where:       Place{File: filepath.Join(dir, "penstock.yaml"), Line: 2, Column: 3},
	}
	if got := f.Pipelines[0].Routes[0]; !reflect.DeepEqual(plain(got), plain(want)) {
		t.Errorf("defaults\n%+v\nwant\n%+v", got, want)
	}
	if f.State != filepath.Join(dir, "state") || f.Admin.On() || f.Pipelines[0].Name != "access" {
		t.Errorf("file %+v", f)
	}
	left, err := os.ReadDir(dir)
	if err != nil || len(left) != 1 {
		t.Errorf("loading left %v in the folder, %v; want the config alone", left, err)
	}
}

// plain returns a copy of the route without its functions, because functions cannot be compared.
func plain(r Route) Route {
	r.Sink.Component.Options, r.Sink.Component.New = nil, nil
	return r
}

func TestDefaultRouteIsWhatLoadGives(t *testing.T) {
	f, dir := mustLoad(t, minimal)
	want := DefaultRoute(MainRoute, filepath.Join(dir, "state"))
	want.Sink, want.Where = f.Pipelines[0].Routes[0].Sink, f.Pipelines[0].Routes[0].Where
	if got := f.Pipelines[0].Routes[0]; !reflect.DeepEqual(plain(got), plain(want)) {
		t.Errorf("got\n%+v\nwant\n%+v", got, want)
	}
}

// TestFormsOfAComponent checks the three notations of a component without options.
func TestFormsOfAComponent(t *testing.T) {
	for _, sink := range []string{"{drop: {}}", "{drop: }", "drop", `"drop"`, "{null: }", "'null'",
		"\n      drop:", "{drop: ~}"} {
		f, _ := mustLoad(t,
			"pipelines:\n  a:\n    source: {spool_dir: {path: in}}\n    sink: "+sink+"\n")
		if name := f.Pipelines[0].Routes[0].Sink.Component.Name; name != "drop" && name != "null" {
			t.Errorf("sink: %s is %q", sink, name)
		}
	}
}

func TestOptionsOfEveryType(t *testing.T) {
	f, dir := mustLoad(t, `
pipelines:
  a:
    source:
      spool_dir: {path: /abs, include: ["*.log", 007, a/*, "**/b", /c/d, e/], order: name,
        recursive: true, settle: 1m30s, max_record: 1.5MiB, level: warn}
    processors:
      - where: status >= 400
      - where: {expr: a != b, on_error: pass}
      - set: {a: "1", b: x > 2}
      - drop_fields: [a, b]
    sink:
      http:
        endpoints: ["https://me:pw@h/in"]
        headers: {Authorization: 'Bearer #1', X-Number: 0x10}
        password: 0123
        user: yes
        ratio: 1e-3
        tries: 7
        weights: {a: 1, b: -2}
        tls: {ca: [ca.pem, /etc/ca.pem], hosts: {allow: [a, b]}}
        accept: status == 200
`)
	spool := spoolOptions{
		Path: "/abs", Order: "name", Recursive: true,
		Settle: 90 * time.Second, MaxRecord: 3 << 19,
		Include: []string{"*.log", "007", filepath.Join(dir, "a/*"), "**/b", "/c/d", "e/"},
		Level:   slog.LevelWarn,
	}
	if got := f.Pipelines[0].Source.Options.(*spoolOptions); !reflect.DeepEqual(*got, spool) {
		t.Errorf("spool_dir\n%+v\nwant\n%+v", *got, spool)
	}
	sink := httpOptions{
		Endpoints: []string{"https://me:pw@h/in"},
		Headers:   map[string]string{"Authorization": "Bearer #1", "X-Number": "0x10"},
		Password:  "0123", User: "yes", Ratio: 0.001, Tries: 7,
		Weights: map[string]int{"a": 1, "b": -2}, Accept: "status == 200",
	}
	sink.TLS.CA = []string{filepath.Join(dir, "ca.pem"), "/etc/ca.pem"}
	sink.TLS.Hosts.Allow = []string{"a", "b"}
	if got := f.Pipelines[0].Routes[0].Sink.Options.(*httpOptions); !reflect.DeepEqual(*got, sink) {
		t.Errorf("http\n%+v\nwant\n%+v", *got, sink)
	}
	var processors []any
	for _, p := range f.Pipelines[0].Routes[0].Processors {
		processors = append(processors, reflect.ValueOf(p.Options).Elem().Interface())
	}
	want := []any{
		whereOptions{"status >= 400", "dead_letter"}, whereOptions{"a != b", "pass"},
		map[string]string{"a": "1", "b": "x > 2"}, []string{"a", "b"},
	}
	if !reflect.DeepEqual(processors, want) {
		t.Errorf("processors %+v, want %+v", processors, want)
	}
}

func TestPointerOption(t *testing.T) {
	f, _ := mustLoad(t, strings.Replace(minimal, "{drop: {}}", "{file: {path: out, rotate: "+
		"{bytes: 1GB, keep: 3}}}", 1))
	o := f.Pipelines[0].Routes[0].Sink.Options.(*fileOptions)
	if o.Rotate == nil || *o.Rotate != (rotateOptions{1e9, 3}) || o.Format != "ndjson" {
		t.Errorf("options %+v, rotate %+v", o, o.Rotate)
	}
	f, _ = mustLoad(t, strings.Replace(minimal, "{drop: {}}", "{file: {path: out}}", 1))
	if o := f.Pipelines[0].Routes[0].Sink.Options.(*fileOptions); o.Rotate != nil {
		t.Errorf("rotate without being asked: %+v", o.Rotate)
	}
}

func TestExpansion(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "token"), []byte("t0k€n: ${HOST}\r\n"),
		0o600); err != nil {
		t.Fatal(err)
	}
	env := map[string]string{"HOST": "h", "EMPTY": "", "BAD": "a: [b, *c] #d\ne", "N": "0123"}
	for in, want := range map[string]string{
		"plain":                        "plain",
		"${HOST}":                      "h",
		"a${HOST}b${HOST}":             "ahbh",
		"${HOST:-x}":                   "h",
		"${NOPE:-x}":                   "x",
		"${NOPE:-}":                    "",
		"${EMPTY:-x}":                  "x",
		"${EMPTY}":                     "",
		"${N}":                         "0123",
		"${BAD}":                       "a: [b, *c] #d\ne",
		"$${HOST}":                     "${HOST}",
		"$$${HOST}":                    "$${HOST}",
		"$":                            "$",
		"$HOST ^a$ $$":                 "$HOST ^a$ $$",
		"${file:token}":                "t0k€n: ${HOST}",
		"${file:" + dir + "/token}|":   "t0k€n: ${HOST}|",
		"${NOPE:-https://x/?a=1&b=:-}": "https://x/?a=1&b=:-",
	} {
		path := filepath.Join(dir, "penstock.yaml")
		text := "pipelines:\n  a:\n    source: {spool_dir: {path: in}}\n    sink: {http: " +
			"{endpoints: [http://h], password: '" + in + "'}}\n"
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		f, err := Load(path,
			LoadOptions{Components: testComponents(), Env: func(name string) (string, bool) {
				v, ok := env[name]
				return v, ok
			}})
		if err != nil {
			t.Errorf("%q: %v", in, err)
			continue
		}
		if got := f.Pipelines[0].Routes[0].Sink.Options.(*httpOptions).Password; got != want {
			t.Errorf("%q gives %q, want %q", in, got, want)
		}
	}
}

// TestStateForms checks that a folder and a mapping with that folder mean the same.
func TestStateForms(t *testing.T) {
	for _, text := range []string{"state: s", "state: {dir: s}"} {
		f, dir := mustLoad(t, text+"\n"+minimal)
		if f.State != filepath.Join(dir, "s") || f.Cluster.On() {
			t.Errorf("%s: state %q and cluster %+v, want the folder alone", text, f.State,
				f.Cluster)
		}
	}
}

// TestLongForm checks a config with several routes for one source.
func TestLongForm(t *testing.T) {
	f, dir := mustLoad(t, `
state: ./var/state
admin: off
pipelines:
  orders:
    source: { spool_dir: { path: ./in } }
    routes:
      archive: { sink: { file: { path: ./archive.log, format: raw } }, flow: {order: none, window: fixed, size: 3}, drain: 1m }
      alerts:
        processors: [{ where: 'status >= 500' }]
        sink: { http: { endpoints: ["http://c:8080"] } }
        retry: { backoff: fixed, base: 1m }
        dead_letters: { dir: ./graveyard, max: 1MB }
        memory: 1GiB
`)
	p := f.Pipelines[0]
	if len(p.Routes) != 2 || p.Routes[0].Name != "archive" || p.Routes[1].Name != "alerts" ||
		f.State != filepath.Join(dir, "var/state") {
		t.Fatalf("file %+v", f)
	}
	archive, alerts := p.Routes[0], p.Routes[1]
	if archive.Flow.Order != "none" || archive.Flow.Size != 3 || archive.Drain != time.Minute {
		t.Errorf("archive %+v", archive)
	}
	if alerts.Retry.Max != time.Minute ||
		alerts.DeadLetters.Dir != filepath.Join(dir, "graveyard") || alerts.Memory != 1<<30 {
		t.Errorf("alerts %+v", alerts)
	}
	if archive.DeadLetters.Dir != filepath.Join(dir, "var/state/dead") {
		t.Errorf("dead letters of archive in %s", archive.DeadLetters.Dir)
	}
}

// TestErrorsCanBeTaken checks that a caller can get each mistake, with its position and hint, from
// the error of Load, which is an Errors if there are several mistakes.
func TestErrorsCanBeTaken(t *testing.T) {
	_, dir, err := loadText(t, "stat: x\n"+minimal+"    drain: 5\n")
	es, ok := err.(Errors)
	if !ok || len(es) != 2 {
		t.Fatalf("Load = %#v, want two problems", err)
	}
	var all Errors
	var one *Error
	if wrapped := fmt.Errorf("config: %w", err); !errors.As(wrapped, &all) || len(all) != 2 ||
		!errors.As(wrapped, &one) || one != es[0] {
		t.Errorf("errors.As finds %v and %v, want the problems", all, one)
	}
	_, _, single := loadText(t, "stat: x\n"+minimal)
	if !errors.As(single, &one) || one == es[0] || one.Hint != es[0].Hint {
		t.Errorf("errors.As finds %v in %v", one, single)
	}
	want := Place{File: filepath.Join(dir, "penstock.yaml"), Line: 6, Column: 12}
	if es[1].Place != want || es[0].Hint != `did you mean "state"?` {
		t.Errorf("problems %+v, %+v", es[0], es[1])
	}
	if !strings.HasPrefix(err.Error(), want.File+":1:1: ") {
		t.Errorf("text %s", err)
	}
}

func TestManyProblemsAreCounted(t *testing.T) {
	var b strings.Builder
	for range maxShown + 5 {
		b.WriteString("  - where: {nope: 1}\n")
	}
	_, _, err := loadText(t,
		minimal+"    processors:\n"+strings.ReplaceAll(b.String(), "  - ", "      - "))
	if es, ok := err.(Errors); !ok || len(es) != maxShown+5 ||
		!strings.HasSuffix(err.Error(), "and 5 more") {
		t.Errorf("%d problems: %v", len(es), err)
	}
}

// TestPlanIsAConfig checks that the output of Plan is a valid config with the same meaning.
func TestPlanIsAConfig(t *testing.T) {
	f, _ := mustLoad(t, `
pipelines:
  a:
    source:
      spool_dir: {path: in, include: ["*.log", "0123", "yes", "a #b", "!x", "$${a}"], recursive: true}
    processors: [{where: {expr: 'a == "#"'}}, {set: {b: "2", a: "1"}}, {drop_fields: [x]}]
    sink: {file: {path: "a: b", rotate: {bytes: 1MiB}}}
    flow: {window: fixed, size: 2}
  b:
    source: {spool_dir: {path: in2}}
    routes:
      x: {sink: drop, flow: {order: partition}, retry: {policy: 'limit(pekko min=1s max=9s; 5)'}}
      y: {sink: {http: {endpoints: ["http://h"], ratio: 0.25}}}
tests: [{name: "$${n}", pipeline: a, input: ["${i}"], expect: ["${e}"], dead: ["$$${d}"]}]
`)
	path := filepath.Join(t.TempDir(), "plan.yaml")
	if err := os.WriteFile(path, f.Plan(), 0o600); err != nil {
		t.Fatal(err)
	}
	again, err := Load(path, LoadOptions{Components: testComponents(), Env: noEnv})
	if err != nil {
		t.Fatalf("%v\n%s", err, f.Plan())
	}
	if string(again.Plan()) != string(f.Plan()) {
		t.Errorf("the plan of\n%s is\n%s", f.Plan(), again.Plan())
	}
	if got, want := again.Tests[0], f.Tests[0]; got.Name != want.Name ||
		got.Dead[0] != want.Dead[0] || got.Input[0].JSON() != want.Input[0].JSON() {
		t.Errorf("test %+v, want %+v", got, want)
	}
	if got, want := again.Pipelines[0].Source.Options,
		f.Pipelines[0].Source.Options; !reflect.DeepEqual(got, want) {
		t.Errorf("source %+v, want %+v", got, want)
	}
	if again.Pipelines[1].Routes[0].Flow != f.Pipelines[1].Routes[0].Flow {
		t.Errorf("flow %+v", again.Pipelines[1].Routes[0].Flow)
	}
	if got := again.Pipelines[1].Routes[0].Retry.Backoff; got != "limit(pekko min=1s max=9s; 5)" {
		t.Errorf("retry.backoff %q", got)
	}
}

// TestOutsidersOptions checks an options struct that the loader cannot decode. The loader must
// report it as a bug of its component.
func TestOutsidersOptions(t *testing.T) {
	defer func() {
		if v := recover(); v == nil || !strings.Contains(v.(string), "config: BUG: ") {
			t.Errorf("recovered %v", v)
		}
	}()
	c := stream.Component{Role: stream.SinkRole, Name: "drop", New: noComponent,
		Options: func() any {
			return &struct {
				C chan int `yaml:"c"`
			}{}
		}}
	l := newLoader("x.yaml", LoadOptions{Components: append(testComponents()[:1], c), Env: noEnv})
	_, _ = l.load([]byte(strings.Replace(minimal, "{drop: {}}", "{drop: {c: 1}}", 1)))
}
