package archtest

import (
	"go/ast"
	"go/token"
	"path"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"
)

const (
	maxFileLines   = 600 // aim for 400
	maxLineColumns = 120
	// maxRawColumns is the limit for lines with a part of a raw string, such as a struct tag. It is
	// higher than maxLineColumns, because a raw string cannot be wrapped.
	maxRawColumns    = 140
	maxFunctionLines = 70
	tabColumns       = 4
)

func TestFilesAreSmall(t *testing.T) {
	for _, f := range all(t) {
		if n := len(f.lines) - 1; n > maxFileLines {
			t.Errorf("%s has %d lines, at most %d: split it by subject", f.path, n,
				maxFileLines)
		}
		raw := f.rawLines()
		for i, line := range f.lines {
			limit := maxLineColumns
			if raw[i+1] {
				limit = maxRawColumns
			}
			n := utf8.RuneCountInString(line) + (tabColumns-1)*strings.Count(line, "\t")
			if n > limit {
				t.Errorf("%s:%d has %d columns, at most %d", f.path, i+1, n, limit)
			}
		}
	}
}

// rawLines returns the lines that contain a part of a raw string or of an example's expected
// output.
func (f *file) rawLines() map[int]bool {
	lines := map[int]bool{}
	add := func(node ast.Node) {
		for i := f.line(node.Pos()); i <= f.line(node.End()); i++ {
			lines[i] = true
		}
	}
	ast.Inspect(f.ast, func(node ast.Node) bool {
		lit, ok := node.(*ast.BasicLit)
		if ok && lit.Kind == token.STRING && strings.HasPrefix(lit.Value, "`") {
			add(lit)
		}
		return true
	})
	for _, group := range f.ast.Comments {
		if f.test && strings.HasPrefix(group.Text(), "Output:") {
			add(group)
		}
	}
	return lines
}

func TestFunctionsAreShort(t *testing.T) {
	for _, f := range all(t) {
		for _, d := range f.ast.Decls {
			fn, ok := d.(*ast.FuncDecl)
			if !ok || fn.Body == nil {
				continue
			}
			n := f.line(fn.End()) - f.line(fn.Pos()) + 1
			if f.test {
				n -= f.tableLines(fn)
			}
			if n > maxFunctionLines {
				t.Errorf("%s:%d: %s has %d lines, at most %d", f.path, f.line(fn.Pos()),
					fn.Name.Name, n, maxFunctionLines)
			}
		}
	}
}

// tableLines counts the lines of a test function's tables, which are its outermost composite
// literals.
func (f *file) tableLines(fn *ast.FuncDecl) (n int) {
	ast.Inspect(fn.Body, func(node ast.Node) bool {
		if lit, ok := node.(*ast.CompositeLit); ok {
			n += f.line(lit.End()) - f.line(lit.Pos())
			return false
		}
		return true
	})
	return n
}

var badNames = []string{"util", "utils", "common", "helper", "helpers", "base", "manager", "types",
	"misc", "shared"}

func TestNamesSayWhatTheyHold(t *testing.T) {
	for _, f := range all(t) {
		file := strings.TrimSuffix(strings.TrimSuffix(path.Base(f.path), ".go"), "_test")
		if slices.Contains(badNames, path.Base(f.dir)) || slices.Contains(badNames, file) {
			t.Errorf("%s: a name such as util tells nothing about the contents",
				f.path)
		}
		for _, d := range f.ast.Decls {
			if fn, ok := d.(*ast.FuncDecl); ok && fn.Recv == nil && fn.Name.Name == "init" {
				t.Errorf("%s:%d: init() registers components invisibly: assemble them explicitly",
					f.path, f.line(fn.Pos()))
			}
		}
	}
}

func TestNothingIsLeftOpen(t *testing.T) {
	open := []string{"TO" + "DO", "FIX" + "ME", "XX" + "X"}
	for _, f := range all(t) {
		for _, group := range f.ast.Comments {
			for _, word := range open {
				if strings.Contains(group.Text(), word) {
					t.Errorf("%s:%d: %s left in a comment: finish it or file it", f.path,
						f.line(group.Pos()), word)
				}
			}
		}
	}
}

func TestPackagesSayWhatTheyAre(t *testing.T) {
	documented, seen := map[string]bool{}, map[string]bool{}
	for _, f := range all(t) {
		if f.test {
			continue
		}
		seen[f.dir] = true
		if f.ast.Doc != nil && len(f.ast.Doc.Text()) > 40 {
			documented[f.dir] = true
		}
	}
	for dir := range seen {
		if !documented[dir] {
			t.Errorf("%s has no package comment: say what it holds, who owns it, what it never does", dir)
		}
	}
}

func TestExportedThingsAreDocumented(t *testing.T) {
	for _, f := range all(t) {
		if f.test || f.under("examples", "engine/examples", "bench", "grpc") ||
			f.ast.Name.Name == "main" {
			continue
		}
		for _, d := range f.ast.Decls {
			switch d := d.(type) {
			case *ast.FuncDecl:
				if d.Name.IsExported() && exportedReceiver(d) && d.Doc == nil {
					t.Errorf("%s:%d: %s has no doc comment", f.path, f.line(d.Pos()), d.Name.Name)
				}
			case *ast.GenDecl:
				f.checkDocumented(t, d)
			}
		}
	}
}

func exportedReceiver(d *ast.FuncDecl) bool {
	if d.Recv == nil {
		return true
	}
	typ := d.Recv.List[0].Type
	for {
		switch t := typ.(type) {
		case *ast.StarExpr:
			typ = t.X
		case *ast.IndexExpr:
			typ = t.X
		case *ast.IndexListExpr:
			typ = t.X
		case *ast.Ident:
			return t.IsExported()
		default:
			return false
		}
	}
}

func (f *file) checkDocumented(t *testing.T, d *ast.GenDecl) {
	if d.Tok == token.IMPORT || d.Doc != nil {
		return
	}
	for _, s := range d.Specs {
		switch s := s.(type) {
		case *ast.TypeSpec:
			if s.Name.IsExported() && s.Doc == nil && s.Comment == nil {
				t.Errorf("%s:%d: type %s has no doc comment", f.path, f.line(s.Pos()), s.Name.Name)
			}
		case *ast.ValueSpec:
			for _, name := range s.Names {
				if name.IsExported() && s.Doc == nil && s.Comment == nil {
					t.Errorf("%s:%d: %s has no doc comment", f.path, f.line(s.Pos()), name.Name)
				}
			}
		}
	}
}
