package cli

import (
	"bytes"
	"database/sql"
	"encoding/json"
	"os"
	"path/filepath"
	"strconv"
	"testing"

	"github.com/penstock-io/penstock/engine"
	"github.com/penstock-io/penstock/engine/connector/all"
)

// realProgram returns the program as main creates it, without signals.
func realProgram() *program {
	p := newProgram(newFake(), make(chan os.Signal))
	p.components = all.Components()
	p.assemble = func(c engine.Config, o engine.Options) (runner, error) { return engine.New(c, o) }
	return p
}

const quickstart = "../../examples/quickstart"

// TestQuickstartData checks that the spool in the repository matches its README.
func TestQuickstartData(t *testing.T) {
	total := 0
	for i, lines := range []int{500, 350, 200} {
		seed := strconv.Itoa(i + 1)
		got, err := os.ReadFile(filepath.Join(quickstart, "spool", "web-"+seed+".log"))
		if err != nil {
			t.Fatal(err)
		}
		want := realProgram().try(t, "generate", "--format", "combined", "--seed", seed, "--lines", strconv.Itoa(lines))
		if want.out != string(got) {
			t.Errorf("web-%s.log is not what generate makes with seed %s and %d lines", seed, seed, lines)
		}
		total += bytes.Count(got, []byte("\n"))
	}
	if total < 1000 {
		t.Errorf("the quickstart has %d records, want at least 1000", total)
	}
}

// TestQuickstart runs a copy of examples/quickstart as its README describes. The first run delivers
// everything, the second nothing, and the third only a new file.
func TestQuickstart(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{"penstock.yaml", "spool"} {
		if err := copyTree(filepath.Join(quickstart, name), filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	t.Chdir(dir)
	run := func() routeResult {
		t.Helper()
		got := realProgram().try(t, "run", "--once", "--json", "penstock.yaml")
		var line runResult
		if err := json.Unmarshal([]byte(got.out), &line); err != nil || got.code != exitOK || len(line.Pipelines) != 1 {
			t.Fatalf("code %d, %v: %s\n%s", got.code, err, got.out, got.stderr)
		}
		return line.Pipelines[0]
	}
	if r := run(); r.Delivered != 1050 || r.ReadRecords != 1050 {
		t.Errorf("first run %+v", r)
	}
	if r := run(); r.ReadRecords != 0 || r.Delivered != 0 {
		t.Errorf("second run %+v", r)
	}
	if got := realProgram().try(t, "generate", "--lines", "7", "--seed", "4", "--out",
		"spool/web-4.log"); got.code != exitOK {
		t.Fatal(got)
	}
	if r := run(); r.Delivered != 7 {
		t.Errorf("after a new file %+v", r)
	}
	db, err := sql.Open("sqlite", "file:out/access.db?mode=ro")
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	var rows, parsed, sizes int64
	err = db.QueryRow("SELECT count(*), count(host) + count(status), sum(size) FROM access").Scan(
		&rows, &parsed, &sizes)
	if err != nil || rows != 1057 || parsed != 2*1057 || sizes < 1057 {
		t.Errorf("the table has %d rows, %d hosts and statuses, %d bytes in all (%v); want 1057 "+
			"and twice that", rows, parsed, sizes, err)
	}
	if got := realProgram().try(t, "checkpoint", "show", "penstock.yaml"); got.code != exitOK {
		t.Errorf("checkpoint show: %+v", got)
	}
}

// copyTree copies a file or a folder of files.
func copyTree(from, to string) error {
	info, err := os.Stat(from)
	if err != nil {
		return err
	}
	if info.IsDir() {
		return os.CopyFS(to, os.DirFS(from))
	}
	text, err := os.ReadFile(from)
	if err != nil {
		return err
	}
	return os.WriteFile(to, text, 0o600)
}
