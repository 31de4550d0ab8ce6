package compare

import (
	"bytes"
	"fmt"
	"go/ast"
	"go/parser"
	"go/printer"
	"go/token"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"text/tabwriter"
)

// mostLines is the maximum ratio of our lines to theirs.
const mostLines = 1.2

// TestLines prints the lines of each program, without imports, blank lines and comments.
func TestLines(t *testing.T) {
	ours, theirs := count(t)
	if len(ours) < 7 || len(ours) != len(theirs) {
		t.Fatalf("%d programs of ours and %d of theirs, want the same number, at least 7",
			len(ours), len(theirs))
	}
	names := make([]string, 0, len(ours))
	for name := range ours {
		names = append(names, name)
	}
	slices.Sort(names)
	out := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', tabwriter.AlignRight)
	defer out.Flush()
	fmt.Fprintf(out, "program\tours\ttheirs\tratio\t\n")
	for _, name := range names {
		ratio := float64(ours[name]) / float64(theirs[name])
		fmt.Fprintf(out, "%s\t%d\t%d\t%.2f\t\n", name, ours[name], theirs[name], ratio)
		if !(ratio <= mostLines) {
			t.Errorf("%s: %d lines beside %d, want at most %.1f times as many", name, ours[name],
				theirs[name], mostLines)
		}
	}
}

// count returns the lines of all programs by their names.
func count(t *testing.T) (ours, theirs map[string]int) {
	t.Helper()
	paths, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	ours, theirs = map[string]int{}, map[string]int{}
	var programs []string // no name is a prefix of another
	declarations := map[string]int{}
	files := token.NewFileSet()
	for _, path := range paths {
		// without comments
		file, err := parser.ParseFile(files, path, nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range file.Decls {
			name := owner(d)
			if strings.HasPrefix(name, "ours") || strings.HasPrefix(name, "theirs") {
				var text bytes.Buffer
				if err := printer.Fprint(&text, files, d); err != nil {
					t.Fatal(err)
				}
				declarations[name] += nonBlank(text.String())
			}
		}
	}
	for name := range declarations {
		if program, ok := strings.CutPrefix(name, "ours"); ok &&
			declarations["theirs"+program] > 0 {
			programs = append(programs, program)
		}
	}
	for name, n := range declarations {
		side, rest := ours, strings.TrimPrefix(name, "ours")
		if strings.HasPrefix(name, "theirs") {
			side, rest = theirs, strings.TrimPrefix(name, "theirs")
		}
		i := slices.IndexFunc(programs, func(p string) bool { return strings.HasPrefix(rest, p) })
		if i < 0 {
			t.Fatalf("%s belongs to no program", name)
		}
		side[programs[i]] += n
	}
	return ours, theirs
}

// owner returns the name of a declared function or type, or that of a method's receiver.
func owner(d ast.Decl) string {
	switch d := d.(type) {
	case *ast.FuncDecl:
		if d.Recv == nil {
			return d.Name.Name
		}
		receiver := d.Recv.List[0].Type
		if pointer, ok := receiver.(*ast.StarExpr); ok {
			receiver = pointer.X
		}
		if name, ok := receiver.(*ast.Ident); ok {
			return name.Name
		}
	case *ast.GenDecl:
		if s, ok := d.Specs[0].(*ast.TypeSpec); ok {
			return s.Name.Name
		}
	}
	return ""
}

func nonBlank(text string) (n int) {
	for l := range strings.Lines(text) {
		if strings.TrimSpace(l) != "" {
			n++
		}
	}
	return n
}
