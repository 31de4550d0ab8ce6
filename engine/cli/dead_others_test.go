package cli

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestDeadOthers checks that a list names the dead letters of a route that was renamed. Otherwise
// the list would be empty, as if there were none.
func TestDeadOthers(t *testing.T) {
	dir := t.TempDir()
	t.Chdir(dir)
	writeFile(t, "penstock.yaml", "state: ./state\npipelines: { p: { source: { tail: "+
		"{ include: [./*.log] } }, sink: { drop: } }, same: { source: { tail: "+
		"{ include: [./*.txt] } }, sink: { drop: }, dead_letters: { dir: "+
		filepath.Join(dir, "state", "dead")+" } } }\n")
	writeFile(t, "state/dead/same.main.ndjson", `{"version":1,"id":"a@1","record":"x"}`+"\n")
	writeFile(t, "state/dead/old.main.ndjson", `{"version":1,"id":"a@1","record":"x"}`+"\n")
	writeFile(t, "state/dead/empty.main.ndjson", "")
	writeFile(t, "state/dead/p.main.ndjson", "\n")
	writeFile(t, "state/dead/output.today.ndjson", `{"message":"of a file sink"}`+"\n")
	if err := os.Mkdir(filepath.Join("state", "dead", "folder.main.ndjson"), 0o700); err != nil {
		t.Fatal(err)
	}
	other := filepath.Join("state", "dead", "old.main.ndjson")
	for args, want := range map[string]string{
		"dead list penstock.yaml": other + " has dead letters of a route that the config does " +
			"not have\n",
		"dead list --json penstock.yaml": `old.main.ndjson"]`,
	} {
		got := realProgram().try(t, strings.Fields(args)...)
		if got.code != 0 || !strings.Contains(got.out, want) ||
			strings.Contains(got.out, "empty.main") || strings.Contains(got.out, "/p.main") ||
			strings.Contains(got.out, "same.main") || strings.Contains(got.out, "output.today") ||
			strings.Contains(got.out, "folder.main") {
			t.Errorf("%s: exit code %d, want 0 with %q:\n%s%s", args, got.code, want, got.out,
				got.stderr)
		}
	}
	got := realProgram().try(t, "dead", "list", "--route", "p", "penstock.yaml")
	if got.code != 0 || strings.Contains(got.out, "old.main") {
		t.Errorf("of one route: exit code %d\n%s%s", got.code, got.out, got.stderr)
	}
}
