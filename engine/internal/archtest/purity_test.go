package archtest

import (
	"go/ast"
	"go/token"
	"slices"
	"strings"
	"testing"
)

// impureImports are packages that a pure file must not import, such as those for goroutines,
// contexts, logs and I/O. A file is pure if it begins with the comment penstock:pure.
var impureImports = []string{
	"context", "log", "log/slog", "os", "net", "net/http", "io/fs", "path/filepath",
	"sync", "sync/atomic", "runtime", "testing",
}

// impureNames are functions that read a clock or a global random source.
var impureNames = map[string][]string{
	"time": {"Now", "Since", "Until", "Sleep", "After", "AfterFunc", "Tick", "NewTimer",
		"NewTicker"},
	"math/rand/v2": {
		"Int", "IntN", "Int32", "Int32N", "Int64", "Int64N", "Uint32", "Uint32N", "Uint64",
		"Uint64N", "Uint", "UintN", "N",
		"Float32", "Float64", "ExpFloat64", "NormFloat64", "Perm", "Shuffle",
	},
}

// mustBePure lists directories in which all files except tests must be pure.
var mustBePure = []string{
	"flow/control", "flow/window", "flow/dispatch", "flow/ledger", "fileid", "wire",
	"internal/kernel",
}

func TestPureFiles(t *testing.T) {
	pure := 0
	for _, f := range all(t) {
		if !f.test && slices.Contains(mustBePure, f.dir) && !f.pure {
			t.Errorf("%s: every file of %s is pure and begins with //penstock:pure", f.path, f.dir)
		}
		if !f.pure || f.test {
			continue
		}
		pure++
		for _, imported := range f.imports() {
			if slices.Contains(impureImports, imported) || imported == "math/rand" {
				t.Errorf("%s is pure and imports %s", f.path, imported)
			}
		}
		ast.Inspect(f.ast, func(n ast.Node) bool {
			f.checkPure(t, n)
			return true
		})
	}
	if pure == 0 {
		t.Error("no pure file found: the directive has changed")
	}
}

func (f *file) checkPure(t *testing.T, n ast.Node) {
	switch n := n.(type) {
	case *ast.GoStmt, *ast.ChanType, *ast.SelectStmt, *ast.SendStmt:
		t.Errorf("%s:%d: a pure file has no goroutine and no channel", f.path, f.line(n.Pos()))
	case *ast.SelectorExpr:
		if pkg, name, ok := f.selector(n); ok && slices.Contains(impureNames[pkg], name) {
			t.Errorf("%s:%d: a pure file does not call %s.%s: it takes time and chance as arguments",
				f.path, f.line(n.Pos()), pkg, name)
		}
	case *ast.UnaryExpr:
		if n.Op == token.ARROW {
			t.Errorf("%s:%d: a pure file has no channel", f.path, f.line(n.Pos()))
		}
	}
}

// mayStart reports whether a file may start goroutines.
func mayStart(f *file) bool {
	return f.test || f.dir == "supervise" || f.path == "flow/goroutines.go" ||
		f.path == "retry/hedge.go" ||
		f.under("engine/connector/connectortest", "stream/streamtest", "vfs/vfstest", "examples",
			"engine/examples", "bench")
}

func TestGoroutinesHaveAnOwner(t *testing.T) {
	for _, f := range all(t) {
		if mayStart(f) {
			continue
		}
		ast.Inspect(f.ast, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.GoStmt:
				t.Errorf("%s:%d: goroutines start in supervise, flow/goroutines.go and "+
					"retry/hedge.go only", f.path, f.line(n.Pos()))
			case *ast.SelectorExpr:
				if pkg, name, ok := f.selector(n); ok && name == "AfterFunc" &&
					(pkg == "time" || pkg == "context") {
					t.Errorf("%s:%d: AfterFunc starts a goroutine without an owner", f.path,
						f.line(n.Pos()))
				}
				if id, ok := n.X.(*ast.Ident); ok && n.Sel.Name == "Go" &&
					strings.EqualFold(id.Name, "wg") {
					t.Errorf("%s:%d: WaitGroup.Go starts a goroutine without a name", f.path,
						f.line(n.Pos()))
				}
			}
			return true
		})
	}
}

func TestNobodySleeps(t *testing.T) {
	for _, f := range all(t) {
		if f.under("bench", "examples", "engine/examples", "grpc") {
			continue
		}
		bubble := slices.Contains(f.imports(), "testing/synctest")
		ast.Inspect(f.ast, func(n ast.Node) bool {
			pkg, name, ok := f.selector(n)
			if !ok || pkg != "time" {
				return true
			}
			if name == "Sleep" && f.test && !bubble {
				t.Errorf("%s:%d: time.Sleep in a test outside a synctest bubble", f.path,
					f.line(n.Pos()))
			}
			if !f.test && (name == "Sleep" || name == "After" || name == "Tick") {
				t.Errorf("%s:%d: time.%s cannot be stopped: use a timer and a context", f.path,
					f.line(n.Pos()), name)
			}
			return true
		})
	}
}
