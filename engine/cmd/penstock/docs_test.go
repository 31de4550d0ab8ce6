package main

import (
<<<<<<< HEAD
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestWhichBackoff runs every command of docs/which-backoff.md and compares what it prints and draws with what the page
// shows. -update writes both anew.
func TestWhichBackoff(t *testing.T) {
	docs := filepath.Join("..", "..", "..", "docs")
	page := filepath.Join(docs, "which-backoff.md")
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	p := newProgram(newFake(), nil)
	var fresh strings.Builder
	commands, inside := 0, false
	for line := range strings.Lines(string(text)) {
		command, ok := strings.CutPrefix(line, "$ penstock ")
		switch {
		case ok:
			commands++
			inside = true
			fresh.WriteString(line)
			fresh.WriteString(runDocumented(t, p, docs, words(t, strings.TrimSpace(command))))
			continue
		case strings.HasPrefix(line, "```"):
			inside = false
		}
		if !inside {
			fresh.WriteString(line)
		}
	}
	if commands < 6 {
		t.Errorf("%d commands on the page: it has lost some", commands)
	}
	if fresh.String() == string(text) {
		return
	}
	if *update {
		if err := os.WriteFile(page, []byte(fresh.String()), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	t.Errorf("docs/which-backoff.md shows other figures than the program prints; see them with go test -run WhichBackoff -update")
}

// runDocumented runs one command; a plot is drawn aside and compared with the page's.
func runDocumented(t *testing.T, p *program, docs string, args []string) string {
	t.Helper()
	shown, drawn := "", ""
	for i, word := range args {
		if name, ok := strings.CutPrefix(word, "docs/"); ok {
			shown, drawn = filepath.Join(docs, name), filepath.Join(t.TempDir(), filepath.Base(name))
			args[i] = drawn
		}
	}
	got := p.try(t, args...)
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

// words parts a command line at spaces outside of double quotes.
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
=======
	"os"
	"reflect"
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
		shownResult{}, versionResult{},
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
>>>>>>> main
}
