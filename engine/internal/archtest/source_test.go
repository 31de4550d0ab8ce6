package archtest

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
)

// file is one Go file of the project.
type file struct {
	path  string // from the top of the project, with slashes
	dir   string
	test  bool
	pure  bool
	lines []string
	ast   *ast.File
	fset  *token.FileSet
}

const module = "github.com/penstock-io/penstock"

// top is the project's folder, relative to this package.
const top = "../../.."

var sources = sync.OnceValues(func() ([]*file, error) {
	var files []*file
	fset := token.NewFileSet()
	err := filepath.WalkDir(top, func(p string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name := d.Name()
		if d.IsDir() && p != top &&
			(strings.HasPrefix(name, ".") || name == "testdata" || name == "node_modules" ||
				name == "tmp") {
			return filepath.SkipDir
		}
		if d.IsDir() || !strings.HasSuffix(name, ".go") {
			return nil
		}
		text, err := os.ReadFile(p)
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(top, p)
		if err != nil {
			return err
		}
		parsed, err := parser.ParseFile(fset, p, text,
			parser.ParseComments|parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		rel = filepath.ToSlash(rel)
		files = append(files, &file{
			path: rel, dir: path.Dir(rel), test: strings.HasSuffix(name, "_test.go"), ast: parsed,
			fset:  fset,
			pure:  strings.HasPrefix(string(text), "//penstock:pure\n"),
			lines: strings.Split(string(text), "\n"),
		})
		return nil
	})
	return files, err
})

func all(t *testing.T) []*file {
	t.Helper()
	files, err := sources()
	if err != nil {
		t.Fatal(err)
	}
	if len(files) < 30 {
		t.Fatalf("found %d Go files: the walk starts at the wrong place", len(files))
	}
	return files
}

// under reports whether the file lies in or beneath one of the directories.
func (f *file) under(dirs ...string) bool {
	return slices.ContainsFunc(dirs, func(d string) bool {
		return f.dir == d || strings.HasPrefix(f.dir, d+"/")
	})
}

func (f *file) line(p token.Pos) int { return f.fset.Position(p).Line }

// imports are the file's import paths.
func (f *file) imports() []string {
	var out []string
	for _, i := range f.ast.Imports {
		out = append(out, strings.Trim(i.Path.Value, `"`))
	}
	return out
}

// selector returns the import path and the name if n refers to an identifier of another package.
// Example: for http.Get, it returns "net/http" and "Get". Otherwise ok is false.
func (f *file) selector(n ast.Node) (pkg, name string, ok bool) {
	sel, isSel := n.(*ast.SelectorExpr)
	if !isSel {
		return "", "", false
	}
	id, isID := sel.X.(*ast.Ident)
	if !isID {
		return "", "", false
	}
	for _, i := range f.ast.Imports {
		p := strings.Trim(i.Path.Value, `"`)
		local := path.Base(p)
		if local == "v2" {
			local = path.Base(path.Dir(p))
		}
		if i.Name != nil {
			local = i.Name.Name
		}
		if local == id.Name {
			return p, sel.Sel.Name, true
		}
	}
	return "", "", false
}
