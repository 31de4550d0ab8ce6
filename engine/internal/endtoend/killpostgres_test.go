package endtoend

import (
	"database/sql"
	"fmt"
	"math/rand/v2"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	_ "github.com/jackc/pgx/v5/stdlib"

	"github.com/penstock-io/penstock/engine/connector/connectortest"
)

// postgresConfig writes the config of a job that inserts lines into a PostgreSQL table with four
// connections. It returns the path of the config.
func postgresConfig(t *testing.T, dir, url, table, batch string) string {
	t.Helper()
	return write(t, filepath.Join(dir, "penstock.yaml"), fmt.Sprintf(`
state: ./state
pipelines:
  crash:
    source: { spool_dir: { path: ./spool, include: ["*.log"], quiet_period: 10ms } }
    sink: { postgres: { url: %q, table: %s, workers: 4, ledger: %s } }
    batch: { bytes: %s }
    retry: { base: 20ms, max: 200ms }
    checkpoint: { replay: 2MiB, sync: 50ms }
`, url, table, table, batch))
}

func openPostgres(t testing.TB, url string) *sql.DB {
	t.Helper()
	db, err := sql.Open("pgx", url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { db.Close() })
	return db
}

// TestKillPostgres kills the program while four connections write a table. Each record of the input
// must be in the table or in the dead letters, once.
func TestKillPostgres(t *testing.T) {
	t.Parallel()
	server := connectortest.StartServer(t, "postgres", "psql")
	db := openPostgres(t, server.URL)
	rnd := seeded(t)
	for left, job := killsOfSQL(t), 0; left > 0; job++ {
		dir := t.TempDir()
		input := textOnly(spool(t, dir, rnd, 12<<20))
		table := fmt.Sprintf("lines%d", job)
		connectortest.Execute(t, db, fmt.Sprintf(refusing, table))
		config := postgresConfig(t, dir, server.URL, table,
			[]string{"16KiB", "64KiB", "256KiB"}[job%3])
		written := func() int64 {
			return number(db, `SELECT coalesce(sum(octet_length(message) + `+
				`1), 0) FROM `+table)
		}
		for range killsPerJob {
			if left > 0 && killAt(t, config, rnd, size(input), written) {
				left--
			}
		}
		once(t, config)
		if err := sameLines(db, `SELECT message FROM `+table, lettered(t, dir), input); err != nil {
			t.Fatalf("job %d: the table is not exactly the input: %v", job, err)
		}
		if again := once(t, config).Pipelines[0]; again.ReadRecords != 0 {
			t.Errorf("job %d: %d records were read again after the end", job, again.ReadRecords)
		}
		if n := number(db, `SELECT count(*) FROM penstock_spans`); n != 0 {
			t.Errorf("job %d: %d span rows are left after everything was folded", job, n)
		}
	}
}

// TestKillPostgresServer kills the server, and cuts single connections, while the program writes.
// The program must recover by itself, and every record must be stored once.
func TestKillPostgresServer(t *testing.T) {
	t.Parallel()
	server := connectortest.StartServer(t, "postgres", "psql")
	db := openPostgres(t, server.URL)
	rnd := seeded(t)
	dir := t.TempDir()
	input := textOnly(spool(t, dir, rnd, 24<<20))
	config := postgresConfig(t, dir, server.URL, "lines", "32KiB")
	bin, err := program()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(bin, "run", "--once", "--json", config)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	cuts, crashes := 0, 0
	disturb := time.NewTicker(30 * time.Millisecond)
	defer disturb.Stop()
	for running := true; running; {
		select {
		case err := <-ended:
			if err != nil {
				t.Fatalf("the program did not get over it: %v", err)
			}
			running = false
		case <-disturb.C:
			if number(db, `SELECT count(*) FROM lines`) == 0 {
				continue
			}
			if crashes < max(1, killsOfSQL(t)/10) && rnd.IntN(12) == 0 {
				server.Kill(t)
				server.Start(t)
				crashes++
			} else {
				cuts += cut(db, rnd)
			}
		}
	}
	t.Logf("%d connections cut, %d crashes of the server", cuts, crashes)
	if cuts+crashes == 0 {
		t.Error("nothing was disturbed: give it more input")
	}
	if err := sameLines(db, `SELECT message FROM lines`, nil, input); err != nil {
		t.Fatalf("the table is not exactly the input: %v", err)
	}
}

// cut ends one of the program's connections occasionally.
func cut(db *sql.DB, rnd *rand.Rand) int {
	if rnd.IntN(3) > 0 {
		return 0
	}
	return int(number(db,
		`SELECT count(pg_terminate_backend(pid)) FROM (SELECT pid FROM pg_stat_activity
		WHERE application_name LIKE 'penstock %' ORDER BY random() LIMIT 1) AS one`))
}

// textOnly returns the input as PostgreSQL stores it. The real logs of PENSTOCK_DATA may contain
// invalid UTF-8, which the program replaces by U+FFFD.
func textOnly(input []spooled) []spooled {
	for i := range input {
		input[i].text = replaced(input[i].text)
	}
	return input
}

// replaced replaces each invalid byte by U+FFFD.
func replaced(text []byte) []byte { return []byte(string([]rune(string(text)))) }
