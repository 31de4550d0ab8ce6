package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestRun(t *testing.T) {
	if testing.Short() {
		t.Skip("takes the 6 s of the compressed day")
	}
	figure := filepath.Join(t.TempDir(), "timelines.svg")
	if err := run(t.Output(), figure); err != nil {
		t.Error(err)
	}
	if text, err := os.ReadFile(figure); err != nil || !strings.Contains(string(text), "dead-1") {
		t.Errorf("the plot has %d bytes and no row of dead-1: %v", len(text), err)
	}
}
