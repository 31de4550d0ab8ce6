package archtest

import (
	"os/exec"
	"slices"
	"strings"
	"testing"
)

// layer is a row of the table layers: a folder, and the project packages that its package may
// import.
type layer struct {
	dir     string
	imports []string
}

// alone reports whether the row l of layers applies only to the package in its folder, as for the
// top packages of the modules. Other rows also apply to packages below their folder, unless those
// have a row of their own.
func (l layer) alone() bool { return l.dir == "." || l.dir == "engine" }

// layers lists the project packages that each package may import. If the folders of several rows
// contain a package, the row with the longest folder applies. If a row allows a package of the
// engine, it also allows the packages below that package, except the packages in named (see below).
var layers = []layer{
	{"backoff/compat", []string{"backoff"}},
	{"backoff", nil},
	{"retry", []string{"backoff", "internal/httpfield", "internal/recent"}},
	{"supervise", []string{"backoff", "internal/minheap"}},
	{"flow/window", []string{}},
	{"flow/dispatch", []string{}},
	{"flow/ledger", []string{}},
	{"flow/control", []string{"backoff", "rate", "flow/window", "flow/dispatch",
		"internal/minheap"}},
	{"flow/checkpoint", []string{"flow/ledger", "vfs"}},
	{"flow", []string{"backoff", "supervise", "flow/control", "flow/window", "flow/dispatch",
		"flow/ledger", "internal/httpfield"}},
	{"limit/limithttp", []string{"limit", "flow/window", "internal/perhost"}},
	{"limit", []string{"flow/window"}},
	{"breaker/breakerhttp", []string{
		"breaker", "backoff", "internal/httpfield", "internal/perhost",
	}},
	{"breaker", []string{"backoff", "internal/recent"}},
	{"rate/ratehttp", []string{"rate", "internal/perhost"}},
	{"rate", []string{"internal/httpfield"}},
	{"httpclient", []string{
		"retry", "breaker", "breaker/breakerhttp", "rate", "rate/ratehttp", "limit",
		"limit/limithttp", "backoff", "flow/window",
	}},
	{"inbox", []string{}},
	{"wire", []string{}},
	{"fileid", []string{"wire"}},
	{"vfs", []string{}},
	{"vfs/vfstest", []string{"vfs"}},
	{"internal/vectors", []string{}},
	{"internal/perhost", []string{}},
	{"internal/httpfield", []string{}},
	{"internal/recent", []string{}},
	{"internal/minheap", []string{}},
	{"internal/kernel", []string{}},
	{"internal/testsize", []string{}},
	{"stream", []string{"flow", "flow/ledger", "vfs"}},
	{"stream/commitmeta", []string{"stream", "wire"}},
	{"stream/streamtest", []string{"stream", "stream/commitmeta", "supervise", "vfs"}},
	{".", libraries}, // the examples of the front page
	{"engine/kit", append([]string{"stream", "engine/kit"}, libraries...)},
	{"engine/connector/connectortest", append([]string{
		"stream", "stream/streamtest", "engine/kit", "vfs/vfstest", "engine/internal/osfs",
	}, libraries...)},
	{"engine/connector/connectortest/partitions", append([]string{ // it runs whole engines
		"stream", "stream/streamtest", "engine", "engine/connector/connectortest", "vfs/vfstest",
	}, libraries...)},
	{"engine/connector/connectortest/requests", append([]string{
		"stream", "stream/streamtest", "engine/connector/connectortest",
	}, libraries...)},
	{"engine/connector/all", []string{"stream", "engine/connector", "engine/processor"}},
	// Sink http imports the packages of three other sinks, because it still accepts their formats,
	// such as `body: loki`, from before these sinks existed.
	{"engine/connector/http", append([]string{
		"stream", "engine/kit", "engine/connector/elasticsearch", "engine/connector/loki",
		"engine/connector/clickhouse",
	}, libraries...)},
	{"engine/connector", append([]string{
		"stream", "stream/commitmeta", "engine/kit",
	}, libraries...)},
	{"engine/connector/notify", append([]string{"stream", "engine/kit", "inbox"}, libraries...)},
	{"engine/processor", append([]string{"stream", "engine/kit"}, libraries...)},
	{"engine/config", []string{
		"stream", "backoff", "backoff/compat", "flow/window", "flow/dispatch",
	}},
	{"engine/status", []string{}},
	{"engine/manifest", []string{"stream"}},
	{"engine/web", []string{}},
	// Package engine must not import connectors, processors, cli or web. So the program of an
	// embedder contains only the components that the embedder lists.
	{"engine", append([]string{"stream", "vfs", "engine/internal/pipeline"}, engineData...)},
	{"engine/inbox", []string{"inbox"}},
	{"engine/internal/prose", nil},
	{"engine/internal",
		append(append([]string{"stream", "engine/internal"}, engineData...), libraries...)},
	{"engine/internal/pipeline",
		append(append([]string{"stream", "engine/kit", "engine/internal"}, engineData...),
			libraries...)},
	{"engine/internal/trial", []string{
		"stream", "engine/kit", "engine/internal", "engine/config", "supervise", "vfs",
	}},
	{"engine/internal/endtoend", append([]string{
		"stream", "engine", "engine/status", "engine/internal", "engine/internal/lab",
		"engine/connector",
	}, libraries...)},
	{"engine/cli", append(append([]string{
		"stream", "engine", "engine/kit", "engine/web", "engine/internal",
	}, engineData...), libraries...)},
	{"engine/internal/lab", append(append([]string{
		"stream", "engine/internal", "engine/internal/lab", "internal/kernel",
	}, engineData...), libraries...)},
	{"engine/internal/lab/command", append(append([]string{
		"stream", "engine/cli", "engine/internal", "engine/internal/lab",
	}, engineData...), libraries...)},
	{"engine/cmd", []string{"engine/cli", "engine/connector/all", "engine/internal/lab/command"}},
	{"engine/internal/manpages", []string{
		"engine/cli", "engine/connector/all", "engine/internal/lab/command",
	}},
	{"engine/internal/reference", []string{
		"engine/cli", "engine/config", "engine/connector/all", "engine/internal",
		"engine/internal/lab/command",
	}},
}

