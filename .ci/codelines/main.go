// Command codelines compares the code lines of each package with those of an older commit:
//
//	go run ./.ci/codelines a477cea
//
// A code line holds at least one token. Blank lines, comments, tests and testdata do not count.
// packages.txt says which folders have moved, and which files hold features that are newer than
// the commit. Those files are counted apart.
package main

import (
	"archive/tar"
	"bytes"
	_ "embed"
	"errors"
	"fmt"
	"go/scanner"
	"go/token"
	"io"
	"maps"
	"os"
	"os/exec"
	"path"
	"slices"
	"strings"
)

// classes says which folders are compared as one, and which files hold newer features.
//
//go:embed packages.txt
var classes string

// row is a line of the table. Added counts the lines of newer features, which now does not.
type row struct{ then, now, added int }

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: go run ./.ci/codelines COMMIT")
		os.Exit(2)
	}
	if err := run(os.Args[1], os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "codelines:", err)
		os.Exit(1)
	}
}

func run(commit string, to io.Writer) error {
	then, err := archived(commit)
	if err != nil {
		return err
	}
	now, err := present()
	if err != nil {
		return err
	}
	groups, features, err := readClasses(now)
	if err != nil {
		return err
	}
	rows := map[string]*row{}
	at := func(file string) *row {
		group := path.Dir(file)
		if g, ok := groups[group]; ok {
			group = g
		}
		if rows[group] == nil {
			rows[group] = &row{}
		}
		return rows[group]
	}
	for file, lines := range then {
		at(file).then += lines
	}
	for file, lines := range now {
		if features[file] || features[path.Dir(file)+"/"] {
			at(file).added += lines
		} else {
			at(file).now += lines
		}
	}
	print(to, rows)
	return nil
}

func print(to io.Writer, rows map[string]*row) {
	const form = "%-36s %7d %7d %+7d %9d\n"
	fmt.Fprintf(to, "%-36s %7s %7s %7s %9s\n", "package", "then", "now", "change", "features")
	var total, fresh row
	for _, name := range slices.Sorted(maps.Keys(rows)) {
		r := rows[name]
		if r.then == 0 {
			fresh.added += r.now + r.added
			continue
		}
		fmt.Fprintf(to, form, name, r.then, r.now, r.now-r.then, r.added)
		total.then, total.now, total.added = total.then+r.then, total.now+r.now, total.added+r.added
	}
	fmt.Fprintf(to, form, "all that existed", total.then, total.now, total.now-total.then, total.added)
	fmt.Fprintf(to, form, "packages since", 0, 0, 0, fresh.added)
}

// archived counts the files of a commit.
func archived(commit string) (map[string]int, error) {
	out, err := exec.Command("git", "archive", "--format=tar", commit).Output()
	if err != nil {
		return nil, fmt.Errorf("git archive %s: %w", commit, err)
	}
	files := map[string]int{}
	for r := tar.NewReader(bytes.NewReader(out)); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return files, nil
		}
		if err != nil {
			return nil, err
		}
		if text, err := io.ReadAll(r); err != nil {
			return nil, err
		} else if counts(h.Name) {
			files[h.Name] = codeLines(text)
		}
	}
}

// present counts the files of the checkout.
func present() (map[string]int, error) {
	out, err := exec.Command("git", "ls-files", "--cached", "--others", "--exclude-standard", "*.go").Output()
	if err != nil {
		return nil, fmt.Errorf("git ls-files: %w", err)
	}
	files := map[string]int{}
	for name := range strings.Lines(string(out)) {
		if name = strings.TrimSpace(name); !counts(name) {
			continue
		}
		text, err := os.ReadFile(name)
		if errors.Is(err, os.ErrNotExist) {
			continue // removed, and still in the index
		}
		if err != nil {
			return nil, err
		}
		files[name] = codeLines(text)
	}
	return files, nil
}

func counts(file string) bool {
	return strings.HasSuffix(file, ".go") && !strings.HasSuffix(file, "_test.go") &&
		!strings.Contains(file, "testdata/") && !strings.HasPrefix(file, ".ci/")
}

func codeLines(text []byte) int {
	file := token.NewFileSet().AddFile("", -1, len(text))
	var s scanner.Scanner
	s.Init(file, text, nil, 0)
	lines := map[int]bool{}
	for {
		pos, tok, literal := s.Scan()
		if tok == token.EOF {
			return len(lines)
		}
		if tok == token.SEMICOLON && literal == "\n" {
			continue
		}
		for i := range strings.Count(literal, "\n") + 1 {
			lines[file.Line(pos)+i] = true
		}
	}
}

// readClasses reads packages.txt. Each line is "NAME: FOLDER ...", or "+FILE ..." for features,
// where a folder ends with a slash.
func readClasses(now map[string]int) (groups map[string]string, features map[string]bool, err error) {
	groups, features = map[string]string{}, map[string]bool{}
	for line := range strings.Lines(classes) {
		line = strings.TrimSpace(line)
		if line == "" || line[0] == '#' {
			continue
		}
		if files, ok := strings.CutPrefix(line, "+"); ok {
			folder, names, _ := strings.Cut(files, " ")
			for name := range strings.FieldsSeq(names) {
				file := path.Join(folder, name+".go")
				if _, ok := now[file]; !ok {
					return nil, nil, fmt.Errorf("packages.txt: there is no %s", file)
				}
				features[file] = true
			}
			continue
		}
		name, folders, _ := strings.Cut(line, ":")
		for folder := range strings.FieldsSeq(folders) {
			groups[folder] = name
		}
	}
	return groups, features, nil
}
