package cli

import (
	"errors"
	"io/fs"
	"os"
	"strings"
	"testing"
)

// twoRoutes writes a config with the pipelines p and q into the current directory. Each has three
// dead letters with the reasons ra, rb and rb, if it is named in withLetters. The sink of q cannot
// be opened.
func twoRoutes(t *testing.T, withLetters string) {
	t.Helper()
	t.Chdir(t.TempDir())
	writeFile(t, "in-the-way", "")
	writeFile(t, "penstock.yaml", "state: ./state\npipelines: { p: { source: { tail: "+
		"{ include: [./*.log] } }, sink: { file: { path: ./out } } }, q: { source: { tail: "+
		"{ include: [./*.txt] } }, sink: { file: { path: ./in-the-way/out } } } }\n")
	for _, name := range strings.Split(withLetters, "") {
		writeFile(t, "state/dead/"+name+".main.ndjson",
			`{"version":1,"id":"a@1","reason":"ra","record":"x"}`+"\n"+
				`{"version":1,"id":"a@2","reason":"rb","record":"y"}`+"\n"+
				`{"version":1,"id":"a@3","reason":"rb","record":"z"}`+"\n")
	}
}

// TestDeadReplayOpensNoOtherSink checks that a replay does not open the sinks of routes without
// letters, or with replayed letters only. Otherwise a replay could fail because of a receiver that
// gets none of the letters.
func TestDeadReplayOpensNoOtherSink(t *testing.T) {
	twoRoutes(t, "p")
	got := realProgram().try(t, "dead", "replay", "penstock.yaml")
	if got.code != 0 || !strings.HasPrefix(got.out, "3 dead letters: 3 delivered, ") {
		t.Errorf("the other route has no letters: exit code %d\n%s%s", got.code, got.out, got.stderr)
	}
	writeFile(t, "penstock.yaml", "state: ./state\npipelines: { p: { source: { tail: "+
		"{ include: [./*.log] } }, sink: { file: { path: ./in-the-way/out } } } }\n")
	got = realProgram().try(t, "dead", "replay", "penstock.yaml")
	if got.code != 0 || !strings.Contains(got.out, "0 delivered, 0 refused again (new letters), "+
		"3 had been replayed before") {
		t.Errorf("all letters were replayed: exit code %d\n%s%s", got.code, got.out, got.stderr)
	}
	twoRoutes(t, "pq")
	if got := realProgram().try(t, "dead", "replay", "penstock.yaml"); got.code != 1 {
		t.Errorf("letters of a route whose sink cannot be opened: exit code %d, want 1\n%s%s",
			got.code, got.out, got.stderr)
	}
}

// TestDeadDiscard checks that discarded letters count as replayed and are not delivered, and that
// a discard without a filter needs --all.
func TestDeadDiscard(t *testing.T) {
	twoRoutes(t, "p")
	for _, step := range []struct {
		args, want string
		code       int
	}{
		{"dead discard penstock.yaml", "dead discard needs a filter, such as --reason, or --all", 2},
		{"dead discard --reason= penstock.yaml", "dead discard needs a filter", 2},
		{"dead list penstock.yaml", "3 dead letters, 0 of them replayed", 0},
		{"dead discard --reason RB penstock.yaml",
			"2 dead letters: 2 discarded, 0 had been replayed or discarded before", 0},
		{"dead list penstock.yaml", "3 dead letters, 2 of them replayed", 0},
		{"dead discard --all --json penstock.yaml",
			`{"ok":true,"letters":3,"replayed":3,"skipped":0,`, 0},
		{"dead discard --route p penstock.yaml",
			"3 dead letters: 0 discarded, 3 had been replayed or discarded before", 0},
		{"dead replay penstock.yaml", "3 dead letters: 0 delivered", 0},
	} {
		got := realProgram().try(t, strings.Fields(step.args)...)
		if got.code != step.code || !strings.Contains(got.out+got.stderr, step.want) {
			t.Fatalf("%s: exit code %d, want %d with %q:\n%s%s", step.args, got.code, step.code,
				step.want, got.out, got.stderr)
		}
	}
	if out, err := os.ReadFile("out"); err != nil && !errors.Is(err, fs.ErrNotExist) || len(out) > 0 {
		t.Errorf("discarded letters were delivered: %q, %v", out, err)
	}
}

// TestDeadDiscardOpensNoSink checks that a discard needs neither the sink of the route nor the file
// with its token.
func TestDeadDiscardOpensNoSink(t *testing.T) {
	twoRoutes(t, "q")
	got := realProgram().try(t, "dead", "discard", "--all", "penstock.yaml")
	if got.code != 0 || !strings.HasPrefix(got.out, "3 dead letters: 3 discarded, ") {
		t.Errorf("the file cannot be opened: exit code %d\n%s%s", got.code, got.out, got.stderr)
	}
	twoRoutes(t, "p")
	writeFile(t, "penstock.yaml", "state: ./state\npipelines: { p: { source: { tail: "+
		"{ include: [./*.log] } }, sink: { http: { endpoints: [http://127.0.0.1:1/], "+
		"bearer_file: ./missing } } } }\n")
	got = realProgram().try(t, "dead", "discard", "--all", "--json", "penstock.yaml")
	if got.code != 0 || !strings.HasPrefix(got.out, `{"ok":true,"letters":3,"replayed":3,`+
		`"skipped":0,"pipelines":[{"pipeline":"p","route":"main","read_records":3,"read_bytes":6,`) {
		t.Errorf("the token is missing: exit code %d\n%s%s", got.code, got.out, got.stderr)
	}
}

// TestDeadDiscardOfLedger discards a dead letter of a route that delivers to a sink with a ledger.
// A later replay must skip this letter, although the ledger does not have its record as delivered.
func TestDeadDiscardOfLedger(t *testing.T) {
	twoRoutes(t, "p")
	writeFile(t, "penstock.yaml", "state: ./state\npipelines: { p: { source: { tail: "+
		"{ include: [./*.log] } }, sink: { sqlite: { path: ./out.db, table: t } } } }\n")
	for _, step := range []struct{ args, want string }{
		{"dead discard --reason ra penstock.yaml", "1 dead letters: 1 discarded, 0 had been"},
		{"dead replay penstock.yaml", "3 dead letters: 2 delivered, 0 refused again (new letters), " +
			"1 had been replayed before"},
		{"dead replay penstock.yaml", "3 dead letters: 0 delivered"},
		{"run --once penstock.yaml", ""},
	} {
		got := realProgram().try(t, strings.Fields(step.args)...)
		if got.code != 0 || !strings.HasPrefix(got.out, step.want) ||
			strings.Contains(got.stderr, "is behind") {
			t.Fatalf("%s: exit code %d, want %q:\n%s%s", step.args, got.code, step.want, got.out,
				got.stderr)
		}
	}
}

// TestDeadNothingToSettle checks that the result of a replay or discard without unsettled letters
// has an empty list of routes.
func TestDeadNothingToSettle(t *testing.T) {
	twoRoutes(t, "")
	for _, args := range []string{"dead replay --json", "dead discard --all --json"} {
		got := realProgram().try(t, append(strings.Fields(args), "penstock.yaml")...)
		want := `{"ok":true,"letters":0,"replayed":0,"skipped":0,"pipelines":[]}` + "\n"
		if got.code != 0 || got.out != want {
			t.Errorf("%s: exit code %d, %q, want %q", args, got.code, got.out, want)
		}
	}
}
