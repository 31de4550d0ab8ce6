package archtest

import (
	"go/ast"
	"go/token"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// counter is a call that adds to a counter.
type counter struct{ dir, name, path string }

// TestCountersStartAtZero checks that every counter whose name is a literal is also registered: it
// is counted with the literal 0, or its name is in a list. Without this, its metric would appear
// only at the first event, and rate() would miss that event. Packages of engine/kit may register
// the counters of connectors, and connectors those of engine/kit.
func TestCountersStartAtZero(t *testing.T) {
	counted := make(map[counter]bool)
	registered := make(map[string][]*file) // files by name of the counter
	for _, f := range all(t) {
		if f.test || f.under("engine/connector/connectortest") || !f.under("engine/connector",
			"engine/processor", "engine/kit", "engine/internal/pipeline") {
			continue
		}
		ast.Inspect(f.ast, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.CompositeLit:
				if _, list := n.Type.(*ast.ArrayType); list {
					for _, e := range n.Elts {
						registered[text(e)] = append(registered[text(e)], f)
					}
				}
			case *ast.CallExpr:
				if !counts(n) {
					break
				}
				name := text(n.Args[0])
				amount, ok := n.Args[len(n.Args)-1].(*ast.BasicLit)
				if ok && amount.Value == "0" {
					registered[name] = append(registered[name], f)
				} else if name != "" {
					counted[counter{f.dir, name, f.path}] = true
				}
			}
			return true
		})
	}
	if len(counted) < 50 {
		t.Errorf("only %d counters found: the calls have changed", len(counted))
	}
	for c := range counted {
		if !slices.ContainsFunc(registered[c.name], func(f *file) bool {
			return f.dir == c.dir || f.under("engine/kit") ||
				strings.HasPrefix(c.dir, "engine/kit/")
		}) {
			t.Errorf("%s: the counter %s is not registered: count it with 0 when its component "+
				"starts", c.path, c.name)
		}
	}
}

// counts reports whether call adds to a counter.
func counts(call *ast.CallExpr) bool {
	name := ""
	switch f := call.Fun.(type) {
	case *ast.Ident:
		name = f.Name
	case *ast.SelectorExpr:
		name = f.Sel.Name
	}
	return (name == "Count" || name == "count") && len(call.Args) > 0
}

// text returns the value of a string literal, or "" for another expression.
func text(e ast.Expr) string {
	lit, ok := e.(*ast.BasicLit)
	if !ok || lit.Kind != token.STRING {
		return ""
	}
	value, _ := strconv.Unquote(lit.Value) // valid: the file was parsed
	return value
}
