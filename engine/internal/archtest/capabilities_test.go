package archtest

import (
	"go/ast"
	"maps"
	"slices"
	"strings"
	"testing"
)

// contracts are the interfaces of package stream that are not optional. Every component must
// implement those of its role, and the engine implements SourceHost. The other interfaces are
// optional capabilities, which the engine finds by type assertion.
var contracts = []string{"Source", "Reader", "Sink", "Processor", "SourceHost"}

// streamInterfaces returns the interfaces that package stream declares, with their own methods.
func streamInterfaces(files []*file) map[string][]string {
	out := make(map[string][]string)
	for _, f := range files {
		if f.dir != "stream" || f.test {
			continue
		}
		ast.Inspect(f.ast, func(n ast.Node) bool {
			spec, ok := n.(*ast.TypeSpec)
			if !ok {
				return true
			}
			if i, ok := spec.Type.(*ast.InterfaceType); ok {
				out[spec.Name.Name] = []string{}
				for _, m := range i.Methods.List {
					for _, name := range m.Names {
						out[spec.Name.Name] = append(out[spec.Name.Name], name.Name)
					}
				}
			}
			return true
		})
	}
	return out
}

// asserted returns the interfaces of package stream that the engine looks for by type assertion, or
// by a generic function such as errors.AsType. The result maps each interface to a file that
// contains such an assertion.
func asserted(files []*file, interfaces map[string][]string) map[string]string {
	out := make(map[string]string)
	for _, f := range files {
		if f.test || !strings.HasPrefix(f.dir, "engine/") ||
			strings.HasPrefix(f.dir, "engine/connector/connectortest") {
			continue
		}
		ast.Inspect(f.ast, func(n ast.Node) bool {
			var target ast.Expr
			switch n := n.(type) {
			case *ast.TypeAssertExpr:
				target = n.Type
			case *ast.IndexExpr:
				target = n.Index
			}
			s, ok := target.(*ast.SelectorExpr)
			if !ok {
				return true
			}
			name := s.Sel.Name
			if p, ok := s.X.(*ast.Ident); ok && p.Name == "stream" && interfaces[name] != nil &&
				!slices.Contains(contracts, name) {
				out[name] = f.path
			}
			return true
		})
	}
	return out
}

// methodSets returns the names of the methods that each type outside of tests declares.
func methodSets(files []*file) map[string]map[string]bool {
	out := make(map[string]map[string]bool)
	for _, f := range files {
		if f.test {
			continue
		}
		for _, d := range f.ast.Decls {
			fn, ok := d.(*ast.FuncDecl)
			if !ok || fn.Recv == nil {
				continue
			}
			r := fn.Recv.List[0].Type
			if star, ok := r.(*ast.StarExpr); ok {
				r = star.X
			}
			if i, ok := r.(*ast.IndexExpr); ok {
				r = i.X
			}
			id, ok := r.(*ast.Ident)
			if !ok {
				continue
			}
			key := f.dir + "." + id.Name
			if out[key] == nil {
				out[key] = make(map[string]bool)
			}
			out[key][fn.Name.Name] = true
		}
	}
	return out
}

// TestCapabilities checks that the package documentation of stream lists exactly the optional
// interfaces that the engine looks for. Each of them must be implemented by some type.
func TestCapabilities(t *testing.T) {
	files := all(t)
	interfaces := streamInterfaces(files)
	var section string
	for _, f := range files {
		if f.path == "stream/doc.go" {
			_, section, _ = strings.Cut(f.ast.Doc.Text(), "# Capabilities")
			section, _, _ = strings.Cut(section, "\n# ")
		}
	}
	listed := make(map[string]bool)
	for line := range strings.SplitSeq(section, "\n") {
		if !strings.HasPrefix(line, "\t") {
			continue
		}
		for word := range strings.FieldsFuncSeq(line, func(c rune) bool {
			return (c < 'A' || c > 'Z') && (c < 'a' || c > 'z')
		}) {
			if interfaces[word] != nil && !slices.Contains(contracts, word) {
				listed[word] = true
			}
		}
	}
	if len(listed) < 20 {
		t.Fatalf("found only %d capabilities in the documentation of stream", len(listed))
	}
	found := asserted(files, interfaces)
	for _, name := range slices.Sorted(maps.Keys(found)) {
		if !listed[name] {
			t.Errorf("%s looks for stream.%s: list it under Capabilities in stream/doc.go",
				found[name], name)
		}
	}
	sets := methodSets(files)
	for _, name := range slices.Sorted(maps.Keys(listed)) {
		if found[name] == "" {
			t.Errorf("nothing looks for stream.%s: remove it from stream/doc.go", name)
		}
		implemented := false
		for _, set := range sets {
			all := true
			for _, method := range interfaces[name] {
				all = all && set[method]
			}
			implemented = implemented || all
		}
		if !implemented {
			t.Errorf("no component implements stream.%s: remove the interface", name)
		}
	}
}
