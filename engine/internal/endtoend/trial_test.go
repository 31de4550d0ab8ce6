package endtoend

import (
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestTryAndTest runs `penstock test` and `penstock try` with a config of real processors.
func TestTryAndTest(t *testing.T) {
	t.Parallel()
	bin, err := program()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	config := write(t, filepath.Join(dir, "penstock.yaml"), `
pipelines:
  web:
    source: { tail: { include: ["./*.log"] } }
    processors: [{ parse: { format: json } }, { where: status >= 400 }, { drop: [secret] }]
    sink: { file: { path: ./out } }
tests:
  - { name: passes, input: [{ status: 500, secret: x }, { status: 200 }, x], expect: [{ status: 500 }], dead: [JSON] }
`)
	failing := write(t, filepath.Join(dir, "failing.yaml"), string(read(t, config))+
		"  - { name: fails, input: [{ status: 404 }], expect: [{ status: 405 }] }\n")
	junit := filepath.Join(dir, "report.xml")
	for _, x := range []struct {
		args, input string
		code        int
		want        []string
	}{
		{"test " + config, "", 0, []string{"ok    web/main  passes", "1 tests, 0 failed"}},
		{"test --junit " + junit + " " + failing, "", 1, []string{
			"FAIL  web/main  fails", "- status: 405", "+ status: 404", "1 of 2 tests failed",
		}},
		{"try " + config, `{"status":500,"secret":1}` + "\n", 0, []string{
			`parse      {"status":500,"secret":1}`, `drop       {"status":500}`,
		}},
		{"try --json " + config, "{\"status\":1}\nx", 0, []string{
			`{"line":1,"fate":"dropped","record":{"status":1}}`, `{"line":2,"fate":"dead"`,
		}},
		{"try --route web/other " + config, "", 2,
			[]string{`pipeline web has no route "other"; it has main`}},
	} {
		cmd := exec.Command(bin, strings.Fields(x.args)...)
		cmd.Stdin = strings.NewReader(x.input)
		out, err := cmd.CombinedOutput()
		if exitOf(err) != x.code {
			t.Errorf("penstock %s: %v, want exit code %d\n%s", x.args, err, x.code, out)
		}
		for _, want := range x.want {
			if !strings.Contains(string(out), want) {
				t.Errorf("penstock %s: no %q in\n%s", x.args, want, out)
			}
		}
	}
	if text := string(read(t, junit)); !strings.Contains(text, `tests="2" failures="1"`) {
		t.Errorf("JUnit report:\n%s", text)
	}
}
