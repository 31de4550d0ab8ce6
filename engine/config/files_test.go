package config

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// loadFiles creates a directory with files and loads the config from it. The variadic arguments
// alternate between a file's name and its text.
func loadFiles(t *testing.T, files ...string) (*Config, string, error) {
	t.Helper()
	dir := t.TempDir()
	for i := 0; i < len(files); i += 2 {
		path := filepath.Join(dir, files[i])
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(files[i+1]), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	c, err := Load(dir, LoadOptions{Components: testComponents(), Env: noEnv})
	return c, dir, err
}

// pipelineOf returns a config with one pipeline.
func pipelineOf(name, more string) string {
	return "pipelines:\n  " + name + ":\n" +
		"    source: {spool_dir: {path: in}}\n    sink: drop\n" + more
}

func TestFiles(t *testing.T) {
	c, dir, err := loadFiles(t,
		"penstock.yaml", "admin: 127.0.0.1:7070\nprocessors: {web: [where: a]}\n",
		"conf.d/20.yaml", pipelineOf("b", "    processors: [use: web]\n")+
			"tests: [{name: t, pipeline: a, input: [x]}]\n",
		"conf.d/10.yml", pipelineOf("a", ""),
		"conf.d/30.yaml~", "not YAML: [", "conf.d/.40.yaml", "not YAML: [",
		"conf.d/readme", "not YAML: [",
		"conf.d/50.yaml/x", "",
	)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, p := range c.Pipelines {
		names = append(names, p.Name)
	}
	if !slices.Equal(names, []string{"a", "b"}) || c.Admin.Address != "127.0.0.1:7070" ||
		len(c.Tests) != 1 {
		t.Errorf("pipelines %v, admin %+v, %d tests", names, c.Admin, len(c.Tests))
	}
	if c.State != filepath.Join(dir, "state") || c.Path != dir {
		t.Errorf("state %s, path %s", c.State, c.Path)
	}
	in := c.Pipelines[0].Source.Options.(*spoolOptions).Path
	if in != filepath.Join(dir, "conf.d", "in") {
		t.Errorf("a path in conf.d is %s", in)
	}
	if got := len(c.Pipelines[1].Routes[0].Processors); got != 1 {
		t.Errorf("%d processors, want the shared one", got)
	}
	if err := c.Validate(); err != nil {
		t.Error(err)
	}
}

// TestFilesRefused checks messages about configs of several files. The path of the directory is
// removed from the messages before they are compared.
func TestFilesRefused(t *testing.T) {
	for _, c := range []struct {
		name  string
		files []string
		want  []string
	}{
		{"two pipelines of one name",
			[]string{"a.yaml", pipelineOf("x", ""), "conf.d/b.yaml", pipelineOf("x", "")},
			[]string{`conf.d/b.yaml:2:3: pipeline "x" is given twice; the first is at a.yaml:2:3`}},
		{"two states",
			[]string{"a.yaml", "state: s\n" + pipelineOf("x", ""), "b.yaml",
				"state: t\nadmin: off\n"},
			[]string{`b.yaml:1:1: state is given twice; the first is at a.yaml:1:1`}},
		{"two lists of one name", []string{
			"a.yaml", "processors: {l: [where: x]}\n" + pipelineOf("x", ""),
			"b.yaml", "processors: {l: [where: x]}\n"},
			[]string{`b.yaml:1:14: processors "l" is given twice; the first is at a.yaml:1:14`}},
		{"mistakes in several files",
			[]string{"a.yaml", "stat: s\n" + pipelineOf("x", ""), "b.yaml", "bach: 1\n"},
			[]string{
				`a.yaml:1:1: a config has no key "stat"`, `b.yaml:1:1: a config has no key "bach"`,
			}},
		{"a mistake in a list of another file", []string{
			"a.yaml", "processors: {l: [where: x === y]}\n",
			"b.yaml", pipelineOf("x", "    processors: [use: l]\n")},
			[]string{"a.yaml:1:25: where"}},
		{"no pipelines", []string{"a.yaml", "state: s\n", "b.yaml", "admin: off\n"},
			[]string{"a.yaml:1:1: `pipelines:` is missing"}},
		{"no files", []string{"readme", "x"}, []string{"is a directory without *.yaml files"}},
		{"no YAML", []string{"a.yaml", pipelineOf("x", ""), "b.yaml", "a: [\n"},
			[]string{"b.yaml:2:1: a value is missing here"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, dir, err := loadFiles(t, c.files...)
			if err == nil {
				t.Fatal("no error")
			}
			text := strings.ReplaceAll(err.Error(), dir+string(filepath.Separator), "")
			for _, want := range c.want {
				if !strings.Contains(text, want) {
					t.Errorf("%s\nwant\n%s", text, want)
				}
			}
		})
	}
}

// TestOtherwise checks the condition of a route with `otherwise: true`.
func TestOtherwise(t *testing.T) {
	c, _ := mustLoad(t, `
processors:
  prepare: [drop_fields: [secret]]
pipelines:
  p:
    source: {spool_dir: {path: in}}
    routes:
      rest: {otherwise: true, processors: [use: prepare, set: {a: b}], sink: drop}
      errors: {processors: [use: prepare, where: x, where: y, set: {c: d}], sink: drop}
      all: {sink: drop}
      slow: {processors: [use: prepare, where: z], sink: drop}
`)
	routes := c.Pipelines[0].Routes
	var names, components []string
	for _, r := range routes {
		names = append(names, r.Name)
	}
	for _, u := range routes[0].Processors {
		components = append(components, u.Component.Name)
	}
	if !slices.Equal(names, []string{"rest", "errors", "all", "slow"}) ||
		!slices.Equal(components, []string{"drop_fields", "where", "set"}) {
		t.Fatalf("routes %v, processors %v", names, components)
	}
	if got := routes[0].Processors[1].Options.(*whereOptions).Expr; got != "not x | not y | not z" {
		t.Errorf("condition %q", got)
	}
}
