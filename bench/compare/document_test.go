package compare

import (
	"bytes"
	"flag"
	"go/ast"
	"go/parser"
	"go/printer"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "write the programs into the page")

// program matches a place in a Markdown page that shows one program: a comment with the name of the
// program, and the code block after it, which TestDocument writes.
var program = regexp.MustCompile("(?s)<!-- program (\\w+) -->\n(?:```diff\n.*?```\n)?")

// TestDocument compares the programs that docs/coming-from-go.md shows with those that are compiled
// here.
func TestDocument(t *testing.T) {
	const page = "../../docs/coming-from-go.md"
	before, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	texts := sources(t)
	shown := map[string]bool{}
	after := program.ReplaceAllStringFunc(string(before), func(place string) string {
		name := program.FindStringSubmatch(place)[1]
		shown[name] = true
		if texts["ours"+name] == "" || texts["theirs"+name] == "" {
			t.Errorf("the page shows a program %s, which is not here", name)
		}
		return "<!-- program " + name + " -->\n```diff\n" + prefixed("-", texts["theirs"+name]) +
			prefixed("+", texts["ours"+name]) + "```\n"
	})
	ours, _ := count(t)
	for name := range ours {
		if !shown[name] {
			t.Errorf("the page does not show program %s", name)
		}
	}
	if after == string(before) {
		return
	}
	if !*update {
		t.Fatal("the page shows other programs: run go test -run TestDocument -update")
	}
	if err := os.WriteFile(page, []byte(after), 0o644); err != nil {
		t.Fatal(err)
	}
}

// sources returns the text of each program, with its helpers.
func sources(t *testing.T) map[string]string {
	t.Helper()
	ours, _ := count(t)
	paths, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	texts := map[string]string{}
	files := token.NewFileSet()
	for _, path := range paths {
		file, err := parser.ParseFile(files, path, nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range file.Decls {
			name := owner(d)
			for program := range ours {
				for _, side := range []string{"ours", "theirs"} {
					if strings.HasPrefix(name, side+program) {
						texts[side+program] += text(t, files, d) + "\n"
					}
				}
			}
		}
	}
	return texts
}

func text(t *testing.T, files *token.FileSet, d ast.Decl) string {
	t.Helper()
	var b bytes.Buffer
	config := printer.Config{Mode: printer.UseSpaces, Tabwidth: 4}
	if err := config.Fprint(&b, files, d); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

// prefixed returns the non-blank lines of text, each with sign as its prefix.
func prefixed(sign, text string) string {
	var b strings.Builder
	for l := range strings.Lines(text) {
		if strings.TrimSpace(l) != "" {
			b.WriteString(sign + " " + l)
		}
	}
	return b.String()
}
