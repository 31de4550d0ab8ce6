package httppoll_test

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/penstock-io/penstock/engine"
	"github.com/penstock-io/penstock/engine/connector/all"
	"github.com/penstock-io/penstock/engine/connector/connectortest"
	"github.com/penstock-io/penstock/engine/connector/httppoll"
	"github.com/penstock-io/penstock/retry"
)

// childConfig is the environment variable that makes this test binary run a config until it is
// killed.
const childConfig = "PENSTOCK_TEST_POLL"

func TestMain(m *testing.M) {
	if file := os.Getenv(childConfig); file != "" {
		if err := run(context.Background(), file, false); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

func run(ctx context.Context, file string, once bool) error {
	text, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	cfg, err := engine.Parse(text, all.Components()...)
	if err != nil {
		return err
	}
	e, err := engine.New(cfg, engine.Options{Once: once, Log: slog.New(slog.NewTextHandler(io.Discard, nil))})
	if err != nil {
		return err
	}
	return e.Run(ctx)
}

// TestKilled checks that each record is in the table once if the process is killed at random
// moments while the feed grows.
func TestKilled(t *testing.T) {
	for _, c := range []struct{ name, path, options string }{
		{"link", "link", ``},
		{"cursor", "items", `records: body.data.items, next: body.next, cursor: after`},
		{"after", "items", `records: body.data.items, after: id, cursor: after`},
		{"offset", "items", `records: body.data.items, offset: offset`},
		{"since with ids", "items", `records: body.data.items, next: last?.id, cursor: since, id: id`},
	} {
		t.Run(c.name, func(t *testing.T) { killed(t, c.path, c.options) })
	}
}

func killed(t *testing.T, path, options string) {
	const kills, seed = 6, 7
	random := rand.New(rand.NewPCG(seed, 0))
	feed := httppoll.NewFeed(40, 7, strings.Contains(options, "id: id, ") || strings.HasSuffix(options, " id: id"))
	server := httptest.NewServer(feed)
	defer server.Close()
	dir := t.TempDir()
	config := filepath.Join(dir, "penstock.yaml")
	text := fmt.Sprintf(`{state: %q, pipelines: {p: {
		source: {http_poll: {url: "%s/%s", interval: {min: 10ms, max: 20ms}, retry: {min: 1ms, max: 10ms}, %s}},
		batch: {records: 3}, sink: {sqlite: {path: %q, table: rows}}}}}`,
		filepath.Join(dir, "state"), server.URL, path, options, filepath.Join(dir, "out.db"))
	if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	for range kills {
		child := exec.CommandContext(t.Context(), os.Args[0])
		child.Env = append(os.Environ(), childConfig+"="+config)
		var stderr strings.Builder
		child.Stderr = &stderr
		if err := child.Start(); err != nil {
			t.Fatal(err)
		}
		until := feed.Requests() + 1 + random.IntN(8)
		for deadline := time.Now().Add(time.Minute); feed.Requests() < until; retry.Sleep(
			t.Context(), time.Millisecond) {
			if random.IntN(4) == 0 {
				feed.Add(random.IntN(3))
			}
			if time.Now().After(deadline) {
				child.Process.Kill()
				t.Fatalf("the child sent no requests: %v %s", child.Wait(), stderr.String())
			}
		}
		retry.Sleep(t.Context(), time.Duration(random.IntN(4000))*time.Microsecond)
		child.Process.Kill()
		child.Wait()
	}
	if err := run(t.Context(), config, true); err != nil {
		t.Fatal(err)
	}
	db := connectortest.OpenSQLite(t, filepath.Join(dir, "out.db"))
	var rows, distinct, most int
	if err := db.QueryRow(`SELECT count(*), count(DISTINCT id), max(id) FROM rows`).Scan(&rows,
		&distinct, &most); err != nil {
		t.Fatal(err)
	}
	if n := len(feed.All()); rows != n || distinct != n || most != n {
		t.Errorf("%d rows, %d ids up to %d; want each of %d records once", rows, distinct, most, n)
	}
}
