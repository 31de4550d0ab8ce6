package cli

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"go.yaml.in/yaml/v4"
)

// schema returns the compiled output of `penstock schema`, after checking it with the meta-schema.
func schema(t *testing.T) *jsonschema.Schema {
	t.Helper()
	got := realProgram().try(t, "schema")
	if got.code != exitOK {
		t.Fatalf("%+v", got)
	}
	doc, err := jsonschema.UnmarshalJSON(strings.NewReader(got.out))
	if err != nil {
		t.Fatal(err)
	}
	c := jsonschema.NewCompiler()
	c.AssertFormat()
	if err := c.AddResource("penstock.schema.json", doc); err != nil {
		t.Fatal(err)
	}
	s, err := c.Compile("penstock.schema.json")
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// value returns a YAML text as an editor parses it.
func value(t *testing.T, text string) any {
	t.Helper()
	var v any
	if err := yaml.Unmarshal([]byte(text), &v); err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	asJSON, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	out, err := jsonschema.UnmarshalJSON(bytes.NewReader(asJSON))
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// configs returns the configs in the repository: the examples and those in the docs.
func configs(t *testing.T) map[string]string {
	t.Helper()
	out := map[string]string{}
	for _, top := range []string{"../../examples", "../../docs"} {
		err := filepath.WalkDir(top, func(path string, _ os.DirEntry, err error) error {
			if err != nil || !strings.HasSuffix(path, ".yaml") && !strings.HasSuffix(path, ".md") {
				return err
			}
			if _, err := os.Stat(filepath.Join(filepath.Dir(path), "go.mod")); err == nil {
				return nil // it names components of its own; make examples runs it
			}
			if filepath.Base(path) == "connectors.md" { // likewise, those of examples/own-connector
				return nil
			}
			if filepath.Base(filepath.Dir(path)) == "scenarios" { // of the simulator, with a form of their own
				return nil
			}
			text, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			if strings.HasSuffix(path, ".yaml") {
				out[path] = string(text)
				return nil
			}
			for i, block := range strings.Split(string(text), "```yaml\n")[1:] {
				block, _, _ = strings.Cut(block, "```")
				if strings.Contains("\n"+block, "\npipelines:") {
					out[fmt.Sprintf("%s, block %d", path, i+1)] = block
				}
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	return out
}

// TestSchemaTakesEveryExample checks that the JSON Schema accepts each example config in the docs.
// It must also accept the form in which `penstock validate` prints the same config.
func TestSchemaTakesEveryExample(t *testing.T) {
	t.Setenv("PENSTOCK_ADMIN_TOKEN", "token") // of the guide for Kubernetes
	s := schema(t)
	n := 0
	for path, text := range configs(t) {
		if text == "" {
			continue
		}
		n++
		if err := s.Validate(value(t, text)); err != nil {
			t.Errorf("%s: %v", path, err)
		}
		file := filepath.Join(t.TempDir(), "penstock.yaml")
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		got := realProgram().try(t, "validate", file)
		if got.code != exitOK {
			t.Errorf("%s: %s", path, got.stderr)
			continue
		}
		if err := s.Validate(value(t, got.out)); err != nil {
			t.Errorf("%s as validate prints it: %v", path, err)
		}
	}
	if n < 3 {
		t.Errorf("%d examples, want at least 3", n)
	}
}

func TestSchemaTakesAndRefuses(t *testing.T) {
	s := schema(t)
	for _, c := range []struct {
		config string
		takes  bool
	}{
		{`{source: {spool_dir: {path: x}}, sink: drop}`, true},
		{`{source: {spool_dir: {path: x, quiet_period: "${S}", recursive: "${R:-true}"}}, sink: {drop: }}`, true},
		{`{source: {spool_dir: {path: x}}, sink: drop, processors: [{where: a > 1}, {where: {expr: a > 1, on_error: drop}}]}`, true},
		{`{source: {spool_dir: {path: x}}, sink: drop, processors: [{set: {a: 1, b: true, c: "x"}}, {drop: [a]}, {rename: {b: c}}]}`, true},
		{`{source: {spool_dir: {path: x}}, routes: {a: {sink: drop}}, }`, true},
		{`{source: {spool_dir: {path: x}}, sink: drop, batch: {bytes: 4096, linger: 1h30m}}`, true},

		{`{source: {spool_dir: {path: x}}}`, false},
		{`{source: {spool_dir: {}}, sink: drop}`, false},
		{`{source: {spool_dirs: {path: x}}, sink: drop}`, false},
		{`{source: {spool_dir: {path: x}}, sink: drop, routes: {a: {sink: drop}}}`, false},
		{`{source: {spool_dir: {path: x, pth: y}}, sink: drop}`, false},
		{`{source: {spool_dir: {path: x, finished: sometimes}}, sink: drop}`, false},
		{`{source: {spool_dir: {path: x, quiet_period: 5 parsecs}}, sink: drop}`, false},
		{`{source: {spool_dir: {path: x}}, sink: {drop: {}, file: {path: y}}}`, false},
		{`{source: {spool_dir: {path: x}}, sink: drop, processors: {where: a}}`, false},
		{`{source: {spool_dir: {path: x}}, sink: drop, processors: [{parse: {format: xml}}]}`, false},
		{`{source: {spool_dir: {path: x}}, sink: drop, processors: [{set: {}}]}`, false},
		{`{source: {spool_dir: {path: x}}, sink: drop, batch: {records: many}}`, false},
		{`{source: {spool_dir: {path: x}}, sink: drop, batch: {bytes: 1 parsec}}`, false},
	} {
		err := s.Validate(value(t, "pipelines: {a: "+c.config+"}"))
		if (err == nil) != c.takes {
			t.Errorf("%s: %v", c.config, err)
		}
	}
	if err := s.Validate(value(t, "pipelines: {A b: {source: {spool_dir: {path: x}}, sink: drop}}")); err == nil {
		t.Error("a pipeline may have any name")
	}
}
