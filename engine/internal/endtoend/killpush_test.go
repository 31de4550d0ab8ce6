package endtoend

import (
	"bytes"
	"database/sql"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/penstock-io/penstock/engine/connector/connectortest"
)

// TestKillPush kills the client, the engine, or both while requests arrive at a source with `ack:
// delivered` and `ack: buffered`. The client repeats each request with its Idempotency-Key until it
// is acknowledged. There are two routes, one to a file and one to a table. Each acknowledged record
// must be once in the file and once in the table.
func TestKillPush(t *testing.T) {
	t.Parallel()
	rnd := seeded(t)
	times := (kills(t) + 5) / 6
	for _, ack := range []string{"delivered", "buffered"} {
		for _, killed := range []string{"engine", "client", "both"} {
			t.Run(ack+"/"+killed, func(t *testing.T) {
				killPush(t, rnd, ack, times, killed != "engine", killed != "client")
			})
		}
	}
}

func killPush(t *testing.T, rnd *rand.Rand, ack string, times int, killClient, killEngine bool) {
	dir := t.TempDir()
	address := connectortest.FreeAddress(t)
	config := write(t, filepath.Join(dir, "penstock.yaml"), fmt.Sprintf(`
state: ./state
pipelines:
  push:
    source: { http_server: { listen: %q, ack: %s } }
    routes:
      one:
        sink: { file: { path: ./one.log, format: raw } }
        checkpoint: { sync: 50ms }
      two:
        sink: { sqlite: { path: ./two.db, table: records } }
        batch: { records: 7 }
`, address, ack))
	db := connectortest.OpenSQLite(t, filepath.Join(dir, "two.db"))
	connectortest.Execute(t, db, "PRAGMA journal_mode = WAL")
	connectortest.Execute(t, db, "CREATE TABLE records (message text)")
	acked := func() (n int) {
		for _, of := range acknowledged(t, filepath.Join(dir, "notes")) {
			n += of
		}
		return n
	}
	url := "http://" + address + "/"
	engine, client := startEngine(t, config), startClient(t, dir, url)
	for range times {
		target := acked() + 5 + rnd.IntN(60)
		await(t, time.Minute, "requests are answered", func() bool { return acked() >= target })
		if killClient {
			client.kill()
		}
		if killEngine {
			_ = engine.Process.Kill()
			_ = engine.Wait()
			engine = startEngine(t, config)
		}
		if killClient {
			client = startClient(t, dir, url)
		}
	}
	after := acked()
	await(t, time.Minute, "requests are answered", func() bool { return acked() > after+20 })
	client.finish(t)
	checkPushed(t, dir, db)
	t.Logf("%d kills, %d requests acknowledged", times, acked())
	_ = engine.Process.Signal(os.Interrupt)
	if err := engine.Wait(); err != nil {
		t.Errorf("the engine ended with %v", err)
	}
}

// checkPushed checks that the outputs have each acknowledged record once.
func checkPushed(t *testing.T, dir string, db *sql.DB) {
	t.Helper()
	var want []string
	for w, n := range acknowledged(t, filepath.Join(dir, "notes")) {
		for k := range n * pushRecords {
			want = append(want, fmt.Sprintf("%d-%d-%d", w, k/pushRecords, k%pushRecords))
		}
	}
	file := func() (got []string) {
		for _, line := range linesInFile(t, filepath.Join(dir, "one.log")) {
			got = append(got, string(line))
		}
		return got
	}
	table := func() []string { return connectortest.Column(t, db, "SELECT message FROM records") }
	for name, read := range map[string]func() []string{"file": file, "table": table} {
		await(t, time.Minute, "all records are in the "+name,
			func() bool { return contains(read(), want) })
		got := read()
		slices.Sort(got)
		once := slices.Compact(slices.Clone(got))
		if twice := len(got) - len(once); twice > 0 {
			t.Errorf("%d records are twice in the %s", twice, name)
		}
		if err := sameTexts(once, want); err != nil {
			t.Errorf("the %s differs from the acknowledged records: %v", name, err)
		}
	}
}

// contains reports whether got has every text of want.
func contains(got, want []string) bool {
	have := make(map[string]bool, len(got))
	for _, text := range got {
		have[text] = true
	}
	return !slices.ContainsFunc(want, func(text string) bool { return !have[text] })
}

func startEngine(t *testing.T, config string) *exec.Cmd {
	t.Helper()
	bin, err := program()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(bin, "run", config)
	cmd.Stdout, cmd.Stderr = t.Output(), t.Output()
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill() }) // it has ended, except after a failure
	return cmd
}

// linesInFile returns the lines of a file, none if it does not exist.
func linesInFile(t *testing.T, path string) [][]byte {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil && !os.IsNotExist(err) {
		t.Fatal(err)
	}
	return bytes.Split(bytes.TrimSuffix(text, []byte{'\n'}), []byte{'\n'})
}
