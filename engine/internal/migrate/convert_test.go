package migrate_test

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/penstock-io/penstock/engine/internal/migrate"
	"github.com/penstock-io/penstock/engine/internal/migrate/filebeat"
	"github.com/penstock-io/penstock/engine/internal/migrate/fluentbit"
	"github.com/penstock-io/penstock/engine/internal/migrate/vector"
)

var update = flag.Bool("update", false, "write the converted configs into testdata")

// convert converts a file of the given program.
func convert(program, file, text string) (migrate.Result, error) {
	switch program {
	case "filebeat":
		return filebeat.Convert(text, file, "")
	case "fluent-bit":
		return fluentbit.Convert(text, file)
	}
	return vector.Convert(text, strings.HasSuffix(file, ".toml"), "")
}

// TestConvert compares the configs and notes of whole files with reviewed ones.
func TestConvert(t *testing.T) {
	all, err := filepath.Glob("testdata/*/*")
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	for _, file := range all {
		if strings.HasSuffix(file, ".golden") {
			continue
		}
		n++
		t.Run(file, func(t *testing.T) {
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			r, err := convert(filepath.Base(filepath.Dir(file)), file, string(text))
			if err != nil {
				t.Fatal(err)
			}
			var b strings.Builder
			fmt.Fprintf(&b, "%s\n%s, runnable %v\n", r.Config, r.Name, r.Runnable)
			for _, note := range r.Notes {
				fmt.Fprintln(&b, note)
			}
			golden := file + ".golden"
			if *update {
				if err := os.WriteFile(golden, []byte(b.String()), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(golden)
			if err != nil {
				t.Fatal(err)
			}
			if b.String() != string(want) {
				t.Errorf("%s differs; read it, then -update:\n%s", golden, b.String())
			}
		})
	}
	if n < 7 {
		t.Errorf("only %d configs", n)
	}
}

// TestConvertFilebeatLines checks that options that select or join lines are converted or reported.
func TestConvertFilebeatLines(t *testing.T) {
	for _, c := range []struct{ input, want string }{
		{"type: container, stream: stderr", "input.stream: records of both streams"},
		{"type: container, stream: all", "preset: cri }"},
		{"type: log, multiline: {pattern: a, match: after, max_lines: 9, timeout: 1m}",
			`continue: "a", max_lines: 9, wait: 1m0s }`},
		{"type: log, multiline: {pattern: a, match: after, flush_pattern: b}",
			"multiline.flush_pattern: has no equivalent"},
		{"type: log, multiline: {type: while_pattern, pattern: a, negate: true}",
			"multiline: this way of joining lines is not supported"},
	} {
		r, err := filebeat.Convert("filebeat.inputs: [{paths: [x], "+c.input+"}]", "", "")
		if err != nil {
			t.Fatal(err)
		}
		if got := r.Config + fmt.Sprint(r.Notes); !strings.Contains(
			strings.ReplaceAll(got, "inputs[0].", "input."), c.want) {
			t.Errorf("%s: %s\nwant %s", c.input, got, c.want)
		}
	}
}

// TestConvertFilebeatInputs checks that a config is not runnable if it lacks an input of Filebeat.
func TestConvertFilebeatInputs(t *testing.T) {
	for _, lost := range []string{"", "filebeat.modules: [{module: nginx}]\n",
		"filebeat.autodiscover.providers: [{type: docker}]\n"} {
		r, err := filebeat.Convert("filebeat.inputs: [{type: log, paths: [x]}]\n"+
			"output.console.pretty: true\n"+lost, "", "")
		if err != nil {
			t.Fatal(err)
		}
		noted := slices.ContainsFunc(r.Notes, func(n migrate.Note) bool {
			return n.Kind == migrate.Lost
		})
		if r.Runnable != (lost == "") || noted != (lost != "") {
			t.Errorf("%q: runnable %v, notes %v", lost, r.Runnable, r.Notes)
		}
	}
}

// TestConvertIncludes checks that a config is not runnable if it includes other files, which are
// not converted. A glob that matches no file includes nothing.
func TestConvertIncludes(t *testing.T) {
	dir := t.TempDir()
	for _, file := range []string{"modules.d/nginx.yml.disabled", "inputs.d/web.yml", "more.conf"} {
		name := filepath.Join(dir, file)
		if err := os.MkdirAll(filepath.Dir(name), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(name, nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	const input = "filebeat.inputs: [{type: log, paths: [x]}]\noutput.console.pretty: true\n"
	const classic = "[INPUT]\nName tail\nPath a\n[OUTPUT]\nName stdout\nMatch *\n"
	const pipeline = "pipeline: {inputs: [{name: tail, path: a}], " +
		"outputs: [{name: stdout, match: '*'}]}\n"
	for _, c := range []struct {
		text, want string
		runnable   bool
	}{
		{input + "filebeat.config.modules.path: ${path.config}/modules.d/*.yml",
			"unneeded: line 3: filebeat.config.modules: no file matches", true},
		{input + "filebeat.config.inputs.path: inputs.d/*.yml",
			"lost: line 3: filebeat.config.inputs: the files inputs.d/*.yml are not read", false},
		{input + "filebeat.config.inputs: {enabled: false, path: inputs.d/*.yml}",
			"unneeded: line 3: filebeat.config.inputs: is not enabled", true},
		{input + "filebeat.config.inputs.path: ${DIR}/*.yml", "lost: line 3: ", false},
		{input + "filebeat.config.inputs.path: missing/*.yml", "lost: line 3: ", false},
		{input + "filebeat.config.inputs.reload.enabled: true", "lost: line 3: ", false},
		{"@INCLUDE more.conf\n" + classic,
			"lost: line 1: @INCLUDE: the files more.conf are not read: copy their content", false},
		{"@INCLUDE missing.conf\n" + classic, "lost: line 1: @INCLUDE: ", false},
		{"@Include inputs-*.conf\n" + classic, "unneeded: line 1: @Include: no file matches", true},
		{"[PARSER]\nName x\n" + classic, "lost: line 1: PARSER: is not read", true},
		{pipeline + "includes: [more.conf]", "lost: line 2: includes[0]: the files", false},
		{"includes: [more.conf]", "lost: line 1: includes[0]: the files", false},
	} {
		from := fluentbit.Convert
		if strings.HasPrefix(c.text, input) {
			from = func(text, path string) (migrate.Result, error) {
				return filebeat.Convert(text, path, "")
			}
		}
		r, err := from(c.text, filepath.Join(dir, "config"))
		if err != nil {
			t.Fatal(err)
		}
		text := fmt.Sprint(r.Notes)
		if r.Runnable != c.runnable || !strings.Contains(text, c.want) {
			t.Errorf("%s: runnable %v, notes %s; want %s", c.text, r.Runnable, text, c.want)
		}
	}
}

// TestConvertModify checks the conversion of the Fluent Bit filters modify, record_modifier and
// grep. The new processors must have the effects of the rules, in the order in which Fluent Bit
// applies them.
func TestConvertModify(t *testing.T) {
	for _, c := range []struct{ filter, want string }{
		{"Name modify\nRename a b\nSet a x\nAdd b y\nRemove c.d",
			`rename: { "a": "b" }; set: { "a": "\"x\"" }; set: { "b": "b ?? \"y\"" }; ` +
				`drop: ["\"c.d\""]`},
		{"Name record_modifier\nRecord host a\nRemove_key host",
			`drop: ["host"]; set: { "host": "\"a\"" }`},
		{"Name grep\nRegex user-agent x\nExclude $k['a'] y",
			`where: "(string($env[\"user-agent\"] ?? \"\") matches \"x\")"; ` +
				`where: "not (string(k['a'] ?? \"\") matches \"y\")"`},
	} {
		r, err := fluentbit.Convert("[INPUT]\nName tail\nPath a\nParser json\n[FILTER]\nMatch *\n"+
			c.filter+"\n[OUTPUT]\nName stdout\nMatch *\n", "")
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for line := range strings.Lines(r.Config) {
			if item, ok := strings.CutPrefix(strings.TrimSpace(line), "- "); ok {
				got = append(got, item)
			}
		}
		want := "parse: { format: json, on_error: pass }; " + c.want
		if strings.Join(got, "; ") != want {
			t.Errorf("%q:\n%s\nwant\n%s", c.filter, strings.Join(got, "; "), want)
		}
	}
}

func TestConvertRefuses(t *testing.T) {
	for _, c := range []struct{ program, file, text, want string }{
		{"filebeat", "", "a: [", "line"},
		{"filebeat", "", "- a\n", "line 1: the top level is not a mapping"},
		{"fluent-bit", "", "[INPUT\n", `line 1: "[INPUT" is not a section: want [NAME]`},
		{"fluent-bit", "", "# only\nname tail\n", "the top level is not a mapping"},
		{"fluent-bit", "", "@SET a=b\nName tail\n",
			`line 2: "Name tail" is before the first section`},
		{"fluent-bit", "", "a: b\n", "it is not a configuration of Fluent Bit"},
		{"vector", "x.toml", "[sources\n", "toml"},
		{"vector", "x.yaml", "a: {b\n", "line"},
	} {
		if _, err := convert(
			c.program,
			c.file,
			c.text,
		); err == nil ||
			!strings.Contains(err.Error(), c.want) {
			t.Errorf("%s %q: %v, want ... %s", c.program, c.text, err, c.want)
		}
	}
}

// TestNames checks that names are valid and distinct, also for parts without a name.
func TestNames(t *testing.T) {
	var n migrate.Names
	valid := regexp.MustCompile(`^[a-z0-9_-]{1,64}$`)
	seen := map[string]bool{}
	for _, name := range []string{"", "", "a", "A", "a-2", "ü", "-", strings.Repeat("x", 99),
		strings.Repeat("x", 98)} {
		got := n.Unique(name)
		if !valid.MatchString(got) || seen[got] {
			t.Errorf("%q became %q, after %v", name, got, seen)
		}
		seen[got] = true
	}
}

func TestMatchGlob(t *testing.T) {
	for _, c := range []struct {
		glob, path string
		want       bool
	}{
		{"/a/*.log", "/a/x.log", true}, {"/a/*.log", "/a/b/x.log", false},
		{"/a/**/*.log", "/a/b/c/x.log", true}, {"/a/**/*.log", "/a/x.log", true},
		{"/a/[!x]*", "/a/y1", true}, {"/a/[!x]*", "/a/x1", false},
		{"/a/{x,y}.log", "/a/y.log", true}, {"/a/{x,y}.log", "/a/z.log", false}, {"/a/?", "/a/bb", false},
		{"/a.log", "/aXlog", false}, {"/a/[", "/a/[", true}, {"/a/[z-a]", "/a/b", false},
		{"/a/[b!]", "/a/!", true}, {"/a/[b!]", "/a/^", false}, {"/a/[!b!]", "/a/!", false},
		{"/a/[^b]", "/a/b", false}, {"/ä/*.log", "/ä/x.log", true}, {"/a/日?.log", "/a/日本.log", true},
		{`/a/\*.log`, "/a/*.log", true}, {`/a/\*.log`, "/a/x.log", false}, {`/a/\日`, "/a/日", true},
		{`/a/\{x,y\}`, "/a/{x,y}", true}, {`/a/\{x,y\}`, "/a/x", false}, {`/a/x\`, `/a/x\`, true},
		{`/a/[\]\-z]`, "/a/]", true}, {`/a/[\]\-z]`, "/a/-", true}, {`/a/[\]\-z]`, "/a/b", false},
		{`/a/[\d]`, "/a/d", true}, {`/a/[\d]`, "/a/1", false}, {`/a/\[b]`, "/a/[b]", true},
	} {
		if got := migrate.MatchGlob(c.glob, c.path); got != c.want {
			t.Errorf("%s %s: %v", c.glob, c.path, got)
		}
	}
}
