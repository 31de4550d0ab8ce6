package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

const docs = "../../../docs/"

func read(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.FromSlash(path))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// TestReferenceIsCurrent compares docs/reference with the program.
func TestReferenceIsCurrent(t *testing.T) {
	all, err := pages()
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range all {
		if got := read(t, docs+"reference/"+name); got != want {
			t.Errorf("docs/reference/%s is not what the program says: run make docs-reference",
				name)
		}
		if rows := strings.Count(want, "\n|") + strings.Count(want, "\n## "); rows < 30 {
			t.Errorf("%s has %d rows and sections: the generator has lost some", name, rows)
		}
	}
}

// TestOperatingExplainsEveryMetric compares docs/operating.md with the metrics of the program.
func TestOperatingExplainsEveryMetric(t *testing.T) {
	text := read(t, docs+"operating.md")
	for line := range strings.Lines(metricsPage()) {
		name, isMetric := strings.CutPrefix(line, "| `penstock_")
		if !isMetric {
			continue
		}
		name, _, _ = strings.Cut(name, "`")
		if !strings.Contains(text, "`"+name+"`") && !strings.Contains(text, "`penstock_"+name+"`") {
			t.Errorf("docs/operating.md does not explain the metric %s", name)
		}
	}
}
