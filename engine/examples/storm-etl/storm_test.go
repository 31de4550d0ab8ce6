package main

import (
	"log/slog"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/penstock-io/penstock/engine"
	"github.com/penstock-io/penstock/engine/connector/all"
)

// TestMain lets the test binary be the child of a run.
func TestMain(m *testing.M) {
	if os.Getenv("STORM_ETL") != "" {
		main()
		return
	}
	os.Exit(m.Run())
}

// TestStory runs both algorithms on a smaller day and compares them. The new algorithm saves its
// progress, so it must repeat few rows after the crash. The old one saves none, and repeats all
// rows that were stored before the crash.
func TestStory(t *testing.T) {
	t.Setenv("STORM_ETL", "child")
	s := settings{rows: 40_000, tuple: 40, speed: 4, dir: t.TempDir(),
		plot: filepath.Join(t.TempDir(), "run.svg")}
	if err := makeLogs(filepath.Join(s.dir, "logs.db"), s.rows); err != nil {
		t.Fatal(err)
	}
	fresh, err := s.twice("new")
	if err != nil {
		t.Fatal(err)
	}
	old, err := s.twice("old")
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("new: %.1f s, %d rows again; old: %.1f s, %d rows again", fresh.seconds, fresh.again,
		old.seconds, old.again)
	if fresh.again > s.rows/4 || old.again < s.rows/3 || fresh.seconds > old.seconds {
		t.Error("the new algorithm is not the better one")
	}
	if err := draw(s, []outcome{fresh, old}); err != nil {
		t.Fatal(err)
	}
	if text, err := os.ReadFile(s.plot); err != nil || len(text) < 1000 {
		t.Errorf("the plot has %d bytes: %v", len(text), err)
	}
}

// TestEngine runs the config: the same day on the engine, every row once.
func TestEngine(t *testing.T) {
	const rows = 8000
	dir := t.TempDir()
	logs := filepath.Join(dir, "logs.db")
	if err := makeLogs(logs, rows); err != nil {
		t.Fatal(err)
	}
	w, err := openEnvironment(dir, logs, rows, 200, 4)
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(handler(w))
	defer server.Close()
	config, err := os.ReadFile("penstock.yaml")
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, "penstock.yaml")
	if err := os.WriteFile(path, config, 0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv("STORM_DIR", dir)
	t.Setenv("STORM_URL", server.URL)
	c, err := engine.Load(path, all.Components()...)
	if err != nil {
		t.Fatal(err)
	}
	e, err := engine.New(c, engine.Options{Once: true, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	if err := e.Run(t.Context()); err != nil {
		t.Fatal(err)
	}
	var total, distinct, classes int
	query := "SELECT count(*), count(DISTINCT id), count(DISTINCT class) FROM stored WHERE host " +
		"<> '' AND status > 0"
	if err := w.stored.QueryRow(query).Scan(&total, &distinct, &classes); err != nil {
		t.Fatal(err)
	}
	if total != rows || distinct != rows || classes != 3 {
		t.Errorf("%d rows of %d classes are stored, %d different ones; want each of %d once, "+
			"of 3 classes", total, classes, distinct, rows)
	}
}

// TestLongLine checks that a bolt stores a record whose line is longer than 1 MiB, and does not
// respond with status 200 without having stored it.
func TestLongLine(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "new")
	logs := filepath.Join(dir, "logs.db")
	if err := makeLogs(logs, 1); err != nil {
		t.Fatal(err)
	}
	w, err := openEnvironment(dir, logs, 1, 1, 1000)
	if err != nil {
		t.Fatal(err)
	}
	body := `{"id":1,"host":"` + strings.Repeat("a", 1<<20) + `","class":"served","status":200}`
	in := httptest.NewRequest("POST", "/bolt-01", strings.NewReader(body))
	out := httptest.NewRecorder()
	handler(w).ServeHTTP(out, in)
	var stored int
	if err := w.stored.QueryRow("SELECT count(*) FROM stored").Scan(&stored); err != nil {
		t.Fatal(err)
	}
	if out.Code != 200 || stored != 1 {
		t.Errorf("status %d, %d records are stored; want 200 and 1", out.Code, stored)
	}
}
