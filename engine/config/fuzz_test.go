package config

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"go.yaml.in/yaml/v4"

	"github.com/penstock-io/penstock/stream"
)

// FuzzLoad checks that each text either is a config or causes errors with valid positions. There
// must be no panic and no unbounded work. The plan of a config must be a config, too.
func FuzzLoad(f *testing.F) {
	scripts, err := filepath.Glob("testdata/messages/*.txt")
	if err != nil || len(scripts) == 0 {
		f.Fatalf("no scripts: %v", err)
	}
	for _, script := range scripts {
		text, err := os.ReadFile(script)
		if err != nil {
			f.Fatal(err)
		}
		for _, block := range strings.Split(string(text), "\n====\n") {
			f.Add(unescape(strings.SplitN(block, "\n----\n", 3)[1]))
		}
	}
	o := LoadOptions{Components: testComponents(), Env: func(name string) (string, bool) {
		return "v", name == "V"
	}}
	f.Fuzz(func(t *testing.T, text string) {
		if strings.Contains(text, "${file:") {
			t.Skip("skipped: would read files of this machine")
		}
		l := newLoader("f.yaml", o)
		got, err := l.load([]byte(text))
		if (got == nil) == (err == nil) {
			t.Fatalf("load = %v, %v", got, err)
		}
		if err == nil {
			checkPlan(t, got, o)
			return
		}
		es, ok := err.(Errors)
		if !ok {
			es = Errors{err.(*Error)}
		}
		for _, e := range es {
			lines := strings.Count(text, "\n") + strings.Count(text, "\r") + 2
			if e.Place.Line < 0 || e.Place.Line > lines || e.Message == "" ||
				strings.Contains(e.Message, "%!") {
				t.Errorf("%+v of %d lines", e, lines)
			}
		}
	})
}

func checkPlan(t *testing.T, f *Config, o LoadOptions) {
	plan := f.Plan()
	if strings.Contains(string(plan), stream.Masked) || strings.Contains(string(plan), "$") {
		return // masked secrets cannot be read back, and ${ would need escapes
	}
	again, err := newLoader("f.yaml", o).load(plan)
	if err != nil {
		t.Fatalf("the plan is no config: %v\n%s", err, plan)
	}
	if string(again.Plan()) != string(plan) {
		t.Fatalf("the plan of\n%s is\n%s", plan, again.Plan())
	}
}

// FuzzMask checks that no excerpt shows the value of a secret key, in any notation.
func FuzzMask(f *testing.F) {
	const needle = "s3cr3t-of-ours"
	for _, parts := range [][2]string{
		{"  password: ", ""}, {"a: {password: ", ", b: c}"}, {`a: {"password": "`, `", b: c}`},
		{"password: |\n  ", "\nb: c"},
		{"- password:\n    - ", "\n"}, {"url: https://me:", "@host/x"},
		{"password: ${X}\n  ", "\n"}, {"{password:\n", "}"},
		{"? password\n: ", ""}, {"a: &a {password: x, b: *c}\nd: ", ""},
		{`"pass\x77ord": a `, "b # c"}, {"password: \"a\\\n", "\""},
		{"headers:\n  - a: {x: y, z: [1, ", "]}"}, {"headers: {a: {b: ", "}}"},
	} {
		f.Add(parts[0], parts[1])
	}
	o := LoadOptions{Components: testComponents(), Env: noEnv}
	f.Fuzz(func(t *testing.T, before, after string) {
		text := before + needle + after
		l := newLoader("f.yaml", o)
		_, _ = l.load([]byte(text))
		var doc yaml.Node
		if err := yaml.Unmarshal([]byte(text), &doc); err != nil ||
			!underSecret(&doc, l.secrets, false, needle) {
			t.Skip("skipped: the needle is not the value of a secret")
		}
		for line := range l.lines {
			if e := l.failAt(line+1, 1, "x"); strings.Contains(e.Excerpt, needle) {
				t.Errorf("%q is shown as\n%s", text, e.Excerpt)
			}
		}
	})
}

func underSecret(n *yaml.Node, secrets map[string]bool, under bool, needle string) bool {
	if n.Kind == yaml.ScalarNode {
		return under && strings.Contains(n.Value, needle) && !strings.Contains(n.Value, "${")
	}
	for i, c := range n.Content {
		isKey := n.Kind == yaml.MappingNode && i%2 == 0
		if !isKey && underSecret(c, secrets, under || n.Kind == yaml.MappingNode &&
			secrets[n.Content[i-1].Value], needle) {
			return true
		}
	}
	return false
}
