package cli

import (
	"net"
	"strings"
	"testing"

	"github.com/penstock-io/penstock/engine/internal/osfs"
	"github.com/penstock-io/penstock/engine/internal/pipeline"
)

// TestOperatorMessages checks the messages of operators' commands for bad input. Each message must
// name the position of the mistake and the remedy, and none may contain the token.
func TestOperatorMessages(t *testing.T) {
	t.Chdir(t.TempDir())
	t.Setenv(tokenVariable, "hunter2")
	const route = "pipelines: {p: {source: {tail: {include: [./logs/*]}}, sink: {drop: {}}}}\n"
	for name, text := range map[string]string{
		"plain.yaml":  route,
		"admin.yaml":  "admin: {address: \"127.0.0.1:1\", token: hunter2}\n" + route,
		"open.yaml":   "admin: 0.0.0.0:7070\n" + route,
		"otlp.yaml":   "telemetry: {otlp: \"127.0.0.1:4318\", token: hunter2}\n" + route,
		"traces.yaml": "telemetry: {otlp: \"http://h\", traces: 2}\n" + route,
		"pushes.yaml": "telemetry: {otpl: \"http://h\"}\n" + route,
		"loop.yaml":   strings.Replace(route, "drop: {}", "file: {path: logs/out.log}", 1),
		"stdin.yaml":  "pipelines: {p: {source: {stdin: {}}, sink: {drop: {}}}}\n",
		"end.yaml":    strings.Replace(route, "logs/*]", "logs/*], start: end", 1),
		"two.yaml": "pipelines: {p: {source: {tail: {include: [./a]}}, " +
			"routes: {a: {sink: {drop: {}}}, b: {sink: {drop: {}}}}}}\n",
		"split/a.yaml": "admin: 127.0.0.1:1\n" + route,
		"split/b.yaml": "admin: 127.0.0.1:2\n",
		"state/x":      "", "logs/a": "one\n",
	} {
		writeFile(t, name, text)
	}
	for _, c := range []struct {
		line string
		code int
		want string
	}{
		{"audit", exitUsage, "audit needs a config"},
		{"audit plain.yaml p/main x", exitUsage, `remove "x"`},
		{"audit plain.yaml p/mian", exitUsage, `no route "p/mian"; it has p/main`},
		{"audit nothing.yaml", exitUsage, "nothing.yaml"},
		{"audit stdin.yaml", exitUnfinished, "source stdin cannot be read a second time"},
		{"audit end.yaml", exitUnfinished, "`start: end`"},
		{"audit --jsno plain.yaml", exitUsage, "did you mean --json?"},
		{"status plain.yaml", exitUnfinished, "add `admin: 127.0.0.1:7070`"},
		{"status admin.yaml", exitUnfinished, "127.0.0.1:1"},
		{"status --timeout 0s admin.yaml", exitUsage, "it must be above zero"},
		{"status --timeout soon admin.yaml", exitUsage, "is not a duration such as 200ms"},
		{"status 127.0.0.1:1", exitUnfinished, "127.0.0.1:1"},
		{"reload plain.yaml", exitUnfinished, "add `admin: 127.0.0.1:7070`"},
		{"reload admin.yaml", exitUnfinished, "127.0.0.1:1"},
		{"reload open.yaml", exitUsage, "set a token, or listen on 127.0.0.1"},
		{"reload --timeout -1s admin.yaml", exitUsage, "it must be above zero"},
		{"tap plain.yaml", exitUnfinished, "add `admin: 127.0.0.1:7070`"},
		{"tap --timeout 0s admin.yaml", exitUsage, "it must be above zero"},
		{"tap --rate many admin.yaml", exitUsage, "is not a whole number"},
		{"top plain.yaml", exitUnfinished, "`admin:`"},
		{"try two.yaml", exitUsage, "pipeline p has 2 routes: name one"},
		{"try --route p/c two.yaml", exitUsage, `pipeline p has no route "c"`},
		{"dead list --since yesterday plain.yaml", exitUsage, "neither a time such as"},
		{"dead list --route q plain.yaml", exitUsage, `no route "q"; it has p/main`},
		{"dead show", exitUsage, "dead show needs a config"},
		{"parked list plain.yaml", exitUsage, "a sink http with url: does"},
		{"checkpoint show state", exitUnfinished, "has no checkpoint"},
		{"checkpoint set state --route p/main", exitUsage, "needs --partition"},
		{"checkpoint set state --partition x --watermark 3", exitUsage, "needs --route PIPELINE/ROUTE"},
		{"checkpoint reset state", exitUsage, "needs a route, as PIPELINE/ROUTE"},
		{"checkpoint reset state p/main --route p/main", exitUsage, "the route is given twice"},
		{"validate otlp.yaml", exitUsage, "write http://127.0.0.1:4318"},
		{"validate loop.yaml", exitUsage, "loop.yaml:1:76: file.path: the source of the same " +
			"pipeline reads logs/out.log"},
		{"validate traces.yaml", exitUsage, "want a share, 0 to 1"},
		{"validate pushes.yaml", exitUsage, `did you mean "otlp"?`},
		{"validate split", exitUsage, "admin"},
		{"worker two.yaml", exitUsage, "--listen"},
		{"test plain.yaml", exitUnfinished, "tests"},
	} {
		got := realProgram().try(t, strings.Fields(c.line)...)
		said := got.out + got.stderr
		if got.code != c.code || !strings.Contains(said, c.want) {
			t.Errorf("%s: exit code %d, want %d with %q:\n%s", c.line, got.code, c.code, c.want, said)
		}
		if strings.Contains(said, "hunter2") {
			t.Errorf("%s: the output has the token:\n%s", c.line, said)
		}
	}
}

