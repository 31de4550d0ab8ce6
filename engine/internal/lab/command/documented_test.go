package command

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestDocumentedCommands runs every `$ penstock` command of docs/which-backoff.md and docs/origins.
// It compares the output with that on the page, and the files that the command draws with those of
// the page. With -update, it rewrites both.
func TestDocumentedCommands(t *testing.T) {
	pages, err := filepath.Glob(filepath.Join(top, "docs", "origins", "*.md"))
	if err != nil {
		t.Fatal(err)
	}
	commands := 0
	for _, page := range append(pages, filepath.Join(top, "docs", "which-backoff.md")) {
		t.Run(filepath.Base(page), func(t *testing.T) { commands += runPage(t, page) })
	}
	if commands < 10 {
		t.Errorf("%d commands on %d pages: they have lost some", commands, 1+len(pages))
	}
}

// runPage runs the commands of a page and returns their number.
func runPage(t *testing.T, page string) (commands int) {
	t.Helper()
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	var fresh strings.Builder
	inside := false
	for line := range strings.Lines(string(text)) {
		command, ok := strings.CutPrefix(line, "$ penstock ")
		switch {
		case ok:
			commands++
			inside = true
			fresh.WriteString(line)
			command = strings.TrimSpace(command)
			fresh.WriteString(runDocumented(t, filepath.Join(top, "docs"), words(t, command)))
			continue
		case strings.HasPrefix(line, "```"):
			inside = false
		}
		if !inside {
			fresh.WriteString(line)
		}
	}
	switch {
	case fresh.String() == string(text):
	case *update:
		if err := os.WriteFile(page, []byte(fresh.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	default:
		t.Errorf("%s shows other figures than the program prints; "+
			"see them with go test -run DocumentedCommands -update", page)
	}
	return commands
}

// runDocumented runs one command. If the command draws a plot, it draws into a temporary folder,
// and runDocumented compares the result with the plot of the page.
func runDocumented(t *testing.T, docs string, args []string) string {
	t.Helper()
	shown, drawn := "", ""
	for i, word := range args {
		if name, ok := strings.CutPrefix(word, "docs/"); ok {
			shown, drawn = filepath.Join(docs, name),
				filepath.Join(t.TempDir(), filepath.Base(name))
			args[i] = drawn
		}
	}
	got := try(t, args...)
	if got.code != exitOK {
		t.Fatalf("%q: %s", args, got.stderr)
	}
	if drawn == "" {
		return got.out
	}
	data, err := os.ReadFile(drawn)
	if err != nil {
		t.Fatal(err)
	}
	old, err := os.ReadFile(shown)
	switch {
	case *update:
		if err := os.WriteFile(shown, data, 0o644); err != nil {
			t.Fatal(err)
		}
	case err != nil || !bytes.Equal(old, data):
		t.Errorf("%s is not what %q draws, %v", shown, args, err)
	}
	return got.out
}

// words splits a command line at spaces outside of double quotes.
func words(t *testing.T, line string) (list []string) {
	t.Helper()
	parts := strings.Split(line, `"`)
	if len(parts)%2 == 0 {
		t.Fatalf("a quote is left open in %s", line)
	}
	for i, part := range parts {
		if i%2 == 1 {
			list = append(list, part)
		} else {
			list = append(list, strings.Fields(part)...)
		}
	}
	return list
}
