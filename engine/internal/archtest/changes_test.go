package archtest

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

var changeLine = regexp.MustCompile(`^(Added|Changed|Deprecated|Removed|Fixed|Security): \S`)

// TestChangesHaveTheirForm checks the form of the files in changes/, which `make changelog` joins.
func TestChangesHaveTheirForm(t *testing.T) {
	paths, err := filepath.Glob(filepath.Join(top, "changes", "*.md"))
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range paths {
		name := filepath.Base(path)
		if name == "README.md" {
			continue
		}
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		lines, length := strings.Split(strings.TrimRight(string(text), "\n"), "\n"), 0
		for i, line := range lines {
			switch {
			case changeLine.MatchString(line):
				length = 1
			case length > 0 && strings.HasPrefix(line, "  "):
				length++
			default:
				t.Errorf("changes/%s:%d: begin a change with its category, indent its second "+
					"line by two spaces", name, i+1)
			}
			if length > 2 {
				t.Errorf("changes/%s:%d: a change has at most two lines", name, i+1)
			}
		}
	}
}