// engineData are the packages of the data types in the API of package engine. The types cannot be
// in package engine itself, because the internal packages that it imports use them, too.
var engineData = []string{"engine/config", "engine/status", "engine/manifest"}

var libraries = []string{
	"backoff", "backoff/compat", "retry", "limit", "breaker", "rate", "httpclient", "supervise",
	"fileid", "vfs", "wire",
	"flow", "flow/control", "flow/window", "flow/dispatch", "flow/ledger", "flow/checkpoint",
}

// testSupport may be imported by any test.
var testSupport = []string{
	"flow/checkpoint", "vfs/vfstest", "internal/vectors", "internal/kernel", "internal/testsize",
	"stream/streamtest",
	"retry",
	"backoff", "engine", "engine/connector/connectortest", "engine/connector/all",
	"engine/connector/connectortest/partitions", "engine/connector/connectortest/requests",
	"engine/connector/memory",
	"engine/internal/lab/flowsim", "engine/internal/lab/peers",
	"engine/internal/lab/scenario", "inbox", "engine/inbox/sqlstore",
}

// Usually a row that lists a folder allows all packages below it. The packages in named are an
// exception: a row allows them only if it lists them, or packages below them, by name.
var named = []string{"engine/connector/connectortest", "engine/internal/lab"}

func row(dir string) (string, []string, bool) {
	best, imports, found := "", []string(nil), false
	for _, l := range layers {
		if (l.dir == dir || !l.alone() && strings.HasPrefix(dir, l.dir+"/")) &&
			len(l.dir) >= len(best) {
			best, imports, found = l.dir, l.imports, true
		}
	}
	return best, imports, found
}

