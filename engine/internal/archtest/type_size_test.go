package archtest

import (
	"fmt"
	"go/ast"
	"maps"
	"slices"
	"testing"
)

const (
	maxFields  = 30
	maxMethods = 40
)

// size is the size of a type: its numbers of fields and methods.
type size struct{ fields, methods int }

func (s size) exceedsLimits() bool {
	return s.methods > 0 && s.fields > maxFields || s.methods > maxMethods
}

// typeDecl is one named type of a package.
type typeDecl struct {
	name    string // folder.Type
	fields  *ast.StructType
	methods int
}

// TestTypesAreSmall bounds the fields and methods of each type. If a field is a struct of the same
// package that is embedded, or that is unexported and has no methods, the fields of this struct
// count instead. Otherwise such structs could hide fields. A type without methods is plain data and
// may have any number of fields.
func TestTypesAreSmall(t *testing.T) {
	packages := map[string]map[string]*typeDecl{}
	for _, f := range all(t) {
		if f.test || f.under("bench", "examples", "engine/examples", "grpc") {
			continue
		}
		if packages[f.dir] == nil {
			packages[f.dir] = map[string]*typeDecl{}
		}
		collectTypes(f, packages[f.dir])
	}
	found := map[string]size{}
	for _, types := range packages {
		for _, d := range types {
			if s := (size{countFields(d, types, nil), d.methods}); s.exceedsLimits() {
				found[d.name] = s
			}
		}
	}
	for _, name := range slices.Sorted(maps.Keys(found)) {
		t.Errorf("%s has %d fields and %d methods, at most %d and %d: split it", name, found[name].fields,
			found[name].methods, maxFields, maxMethods)
	}
}

// collectTypes adds the struct types and methods of a file to the types of its package.
func collectTypes(f *file, types map[string]*typeDecl) {
	get := func(name string) *typeDecl {
		if types[name] == nil {
			types[name] = &typeDecl{name: fmt.Sprintf("%s.%s", f.dir, name)}
		}
		return types[name]
	}
	for _, d := range f.ast.Decls {
		switch d := d.(type) {
		case *ast.FuncDecl:
			if d.Recv != nil {
				get(baseName(d.Recv.List[0].Type)).methods++
			}
		case *ast.GenDecl:
			for _, s := range d.Specs {
				if ts, ok := s.(*ast.TypeSpec); ok {
					if st, ok := ts.Type.(*ast.StructType); ok {
						get(ts.Name.Name).fields = st
					}
				}
			}
		}
	}
}

// countFields counts the fields of d as [TestTypesAreSmall] requires. outer contains the types that
// are already being counted, so that a recursive type is counted once.
func countFields(d *typeDecl, types map[string]*typeDecl, outer []*typeDecl) (n int) {
	if d.fields == nil || slices.Contains(outer, d) {
		return 0
	}
	outer = append(outer, d)
	for _, field := range d.fields.Fields.List {
		names := max(1, len(field.Names))
		member := types[baseName(field.Type)]
		switch {
		case member == nil || member.fields == nil:
			n += names
		case len(field.Names) == 0:
			n += countFields(member, types, outer)
		case isValue(field.Type) && member.methods == 0 && !ast.IsExported(baseName(field.Type)):
			n += names * countFields(member, types, outer)
		default:
			n += names
		}
	}
	return n
}

// isValue reports whether a field of type e holds a struct itself, and not a pointer to a struct or
// a collection of structs.
func isValue(e ast.Expr) bool {
	switch e.(type) {
	case *ast.Ident, *ast.IndexExpr, *ast.IndexListExpr:
		return true
	}
	return false
}

// baseName returns the name of the type in e, without pointers and type arguments. It returns "" if
// e has another form, such as a type of another package.
func baseName(e ast.Expr) string {
	switch e := e.(type) {
	case *ast.Ident:
		return e.Name
	case *ast.StarExpr:
		return baseName(e.X)
	case *ast.IndexExpr:
		return baseName(e.X)
	case *ast.IndexListExpr:
		return baseName(e.X)
	}
	return ""
}