// TestUnlockableState checks that a command advises to stop the run only if one holds the lock.
func TestUnlockableState(t *testing.T) {
	t.Chdir(t.TempDir())
	writeFile(t, "state/penstock.lock/x", "") // a directory cannot be locked as a file
	got := realProgram().try(t, "checkpoint", "reset", "state", "p/main")
	if got.code != exitUnfinished || !strings.Contains(got.stderr, "penstock.lock") ||
		strings.Contains(got.stderr, "stop the run") {
		t.Errorf("exit code %d: %s", got.code, got.stderr)
	}
}

// TestReplayBesideRun checks the advice if a run holds the lock of the state directory that a
// replay of dead letters needs. It must not advise a state directory of its own for the replay,
// which would then repeat letters that were replayed before.
func TestReplayBesideRun(t *testing.T) {
	t.Chdir(t.TempDir())
	writeFile(t, "penstock.yaml", "state: state\n"+
		"pipelines: { p: { source: { tail: { include: ['*.log'] } }, sink: drop } }\n")
	writeFile(t, "state/dead/p.main.ndjson", `{"version":1,"id":"a@1","record":"x"}`+"\n")
	state, err := osfs.New().OpenDir("state")
	if err != nil {
		t.Fatal(err)
	}
	defer state.Close()
	lock, err := state.Lock(pipeline.LockName, "penstock, process 1")
	if err != nil {
		t.Fatal(err)
	}
	defer lock.Close()
	got := realProgram().try(t, "dead", "replay", "penstock.yaml")
	const want = "stop the other penstock, or replay the letters in its dashboard"
	if got.code != exitUnfinished || !strings.Contains(got.stderr, want) ||
		strings.Contains(got.stderr, "of its own") {
		t.Errorf("exit code %d, %q, want %q", got.code, got.stderr, want)
	}
	for _, command := range []string{"list", "replay"} {
		got := realProgram().try(t, "dead", command, "--since", "1h", "--until", "2h", "penstock.yaml")
		if got.code != exitUsage || !strings.Contains(got.stderr, ") is not before --until (") {
			t.Errorf("dead %s with an empty range: exit code %d, %q", command, got.code, got.stderr)
		}
	}
}

// TestStatusOfSilentServer checks the message if a server accepts the connection and sends nothing.
func TestStatusOfSilentServer(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	got := realProgram().try(t, "status", "--timeout", "10ms", l.Addr().String())
	const want = " has not responded within the time limit; --timeout raises it"
	if got.code != exitUnfinished || !strings.Contains(got.stderr, l.Addr().String()+want) {
		t.Errorf("exit code %d, %q, want %q", got.code, got.stderr, want)
	}
}