func TestLayers(t *testing.T) {
	for _, f := range all(t) {
		if f.under("examples", "engine/examples", "bench", "grpc") {
			continue
		}
		own, allowed, ok := row(f.dir)
		if !ok {
			t.Errorf("%s: folder %s stands in no layer: give it a row in layers_test.go and say "+
				"why in an ADR", f.path, f.dir)
			continue
		}
		for _, imported := range f.imports() {
			rel, ours := strings.CutPrefix(imported, module)
			if !ours {
				if !f.under("engine") && strings.Contains(strings.Split(imported, "/")[0], ".") {
					t.Errorf("%s imports %s: the root module requires nothing", f.path, imported)
				}
				continue
			}
			rel = strings.TrimPrefix(rel, "/")
			if rel == "" {
				rel = "."
			}
			if !allows(own, allowed, f, rel) {
				t.Errorf("%s imports %s: packages of %s may import only %v", f.path, imported, own,
					allowed)
			}
		}
	}
}

func allows(own string, allowed []string, f *file, rel string) bool {
	if rel == f.dir || f.test && (slices.Contains(testSupport, rel) || rel == own) {
		return true
	}
	return slices.ContainsFunc(allowed, func(a string) bool {
		return a == rel || strings.HasPrefix(a, "engine/") && strings.HasPrefix(rel, a+"/") &&
			!slices.ContainsFunc(named, func(n string) bool {
				return within(rel, n) && !within(a, n)
			})
	})
}

// within reports whether dir is the given folder or beneath it.
func within(dir, folder string) bool { return dir == folder || strings.HasPrefix(dir, folder+"/") }

// TestConnectorsHaveNoPrivileges checks that connectors and processors import only packages that an
// external module could import.
func TestConnectorsHaveNoPrivileges(t *testing.T) {
	for _, f := range all(t) {
		if !f.under("engine/connector", "engine/processor", "engine/kit") {
			continue
		}
		for _, imported := range f.imports() {
			if strings.Contains(imported, module) && strings.Contains(imported, "/internal/") {
				if f.dir == "engine/connector/connectortest" &&
					imported == module+"/engine/internal/osfs" {
					continue // external modules use connectortest.FS instead, as our connectors do
				}
				t.Errorf("%s imports %s, which an outsider cannot", f.path, imported)
			}
		}
	}
}

// TestEmbeddersPayForWhatTheyList checks that package engine imports no connector, no processor,
// and no package of the command line.
func TestEmbeddersPayForWhatTheyList(t *testing.T) {
	cmd := exec.Command("go", "list", "-deps", ".")
	cmd.Dir = top + "/engine"
	out, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	deps := strings.Fields(string(out))
	if !slices.Contains(deps, module+"/engine/internal/pipeline") {
		t.Fatalf("package engine does not contain the pipelines: the test looks at the wrong "+
			"package: %v", deps)
	}
	for _, dep := range deps {
		for _, not := range []string{"connector", "processor", "cli", "web", "internal/lab",
			"internal/sim", "internal/plot"} {
			if not = module + "/engine/" + not; dep == not || strings.HasPrefix(dep, not+"/") {
				t.Errorf("package engine imports %s", dep)
			}
		}
		for _, not := range []string{"github.com/spf13/", "modernc.org/", "github.com/jackc/",
			"github.com/go-sql-driver/"} {
			if strings.HasPrefix(dep, not) {
				t.Errorf("package engine imports %s", dep)
			}
		}
	}
}

func TestRootModuleRequiresNothing(t *testing.T) {
	cmd := exec.Command("go", "list", "-m", "all")
	cmd.Dir = top
	cmd.Env = append(cmd.Environ(), "GOWORK=off")
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	if got := strings.TrimSpace(string(out)); got != module {
		t.Errorf("GOWORK=off go list -m all printed %q, want one line: %s", got, module)
	}
}
