// Command typecheck type-checks all packages of the workspace, and their tests, for other operating
// systems:
//
//	go run ./.ci/typecheck darwin windows
//
// It finds code that would not compile there. It generates no code, so it takes a fraction of the
// time of go vet. Function bodies of other modules are not checked.
package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
)

// pkg is a package as go list prints it.
type pkg struct {
	ImportPath, Dir string
	GoFiles         []string
	ImportMap       map[string]string
	Module          *struct{ Main bool }
	Error           *struct{ Err string }
}

func main() {
	failed := false
	for _, system := range os.Args[1:] {
		if err := check(system); err != nil {
			fmt.Fprintf(os.Stderr, "%s: %v\n", system, err)
			failed = true
		}
	}
	if failed {
		os.Exit(1)
	}
}

func check(system string) error {
	list := exec.Command("go", "list", "-e", "-deps", "-test",
		"-json=ImportPath,Dir,GoFiles,ImportMap,Module,Error", "work")
	list.Env = append(os.Environ(), "GOOS="+system, "CGO_ENABLED=0")
	list.Stderr = os.Stderr
	out, err := list.StdoutPipe()
	if err != nil {
		return err
	}
	if err := list.Start(); err != nil {
		return err
	}
	known := map[string]*types.Package{"unsafe": types.Unsafe}
	var problems []error
	own := 0
	for d := json.NewDecoder(out); ; { // a package comes after those that it imports
		var p pkg
		if err := d.Decode(&p); err == io.EOF {
			break
		} else if err != nil {
			return err
		}
		if p.ImportPath == "unsafe" || strings.HasSuffix(p.ImportPath, ".test") {
			continue
		}
		if p.Error != nil {
			problems = append(problems, fmt.Errorf("%s: %s", p.ImportPath, p.Error.Err))
		}
		mine := p.Module != nil && p.Module.Main
		if mine {
			own++
		}
		result, errs := p.check(known, mine)
		known[p.ImportPath] = result
		problems = append(problems, errs...)
	}
	if err := list.Wait(); err != nil {
		return err
	}
	fmt.Printf("%s: %d packages\n", system, own)
	return errors.Join(problems...)
}

// check type-checks the package p, and returns the result and the errors. mine means that p belongs
// to this workspace. In other packages, check skips the function bodies, so it finds only errors in
// declarations.
func (p *pkg) check(known map[string]*types.Package, mine bool) (*types.Package, []error) {
	set := token.NewFileSet()
	var errs []error
	var files []*ast.File
	for _, name := range p.GoFiles {
		if !filepath.IsAbs(name) {
			name = filepath.Join(p.Dir, name)
		}
		file, err := parser.ParseFile(set, name, nil, parser.SkipObjectResolution)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		files = append(files, file)
	}
	path, _, _ := strings.Cut(p.ImportPath, " ") // a test variant is "PATH [PATH.test]"
	config := types.Config{
		IgnoreFuncBodies: !mine, FakeImportC: true, Sizes: types.SizesFor("gc", runtime.GOARCH),
		Importer: importer{known, p.ImportMap}, Error: func(err error) { errs = append(errs, err) },
	}
	result, _ := config.Check(path, set, files, nil) // its error is in errs
	return result, errs
}

// importer finds packages that were checked before.
type importer struct {
	known map[string]*types.Package
	names map[string]string // by the path in the source, where they differ
}

// Import implements [types.Importer].
func (i importer) Import(path string) (*types.Package, error) {
	if name := i.names[path]; name != "" {
		path = name
	}
	if p := i.known[path]; p != nil {
		return p, nil
	}
	return nil, fmt.Errorf("package %s is unknown", path)
}
