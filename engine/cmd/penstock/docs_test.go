package main

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// TestDocsNameEveryFlag checks that docs/cli.md names every command and every flag.
func TestDocsNameEveryFlag(t *testing.T) {
	page, err := os.ReadFile("../../../docs/cli.md")
	if err != nil {
		t.Fatal(err)
	}
	text := string(page)
	var visit func(c *cobra.Command)
	visit = func(c *cobra.Command) {
		foreign := c.Name() == "help" || strings.HasPrefix(c.CommandPath(), "penstock completion")
		if c.Runnable() && !foreign && !strings.Contains(text, c.CommandPath()) {
			t.Errorf("docs/cli.md does not name %q", c.CommandPath())
		}
		c.LocalFlags().VisitAll(func(f *pflag.Flag) {
			if f.Name != "help" && !strings.Contains(text, "--"+f.Name) {
				t.Errorf("docs/cli.md does not name %s --%s", c.CommandPath(), f.Name)
			}
		})
		for _, sub := range c.Commands() {
			visit(sub)
		}
	}
	visit(program().Command())
}

// typed matches commands on a page: in quotes, or on lines of their own.
var typed = regexp.MustCompile("(?m)`penstock ([^`\n]+)`|(?:^    |\\$ )(?:go run " +
	"\\./engine/cmd/)?penstock (.+)$|" +
	"go run \\./engine/cmd/penstock ([^`\n]+)")

// TestDocsCommandsExist checks the commands on all pages. The program must have every command and
// flag that a page tells the reader to type.
func TestDocsCommandsExist(t *testing.T) {
	var pages []string
	for _, pattern := range []string{"*.md", "docs/*.md", "docs/*/*.md", "examples/*/*.md",
		"bench/*.md"} {
		found, err := filepath.Glob(filepath.Join("../../..", pattern))
		if err != nil {
			t.Fatal(err)
		}
		pages = append(pages, found...)
	}
	checked := 0
	for _, name := range pages {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range typed.FindAllStringSubmatch(string(text), -1) {
			line, _, _ := strings.Cut(m[1]+m[2]+m[3], " #")
			// A text that is hashed; any command.
			if strings.HasPrefix(line, "ledger ") || strings.HasPrefix(line, "COMMAND") {
				continue
			}
			checked++
			if wrong := wrongCommand(line); wrong != "" {
				t.Errorf("%s: penstock %s: %s", name, line, wrong)
			}
		}
	}
	if checked < 60 {
		t.Errorf("found %d commands in %d pages: their form has changed", checked, len(pages))
	}
}

// wrongCommand describes the first unknown command or flag in a command line. It returns "" if
// there is none.
func wrongCommand(line string) string {
	words := strings.Fields(strings.NewReplacer("[", " ", "]", " ").Replace(line))
	root := program().Command()
	cmd := root
	for len(words) > 0 {
		if at := strings.IndexAny(words[0], `\|`); at > 0 { // one or the other
			words[0] = words[0][:at]
		}
		next, _, err := cmd.Find(words[:1])
		if err != nil || next == cmd {
			break
		}
		cmd, words = next, words[1:]
	}
	if cmd == root || cmd.HasSubCommands() && len(words) > 0 && !strings.HasPrefix(words[0], "-") {
		return "there is no such command"
	}
	for _, w := range words {
		name, isFlag := strings.CutPrefix(strings.TrimRight(w, "`.,;:"), "--")
		name, _, _ = strings.Cut(name, "=")
		if isFlag && cmd.Flags().Lookup(name) == nil && name != "help" {
			return "it has no flag --" + name
		}
	}
	return ""
}
