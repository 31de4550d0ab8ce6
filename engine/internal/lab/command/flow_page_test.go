package command

import (
	"bytes"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/spf13/pflag"

	"github.com/penstock-io/penstock/engine/cli"
	"github.com/penstock-io/penstock/engine/internal/lab/flowsim"
	"github.com/penstock-io/penstock/engine/internal/lab/scenario"
)

const docs = top + "/docs/"

// part returns the text between two markers of docs/flow-control.md.
func part(t *testing.T, what string) string {
	t.Helper()
	_, rest, found := strings.Cut(page(t, "flow-control.md"), "<!-- "+what+": make docs-flow -->\n")
	text, _, closed := strings.Cut(rest, "<!-- end of "+what+" -->")
	if !found || !closed {
		t.Fatalf("docs/flow-control.md has no markers of %s", what)
	}
	return text
}

var numbers = regexp.MustCompile(`[0-9][0-9.,]*(e[+-][0-9]+)?|NaN`)

// form returns a generated part of the page without its figures and without the lines about missed
// bounds, because both change with the machine.
func form(text string) string {
	var out []string
	for line := range strings.Lines(text) {
		if !strings.HasPrefix(line, "- ") && strings.TrimSpace(line) != "" {
			out = append(out, numbers.ReplaceAllString(strings.TrimSpace(line), "#"))
		}
	}
	return strings.Join(out, "\n")
}

func sameForm(t *testing.T, what string, want []byte) {
	t.Helper()
	got, wanted := form(part(t, what)), form(string(want))
	if got == wanted {
		return
	}
	a, b := strings.Split(got, "\n"), strings.Split(wanted, "\n")
	for i := range b {
		if i >= len(a) || a[i] != b[i] {
			line := "nothing"
			if i < len(a) {
				line = a[i]
			}
			const text = "%s of docs/flow-control.md are not of this program's form; " +
				"run make docs-flow. The page has\n%s\nwant\n%s"
			t.Fatalf(text, what, line, b[i])
		}
	}
	t.Fatalf("%s of docs/flow-control.md have lines that the program does not write: %q", what,
		a[len(b):])
}

// TestFlowPageTables checks that the tables cover the existing scenarios and algorithms.
func TestFlowPageTables(t *testing.T) {
	files, err := filepath.Glob(docs + "scenarios/*.yaml")
	if err != nil || len(files) == 0 {
		t.Fatalf("no scenarios: %v", err)
	}
	r := tableResult{medians: map[*scenario.Scenario]map[string]scenario.Figures{},
		seeds: tableSeeds, first: 1}
	for _, file := range files {
		s, err := scenario.Load(file)
		if err != nil {
			t.Fatal(err)
		}
		r.scenarios = append(r.scenarios, s)
	}
	var want bytes.Buffer
	r.write(&want, tableAlgorithms)
	sameForm(t, "tables", want.Bytes())
}

// TestFlowPageExperiments checks that the experiments are those of the simulator.
func TestFlowPageExperiments(t *testing.T) {
	var want bytes.Buffer
	want.WriteString(seedsLine(ablateSeeds, 1, "--ablate"))
	for _, x := range flowsim.Experiments() {
		for i := range x.Rows {
			x.Rows[i].Values = make([]float64, len(x.Columns))
		}
		ablateMarkdown(&want, &x, "docs/plots/flow", "docs/flow-control.md")
	}
	sameForm(t, "experiments", want.Bytes())
}

// TestFlowPageIsTrue checks that the commands, flags, targets and files named in
// docs/flow-control.md and docs/coming-from.md exist.
func TestFlowPageIsTrue(t *testing.T) {
	text := page(t, "flow-control.md") + page(t, "coming-from.md")
	called := 0
	for _, line := range regexp.MustCompile("(?m)(?:^|`)penstock [^`#\n]+").FindAllString(text,
		-1) {
		words := strings.Fields(strings.TrimPrefix(line, "`"))[1:]
		cmd, rest, err := cli.Program{Commands: Commands()}.Command().Find(words)
		if err != nil || !cmd.HasParent() {
			t.Errorf("the page calls %q: %v", line, err)
			continue
		}
		called++
		for _, w := range rest {
			name, isFlag := strings.CutPrefix(w, "--")
			var flag *pflag.Flag
			if isFlag {
				flag = cmd.Flags().Lookup(name)
			}
			if isFlag && flag == nil {
				t.Errorf("the page calls %q, and there is no --%s", line, name)
			}
			if strings.HasPrefix(w, "docs/") && !strings.Contains(w, "*") {
				exists(t, filepath.Join(top, w))
			}
		}
	}
	if called < 5 {
		t.Errorf("%d commands were found on the page", called)
	}
	makefile, err := os.ReadFile(top + "/Makefile")
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range regexp.MustCompile("(?m)(?:^|`)make ([a-z-]+)").FindAllStringSubmatch(text,
		-1) {
		if !strings.Contains(string(makefile), "\n"+m[1]+":") {
			t.Errorf("the page says make %s, and the Makefile has no such target", m[1])
		}
	}
	headings := map[string]bool{}
	for _, m := range regexp.MustCompile(`(?m)^#+ (.+)$`).FindAllStringSubmatch(page(t,
		"flow-control.md"), -1) {
		headings[anchor(m[1])] = true
	}
	for _, m := range regexp.MustCompile(`\]\(([^)]+)\)`).FindAllStringSubmatch(text, -1) {
		file, place, _ := strings.Cut(m[1], "#")
		if file != "" {
			exists(t, docs+file)
		}
		if place != "" && (file == "" || file == "flow-control.md") && !headings[place] {
			t.Errorf("the page links to #%s, and has no such heading", place)
		}
	}
}

// anchor returns the name of a heading as links to it contain it.
func anchor(heading string) string {
	keep := func(r rune) rune {
		switch {
		case r == ' ':
			return '-'
		case r == '-' || r == '_' || r >= 'a' && r <= 'z' || r >= '0' && r <= '9':
			return r
		}
		return -1
	}
	return strings.Map(keep, strings.ToLower(heading))
}

func exists(t *testing.T, path string) {
	t.Helper()
	if _, err := os.Stat(path); err != nil {
		t.Errorf("the page names %s: %v", path, err)
	}
}

// TestScenariosAreTheSuite checks that the files in docs/scenarios equal those in the folder
// PENSTOCK_SCENARIOS byte by byte.
func TestScenariosAreTheSuite(t *testing.T) {
	dir := os.Getenv("PENSTOCK_SCENARIOS")
	if dir == "" {
		t.Skip("PENSTOCK_SCENARIOS names no folder of scenarios")
	}
	suite, err := filepath.Glob(filepath.Join(dir, "*.yaml"))
	ours, oursErr := filepath.Glob(docs + "scenarios/*.yaml")
	if err != nil || oursErr != nil || len(suite) != len(ours) {
		t.Fatalf("the suite has %d scenarios, docs/scenarios %d (%v, %v)", len(suite), len(ours),
			err, oursErr)
	}
	for _, file := range suite {
		want, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		got, err := os.ReadFile(docs + "scenarios/" + filepath.Base(file))
		if err != nil || !bytes.Equal(got, want) {
			t.Errorf("docs/scenarios/%s is not the suite's (%v)", filepath.Base(file), err)
		}
	}
}
