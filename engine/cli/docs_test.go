package cli

import (
	"os"
	"reflect"
	"strings"
	"testing"

	"github.com/penstock-io/penstock/engine/config"
	"github.com/penstock-io/penstock/flow/dispatch"
	"github.com/penstock-io/penstock/flow/window"
)

func page(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile("../../docs/" + name)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// TestDocsNameEveryField checks that docs/cli.md names every field of JSON output, because other
// programs rely on this page. The flags are checked by a test in cmd/penstock, because its program
// has all commands.
func TestDocsNameEveryField(t *testing.T) {
	text := page(t, "cli.md")
	for _, v := range []any{
		runResult{}, routeResult{}, validResult{}, problemResult{}, markResult{}, position{},
		rangeResult{}, placeResult{},
		shownResult{}, versionResult{}, differenceResult{}, auditResult{}, explainedWorker{},
		explainedStep{}, explainedRoute{},
	} {
		for _, f := range reflect.VisibleFields(reflect.TypeOf(v)) {
			name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
			if !strings.Contains(text, `"`+name+`"`) && !strings.Contains(text, "`"+name+"`") {
				t.Errorf("docs/cli.md does not name the field %q of %T", name, v)
			}
		}
	}
}

// TestDocsExampleLoads checks that the first config in docs/configuration.md is valid.
func TestDocsExampleLoads(t *testing.T) {
	_, rest, _ := strings.Cut(page(t, "configuration.md"), "```yaml\n")
	example, _, _ := strings.Cut(rest, "```")
	t.Chdir(t.TempDir())
	if err := os.WriteFile("penstock.yaml", []byte(example), 0o600); err != nil {
		t.Fatal(err)
	}
	if got := realProgram().try(t, "validate", "--json", "penstock.yaml"); got.code != exitOK ||
		!strings.Contains(got.out, `"routes":3`) {
		t.Errorf("code %d: %s%s", got.code, got.out, got.stderr)
	}
}

// TestDocsNameEveryKey checks that docs/configuration.md has each key of a route, with the default
// that the loader uses.
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
			// No default of their own.
			if v.Field(i).IsZero() || v.Field(i).Kind() == reflect.Struct || key == "dead_letters.dir" {
				want = " "
			}
			if !strings.HasPrefix(row, want) {
				t.Errorf("docs/configuration.md: %s defaults to%s, and the row says%.30s", key, want, row)
			}
			values := strings.Split(v.Type().Field(i).Tag.Get("enum"), ",")
			switch key {
			case "flow.window":
				values = window.Names()
			case "flow.dispatch":
				values = dispatch.Names()
			}
			for _, value := range values {
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
