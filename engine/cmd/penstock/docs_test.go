package main

import (
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/penstock-io/penstock/engine/internal/config"
)

func page(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile("../../../docs/" + name)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// TestDocsNameEveryFlagAndField: docs/cli.md is what others build on.
func TestDocsNameEveryFlagAndField(t *testing.T) {
	text := page(t, "cli.md")
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
	visit(newProgram(newFake(), nil).root())
	for _, v := range []any{
		runResult{}, routeResult{}, validResult{}, problemResult{}, markResult{}, position{}, rangeResult{}, placeResult{},
		shownResult{}, versionResult{}, explainedWorker{}, explainedStep{}, explainedRoute{},
	} {
		for _, f := range reflect.VisibleFields(reflect.TypeOf(v)) {
			name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
			if !strings.Contains(text, `"`+name+`"`) && !strings.Contains(text, "`"+name+"`") {
				t.Errorf("docs/cli.md does not name the field %q of %T", name, v)
			}
		}
	}
}

// TestDocsExampleLoads: the config that docs/configuration.md begins with is one.
func TestDocsExampleLoads(t *testing.T) {
	_, rest, _ := strings.Cut(page(t, "configuration.md"), "```yaml\n")
	example, _, _ := strings.Cut(rest, "```")
	t.Chdir(t.TempDir())
	if err := os.WriteFile("penstock.yaml", []byte(example), 0o600); err != nil {
		t.Fatal(err)
	}
	if got := realProgram().try(t, "validate", "--json", "penstock.yaml"); got.code != exitOK || !strings.Contains(got.out, `"routes":3`) {
		t.Errorf("code %d: %s%s", got.code, got.out, got.stderr)
	}
}

// TestDocsNameEveryKey: docs/configuration.md has each key of a route with the default that the loader gives it.
func TestDocsNameEveryKey(t *testing.T) {
	text := page(t, "configuration.md")
	route := config.DefaultRoute("main", "state")
	for _, part := range []struct {
		key   string
		value any
	}{
		{"batch", route.Batch}, {"flow", route.Flow}, {"retry", route.Retry}, {"dead_letters", route.DeadLetters},
		{"checkpoint", route.Checkpoint},
	} {
		v := reflect.ValueOf(part.value)
		for i := range v.NumField() {
			key := part.key + "." + v.Type().Field(i).Tag.Get("yaml")
			_, row, found := strings.Cut(text, "| `"+key+"` |")
			if !found {
				t.Errorf("docs/configuration.md has no row for %s", key)
				continue
			}
			want := " `" + config.Text(v.Field(i).Interface()) + "` "
			if v.Field(i).IsZero() || key == "dead_letters.dir" { // no default of their own
				want = " "
			}
			if !strings.HasPrefix(row, want) {
				t.Errorf("docs/configuration.md: %s defaults to%s, and the row says%.30s", key, want, row)
			}
			for value := range strings.SplitSeq(v.Type().Field(i).Tag.Get("enum"), ",") {
				line, _, _ := strings.Cut(row, "\n")
				if value != "" && !strings.Contains(line, "`"+value+"`") {
					t.Errorf("docs/configuration.md: the row of %s does not name %s", key, value)
				}
			}
		}
	}
	for key, value := range map[string]any{"memory": route.Memory, "drain": route.Drain} {
		if !strings.Contains(text, "| `"+key+"` | `"+config.Text(value)+"` |") {
			t.Errorf("docs/configuration.md: %s defaults to %s", key, config.Text(value))
		}
	}
}

// typed are the places where a page says what to type: in quotes, or in lines of their own.
var typed = regexp.MustCompile("(?m)`penstock ([^`\n]+)`|(?:^    |\\$ )(?:go run \\./engine/cmd/)?penstock (.+)$|" +
	"go run \\./engine/cmd/penstock ([^`\n]+)")

// TestDocsCommandsExist: every command and flag that a page says to type is there.
func TestDocsCommandsExist(t *testing.T) {
	var pages []string
	for _, pattern := range []string{"*.md", "docs/*.md", "docs/*/*.md", "examples/*/*.md", "bench/*.md"} {
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
			if strings.HasPrefix(line, "ledger ") || strings.HasPrefix(line, "COMMAND") { // a text that is hashed; any command
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

// wrongCommand says what of a command line does not exist.
func wrongCommand(line string) string {
	words := strings.Fields(strings.NewReplacer("[", " ", "]", " ").Replace(line))
	root := newProgram(newFake(), nil).root()
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
