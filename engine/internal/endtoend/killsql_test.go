package endtoend

import (
	"bytes"
	"database/sql"
	"encoding/json"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	_ "modernc.org/sqlite"

	"github.com/penstock-io/penstock/engine/connector/connectortest"
)

// killsOfSQL returns the number of kills for each database.
func killsOfSQL(t *testing.T) int { return max(1, kills(t)/2) }

// refusing creates a table that refuses a few records of each generated file. These records must
// become dead letters.
const refusing = `CREATE TABLE %s (message text CHECK (message NOT LIKE '%%line 1_7 %%' OR ` +
	`length(message) < 20), _extra text)`

// TestKillSQLite kills the program repeatedly while it writes a table. Each record of the input
// must be in the table or in the dead letters, once.
func TestKillSQLite(t *testing.T) {
	t.Parallel()
	rnd := seeded(t)
	for left, job := killsOfSQL(t), 0; left > 0; job++ {
		dir := t.TempDir()
		input := spool(t, dir, rnd, 12<<20)
		config := write(t, filepath.Join(dir, "penstock.yaml"), fmt.Sprintf(`
state: ./state
pipelines:
  crash:
    source: { spool_dir: { path: ./spool, include: ["*.log"], quiet_period: 10ms } }
    sink: { sqlite: { path: ./out.db, table: lines } }
    batch: { bytes: %s }
    checkpoint: { replay: 2MiB, sync: 50ms }
`, []string{"16KiB", "64KiB", "256KiB"}[job%3]))
		db := connectortest.OpenSQLite(t, filepath.Join(dir, "out.db"))
		connectortest.Execute(t, db, "PRAGMA journal_mode = WAL")
		connectortest.Execute(t, db, fmt.Sprintf(refusing, "lines"))
		written := func() int64 {
			return number(db, `SELECT coalesce(sum(length(CAST(message AS BLOB)) + 1), `+
				`0) FROM lines`)
		}
		total := size(input)
		for range killsPerJob {
			if left > 0 && killAt(t, config, rnd, total, written) {
				left--
			}
		}
		once(t, config)
		if err := sameLines(db, `SELECT message FROM lines`, lettered(t, dir), input); err != nil {
			t.Fatalf("job %d: the table is not exactly the input: %v", job, err)
		}
		if again := once(t, config).Pipelines[0]; again.ReadRecords != 0 {
			t.Errorf("job %d: %d records were read again after the end", job, again.ReadRecords)
		}
	}
}

// number returns the single number that a query selects. It returns 0 if the query fails, for
// example because the table does not exist yet.
func number(db *sql.DB, query string) (n int64) {
	if db.QueryRow(query).Scan(&n) != nil {
		return 0
	}
	return n
}

// lettered returns the records of a job's dead letters, of which there must be some.
func lettered(t *testing.T, dir string) (all []string) {
	t.Helper()
	for line := range bytes.Lines(read(t,
		filepath.Join(dir, "state", "dead", "crash.main.ndjson"))) {
		var letter struct{ Record string }
		if err := json.Unmarshal(line, &letter); err != nil {
			t.Fatalf("dead letter %q: %v", line, err)
		}
		all = append(all, letter.Record)
	}
	if len(all) == 0 {
		t.Error("no record was refused")
	}
	return all
}

// sameLines checks the texts that a query returns, together with the texts in more. They must
// contain each line of the input once, and no other lines.
func sameLines(db *sql.DB, query string, more []string, input []spooled) error {
	rows, err := db.Query(query)
	if err != nil {
		return err
	}
	defer rows.Close()
	got := more
	for rows.Next() {
		var s string
		if err := rows.Scan(&s); err != nil {
			return err
		}
		got = append(got, s)
	}
	if err := rows.Err(); err != nil {
		return err
	}
	return sameTexts(got, linesOf(input))
}

// linesOf returns the records of the input as valid UTF-8 without line ends.
func linesOf(input []spooled) (all []string) {
	for _, f := range input {
		for line := range strings.Lines(string(f.text)) {
			line = strings.TrimSuffix(strings.TrimSuffix(line, "\n"), "\r")
			all = append(all, line)
		}
	}
	return all
}

// sameTexts compares two lists regardless of their order.
func sameTexts(got, want []string) error {
	slices.Sort(got)
	slices.Sort(want)
	for i := range max(len(got), len(want)) {
		switch {
		case i >= len(got), i < len(want) && got[i] > want[i]:
			return fmt.Errorf("%d records, want %d; missing %.80q", len(got), len(want), want[i])
		case i >= len(want), got[i] < want[i]:
			return fmt.Errorf("%d records, want %d; too many %.80q", len(got), len(want), got[i])
		}
	}
	return nil
}
