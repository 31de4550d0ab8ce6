package cli

import (
	"database/sql"
	"os"
	"path/filepath"
	"slices"
	"testing"

	_ "modernc.org/sqlite"

	"github.com/penstock-io/penstock/engine/connector/all"
	"github.com/penstock-io/penstock/stream"
)

// TestDeadReplayOfObjects checks fields that the source has made from the text of a record. A
// replay must restore them. Otherwise the sink would store a row without values.
func TestDeadReplayOfObjects(t *testing.T) {
	dir := t.TempDir()
	config, out := filepath.Join(dir, "penstock.yaml"), filepath.Join(dir, "out.db")
	letters := filepath.Join(dir, "state", "dead", "p.main.ndjson")
	text := "state: " + filepath.Join(dir, "state") +
		"\npipelines: { p: { source: { table: { sqlite: " + filepath.Join(dir, "in.db") +
		", table: t } }, sink: { sqlite: { path: " + out +
		", table: o, columns: {id: integer, name: text} } } } }\n"
	const line = `{"version":1,"id":"t@0~a","record":"{\"id\":7,\"name\":\"a \\\"b\\\"\"}"}` + "\n"
	err := os.MkdirAll(filepath.Dir(letters), 0o700)
	if err == nil {
		err = os.WriteFile(config, []byte(text), 0o600)
	}
	if err == nil {
		err = os.WriteFile(letters, []byte(line), 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	if got := realProgram().try(t, "dead", "replay", config); got.code != 0 {
		t.Fatalf("dead replay: exit code %d:\n%s%s", got.code, got.out, got.stderr)
	}
	db, err := sql.Open("sqlite", out)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	var row string
	err = db.QueryRow("SELECT group_concat(id || ' ' || name) FROM o").Scan(&row)
	if want := `7 a "b"`; err != nil || row != want {
		t.Errorf("the table has %q, %v; want %q", row, err, want)
	}
}

// TestSourcesOfObjects checks that a replay can restore the fields of all sources that replace the
// text of a record by fields.
func TestSourcesOfObjects(t *testing.T) {
	text := stream.SchemaField{Name: "text of the record", Type: stream.TextType}
	found := 0
	for _, c := range all.Components() {
		if c.Role != stream.SourceRole {
			continue
		}
		options := c.Options()
		shaper, ok := options.(stream.Shaper)
		if !ok {
			continue
		}
		out, err := shaper.Shape(stream.Schema{Fields: []stream.SchemaField{text}})
		if err != nil || slices.ContainsFunc(out.Fields,
			func(f stream.SchemaField) bool { return f.Name == text.Name }) {
			continue
		}
		found++
		if o, ok := options.(stream.ObjectOptions); !ok || !o.ReadsObjects() {
			t.Errorf("a replay of dead letters of %s loses the fields of their records", c.Name)
		}
	}
	if found == 0 {
		t.Error("no source has fields of its own")
	}
}
