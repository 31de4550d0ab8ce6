// Command deliverypath shows how much code delivers one record. It compares two runs of penstock,
// and finds the statements that only the run with the record executes.
//
//	deliverypath TITLE CHECKOUT IDLE DELIVERED
//
// CHECKOUT is the folder of the source code. IDLE is the coverage profile of the run without the
// record, and DELIVERED that of the run with it. For each file, the command prints how many
// statements only the run with the record executes. Then it prints the interfaces of this project
// that these statements call. Finally it prints the places where another goroutine continues:
// sends, go statements, and signals of condition variables.
package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"go/ast"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"maps"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"
)

const project = "github.com/penstock-io/penstock"

func main() {
	if len(os.Args) != 5 {
		fmt.Fprintln(os.Stderr, "usage: deliverypath TITLE CHECKOUT IDLE DELIVERED")
		os.Exit(2)
	}
	if err := run(os.Args[1], os.Args[2], os.Args[3], os.Args[4]); err != nil {
		fmt.Fprintln(os.Stderr, "deliverypath:", err)
		os.Exit(1)
	}
}

// block is a stretch of statements that a profile counts together.
type block struct{ line, column, endLine, endColumn, statements int }

func (b block) contains(p token.Position) bool {
	after := p.Line > b.line || p.Line == b.line && p.Column >= b.column
	return after && (p.Line < b.endLine || p.Line == b.endLine && p.Column < b.endColumn)
}

func run(title, checkout, idle, delivered string) error {
	without, err := executed(idle)
	if err != nil {
		return err
	}
	blocks, err := executed(delivered)
	if err != nil {
		return err
	}
	files := map[string][]block{} // by import path and name
	for place := range blocks {
		if without[place] {
			continue
		}
		file, rest, _ := strings.Cut(place, ":")
		var b block
		_, err := fmt.Sscanf(rest, "%d.%d,%d.%d %d",
			&b.line, &b.column, &b.endLine, &b.endColumn, &b.statements)
		if err != nil {
			return fmt.Errorf("%s: %w", place, err)
		}
		files[file] = append(files[file], b)
	}
	calls, err := inspect(checkout, files)
	if err != nil {
		return err
	}
	report(os.Stdout, title, files, calls)
	return nil
}

// executed returns the places of the blocks that were executed according to a profile.
func executed(profile string) (map[string]bool, error) {
	text, err := os.ReadFile(profile)
	if err != nil {
		return nil, err
	}
	places := map[string]bool{}
	for line := range strings.Lines(string(text)) {
		place, count := cutLast(strings.TrimSpace(line))
		if count != "0" && strings.HasPrefix(place, project) {
			places[place] = true
		}
	}
	return places, nil
}

func cutLast(line string) (before, last string) {
	i := strings.LastIndexByte(line, ' ')
	return line[:max(i, 0)], line[i+1:]
}

func report(to io.Writer, title string, files map[string][]block, c *crossings) {
	packages, total := map[string]bool{}, 0
	var lines []string
	for _, file := range slices.Sorted(maps.Keys(files)) {
		n := 0
		for _, b := range files[file] {
			n += b.statements
		}
		packages[path.Dir(file)] = true
		total += n
		lines = append(lines, fmt.Sprintf("%7d  %s", n, strings.TrimPrefix(file, project+"/")))
	}
	fmt.Fprintf(to, "%s: %d statements in %d files of %d packages, %d interfaces, %d handoffs\n",
		title, total, len(files), len(packages), len(c.interfaces), len(c.handoffs))
	lines = append(lines, c.list("interface", c.interfaces)...)
	for _, text := range append(lines, c.list("handoff", c.handoffs)...) {
		fmt.Fprintln(to, text)
	}
}

// crossings are the interfaces and handoffs in some blocks.
type crossings struct{ interfaces, handoffs map[string]bool }

func (c *crossings) list(kind string, names map[string]bool) (lines []string) {
	for _, name := range slices.Sorted(maps.Keys(names)) {
		lines = append(lines, fmt.Sprintf("  %s  %s", kind, name))
	}
	return lines
}

