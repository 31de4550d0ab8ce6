package parked

import (
	"path/filepath"
	"strings"
	"testing"
)

// TestDuePlan checks that SQLite reads due deliveries in the order of an index. The query has no
// LIMIT: without the index, SQLite would read and sort all due rows for each query.
func TestDuePlan(t *testing.T) {
	s, err := Open(t.Context(), Options{Path: filepath.Join(t.TempDir(), FileName)})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	rows, err := s.read.QueryContext(t.Context(), "EXPLAIN QUERY PLAN "+dueQuery, 1, 2)
	if err != nil {
		t.Fatal(err)
	}
	defer rows.Close()
	var plan []string
	for rows.Next() {
		var id, parent, unused int
		var step string
		if err := rows.Scan(&id, &parent, &unused, &step); err != nil {
			t.Fatal(err)
		}
		plan = append(plan, step)
	}
	if err := rows.Err(); err != nil {
		t.Fatal(err)
	}
	text := strings.Join(plan, "\n")
	if !strings.Contains(text, "INDEX delivery_due (host=? AND due<?)") ||
		strings.Contains(text, "TEMP B-TREE") || strings.Contains(text, "SCAN") {
		t.Errorf("plan:\n%s", text)
	}
}
