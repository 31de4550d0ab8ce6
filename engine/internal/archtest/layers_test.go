package archtest

import (
	"os/exec"
	"slices"
	"strings"
	"testing"
)

// layers says which packages of the project each may import: its own row, longest prefix first. "std" rows
// import none. The engine's packages may import whatever their row names and everything that those may.
var layers = []struct {
	dir     string
	imports []string
}{
	{"backoff/compat", []string{"backoff"}},
	{"backoff", nil},
	{"retry", []string{"backoff"}},
	{"supervise", []string{"backoff"}},
	{"flow/window", []string{}},
	{"flow/dispatch", []string{}},
	{"flow/ledger", []string{}},
	{"flow/control", []string{"backoff", "flow/window", "flow/dispatch"}},
	{"flow/control/controltest", []string{"backoff", "flow/control", "flow/window", "flow/dispatch"}},
	{"flow/checkpoint", []string{"flow/ledger", "vfs"}},
	{"flow", []string{"backoff", "supervise", "flow/control", "flow/window", "flow/dispatch", "flow/ledger"}},
	{"fileid", []string{}},
	{"vfs", []string{}},
	{"vfs/vfstest", []string{"vfs"}},
	{"internal/vectors", []string{}},
	{".", []string{"flow", "flow/ledger", "flow/control", "vfs", "fileid"}},
	{"engine/kit", append([]string{".", "engine/kit"}, libraries...)},
	{"engine/connector/connectortest", append([]string{".", "engine/kit", "vfs/vfstest"}, libraries...)},
	{"engine/connector/all", []string{".", "engine/connector", "engine/processor"}},
	{"engine/connector", append([]string{".", "engine/kit"}, libraries...)},
	{"engine/processor", append([]string{".", "engine/kit"}, libraries...)},
	{"engine/internal", append([]string{".", "engine/internal"}, libraries...)},
	{"engine/pipeline", append([]string{".", "engine/kit", "engine/internal"}, libraries...)},
	{"engine/internal/endtoend", append([]string{".", "engine/pipeline", "engine/internal", "engine/connector"}, libraries...)},
	{"engine/cmd", append([]string{
		".", "engine/kit", "engine/internal", "engine/pipeline", "engine/connector", "engine/processor",
	}, libraries...)},
}

var libraries = []string{
	"backoff", "backoff/compat", "retry", "supervise", "fileid", "vfs",
	"flow", "flow/control", "flow/window", "flow/dispatch", "flow/ledger", "flow/checkpoint",
}

// testSupport may be imported by any test.
var testSupport = []string{
	"flow/control/controltest", "flow/checkpoint", "vfs/vfstest", "internal/vectors",
	"engine/connector/connectortest", "engine/connector/all",
}

func row(dir string) (string, []string, bool) {
	best, imports, found := "", []string(nil), false
	for _, l := range layers {
		if (l.dir == dir || l.dir != "." && strings.HasPrefix(dir, l.dir+"/")) && len(l.dir) >= len(best) {
			best, imports, found = l.dir, l.imports, true
		}
	}
	return best, imports, found
}

func TestLayers(t *testing.T) {
	for _, f := range all(t) {
		if f.under("examples", "engine/examples", "bench") {
			continue
		}
		own, allowed, ok := row(f.dir)
		if !ok {
			t.Errorf("%s: folder %s stands in no layer: give it a row in layers_test.go and say why in an ADR", f.path, f.dir)
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
				t.Errorf("%s imports %s: packages of %s may import only %v", f.path, imported, own, allowed)
			}
		}
	}
}

func allows(own string, allowed []string, f *file, rel string) bool {
	if rel == f.dir || f.test && (slices.Contains(testSupport, rel) || rel == own) {
		return true
	}
	return slices.ContainsFunc(allowed, func(a string) bool {
		return a == rel || strings.HasPrefix(a, "engine/") && strings.HasPrefix(rel, a+"/") && rel != "engine/connector/connectortest"
	})
}

// TestConnectorsHaveNoPrivileges: a connector or processor imports nothing that an outsider could not.
func TestConnectorsHaveNoPrivileges(t *testing.T) {
	for _, f := range all(t) {
		if !f.under("engine/connector", "engine/processor", "engine/kit") {
			continue
		}
		for _, imported := range f.imports() {
			if strings.Contains(imported, module) && strings.Contains(imported, "/internal/") {
				t.Errorf("%s imports %s, which an outsider cannot", f.path, imported)
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
