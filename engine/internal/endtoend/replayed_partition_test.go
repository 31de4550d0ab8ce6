//go:build unix

package endtoend

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/penstock-io/penstock/engine/connector/connectortest"
)

const copyToTable = `
state: ./state
pipelines:
  copy:
    source: %s
    sink: { sqlite: { path: ./data.db, table: lines, columns: [message] } }
`

// TestReplayedPartition replays dead letters of partitions that a broker assigns. With such a
// source, each partition has its own owner in the sink's ledger. With other sources, the ledger as
// a whole has one owner. Two kinds of letters must not be delivered again. Letters of the first
// kind are in the ledger, but their progress in the state directory was lost. Those of the second
// kind were replayed before, when the pipeline had a source of the other type. After the replay,
// the route must resume from its own ledger.
func TestReplayedPartition(t *testing.T) {
	t.Parallel()
	fake, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.SeedTopics(1, "in"),
		kfake.GroupMinSessionTimeout(time.Millisecond))
	if err != nil {
		t.Fatal(err)
	}
	defer fake.Close()
	client := kafkaClient(t, fake.ListenAddrs())
	dir := t.TempDir()
	state := filepath.Join(dir, "state")
	db := connectortest.OpenSQLite(t, filepath.Join(dir, "data.db"))
	connectortest.Execute(t, db, "PRAGMA journal_mode = WAL")
	connectortest.Execute(t, db, "CREATE TABLE lines (message text)")
	config := filepath.Join(dir, "penstock.yaml")
	configure := func(source string) { write(t, config, fmt.Sprintf(copyToTable, source)) }
	produce := func(texts ...string) {
		t.Helper()
		for _, text := range texts {
			r := &kgo.Record{Topic: "in", Value: []byte(text)}
			if err := client.ProduceSync(t.Context(), r).FirstErr(); err != nil {
				t.Fatal(err)
			}
		}
	}
	refuse := func() {
		t.Helper()
		connectortest.Execute(t, db, `CREATE TRIGGER refuse BEFORE INSERT ON lines
			WHEN NEW.message LIKE 'bad%' BEGIN SELECT RAISE(ABORT, 'refused'); END`)
		once(t, config)
		connectortest.Execute(t, db, "DROP TRIGGER refuse")
	}
	replay := func(want int64) {
		t.Helper()
		_, last := deadLetters(t, "replay", "--json", config)
		if last.Replayed != want {
			t.Errorf("%d letters replayed, want %d", last.Replayed, want)
		}
	}
	write(t, filepath.Join(dir, "in.log"), "good 0\nbad 0\n")
	configure("{ tail: { include: [./in.log] } }")
	refuse()
	replay(1)
	hasOnce(t, db, "lines", 2)

	configure(fmt.Sprintf("{ kafka: { brokers: [%q], topics: [in], group: copy, "+
		"session_timeout: 30s } }", fake.ListenAddrs()[0]))
	produce("good 1", "bad 1")
	refuse()
	saved := filepath.Join(dir, "saved")
	if err := os.CopyFS(saved, os.DirFS(state)); err != nil {
		t.Fatal(err)
	}
	replay(2)
	hasOnce(t, db, "lines", 4)

	if err := errors.Join(os.RemoveAll(state), os.Rename(saved, state)); err != nil {
		t.Fatal(err)
	}
	produce("good 2", "bad 2")
	refuse()
	replay(2) // the letter of the first source was settled before, and a new one
	hasOnce(t, db, "lines", 6)
}