// listed is a package as `go list` describes it.
type listed struct {
	ImportPath, Export, Dir string
	GoFiles                 []string
}

// inspect finds the crossings in files of a checkout.
func inspect(checkout string, files map[string][]block) (*crossings, error) {
	packages, err := list(checkout)
	if err != nil {
		return nil, err
	}
	set := token.NewFileSet()
	imports := importer.ForCompiler(set, "gc", func(name string) (io.ReadCloser, error) {
		return os.Open(packages[name].Export)
	})
	c := &crossings{map[string]bool{}, map[string]bool{}}
	wanted := map[string]bool{}
	for file := range files {
		wanted[path.Dir(file)] = true
	}
	for name := range wanted {
		p, ok := packages[name]
		if !ok {
			return nil, fmt.Errorf("go list does not know %s", name)
		}
		var trees []*ast.File
		for _, file := range p.GoFiles {
			tree, err := parser.ParseFile(set, filepath.Join(p.Dir, file), nil, parser.SkipObjectResolution)
			if err != nil {
				return nil, err
			}
			trees = append(trees, tree)
		}
		info := &types.Info{Selections: map[*ast.SelectorExpr]*types.Selection{}}
		if _, err := (&types.Config{Importer: imports}).Check(name, set, trees, info); err != nil {
			return nil, err
		}
		for i, tree := range trees {
			c.collect(set, tree, info, name+"/"+p.GoFiles[i], files[name+"/"+p.GoFiles[i]])
		}
	}
	return c, nil
}

func list(checkout string) (map[string]listed, error) {
	cmd := exec.Command("go", "list", "-export", "-deps",
		"-json=ImportPath,Export,Dir,GoFiles", "./cmd/penstock")
	cmd.Dir, cmd.Stderr = filepath.Join(checkout, "engine"), os.Stderr
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("go list: %w", err)
	}
	packages := map[string]listed{}
	for d := json.NewDecoder(strings.NewReader(string(out))); ; {
		var p listed
		if err := d.Decode(&p); errors.Is(err, io.EOF) {
			return packages, nil
		} else if err != nil {
			return nil, fmt.Errorf("go list: %w", err)
		}
		packages[p.ImportPath] = p
	}
}

// collect adds the crossings in the blocks of one file.
func (c *crossings) collect(
	set *token.FileSet, tree *ast.File, info *types.Info, file string, blocks []block,
) {
	ast.Inspect(tree, func(n ast.Node) bool {
		if n == nil {
			return true
		}
		at := set.Position(n.Pos())
		if !slices.ContainsFunc(blocks, func(b block) bool { return b.contains(at) }) {
			return true
		}
		place := fmt.Sprintf("%s:%d", strings.TrimPrefix(file, project+"/"), at.Line)
		switch n := n.(type) {
		case *ast.SendStmt, *ast.GoStmt:
			c.handoffs[place] = true
		case *ast.SelectorExpr:
			c.called(info.Selections[n], place)
		}
		return true
	})
}

// called examines the method that s selects, for a call or as a value (x.M without a call). If the
// method belongs to one of the project's interfaces, this interface is added to c.interfaces. If
// the method is Signal or Broadcast of a sync.Cond, the given place is added to c.handoffs, because
// another goroutine continues there.
func (c *crossings) called(s *types.Selection, place string) {
	if s == nil || s.Kind() != types.MethodVal {
		return
	}
	receiver := s.Obj().(*types.Func).Signature().Recv().Type()
	name := strings.TrimPrefix(types.TypeString(receiver, nil), "*")
	switch {
	case types.IsInterface(receiver) && strings.HasPrefix(name, project):
		name, _, _ = strings.Cut(name, "[")
		c.interfaces[strings.TrimLeft(strings.TrimPrefix(name, project), "./")] = true
	case name == "sync.Cond" && s.Obj().Name() != "Wait":
		c.handoffs[place] = true
	}
}
