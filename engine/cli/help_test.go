package cli

import (
	"fmt"
	"strings"
	"testing"

	"github.com/penstock-io/penstock/engine/status"
)

// TestHelpNamesExceptions checks that the help of a command names the exceptions of its rules.
func TestHelpNamesExceptions(t *testing.T) {
	for command, wants := range map[string][]string{
		"buffer skip": {"refused unless --intact is given", "Each route counts"},
		"dead list": {"not replayed or discarded: route by route", "20 most frequent reasons",
			"no reasons"},
		"dead show": {"[ID]...", "all letters that were not replayed or discarded"},
		"status":    {"stopped, drains or restarts", "misconfigured while data waits", "16 MiB"},
		"version":   {"pseudo-version", "devel if the build did not record the commit"},
	} {
		got := realProgram().try(t, append(strings.Fields(command), "--help")...)
		text := strings.Join(strings.Fields(got.out), " ")
		for _, want := range wants {
			if !strings.Contains(text, want) {
				t.Errorf("the help of %s does not contain %q:\n%s", command, want, got.out)
			}
		}
	}
	if mostReasons != 20 || status.LeastFree != 16<<20 {
		t.Errorf("%d reasons, %d bytes: the help has other numbers", mostReasons, status.LeastFree)
	}
}

// TestDeadListOrder checks that a list prints the letters of one route after those of another, each
// in the order in which they were stored.
func TestDeadListOrder(t *testing.T) {
	t.Chdir(t.TempDir())
	writeFile(t, "in/a.log", "")
	writeFile(t, "penstock.yaml", `pipelines:
  p:
    source: { spool_dir: { path: in } }
    routes:
      x: { sink: { file: { path: x.log } } }
      y: { sink: { file: { path: y.log } } }
`)
	letter := func(route, id, at string) string {
		return fmt.Sprintf(`{"version":1,"id":%q,"time":"2026-01-02T03:0%s:00Z","pipeline":"p",`+
			`"route":%q,"reason":"no","file":"a.log","position":"1","attempts":1,"worker":"w",`+
			`"record":"r"}`+"\n", id, at, route)
	}
	for route, text := range map[string]string{
		"x": letter("x", "1", "5") + letter("x", "2", "4"), "y": letter("y", "3", "1"),
	} {
		writeFile(t, "state/dead/p."+route+".ndjson", text)
	}
	got := realProgram().try(t, "dead", "list", "penstock.yaml")
	var ids []string
	for line := range strings.Lines(got.out) {
		if part := strings.Fields(line); len(part) == 4 && strings.HasPrefix(part[1], "p/") {
			ids = append(ids, part[2])
		}
	}
	if strings.Join(ids, " ") != "1 2 3" {
		t.Errorf("%+v", got)
	}
}
