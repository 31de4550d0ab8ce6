package config

import (
	"fmt"
	"os"
	"strings"
	"testing"
)

// TestRenames checks that docs/renames.md has every former name of a key. A test of package cli
// checks that the program accepts the names on this page.
func TestRenames(t *testing.T) {
	page, err := os.ReadFile("../../docs/renames.md")
	if err != nil {
		t.Fatal(err)
	}
	for former, present := range renames {
		row := fmt.Sprintf("| `%s` | `%s` | config", former, present)
		if !strings.Contains(string(page), row) {
			t.Errorf("docs/renames.md has no row %q", row)
		}
	}
}
