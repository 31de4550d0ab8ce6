// Command codelines compares the number of code lines of each package with that of an older commit:
//
//	go run ./.ci/codelines a477cea
//
// A code line holds at least one token. Blank lines, comments, tests, testdata and the folder .ci
// do not count. The file packages.txt lists the folders that have moved since the commit, and the
// files of features that are newer than the commit. The files of these features are counted
// separately. The column "gone" has the number of code lines of the commit that are in no file any
// more. So it counts changed and deleted lines, but not moved ones.
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

// classes lists the folders that are compared as one, and the files of newer features.
//
//go:embed packages.txt
var classes string

// row is a line of the table. The lines of newer features are counted in added, and not in now.
type row struct{ then, now, added, gone int }

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
	left := map[string]int{} // how often each line is in the checkout, and not yet found in the commit
	for file, lines := range now {
		if features[file] {
			at(file).added += len(lines)
		} else {
			at(file).now += len(lines)
		}
		for _, line := range lines {
			left[line]++
		}
	}
	for _, file := range slices.Sorted(maps.Keys(then)) {
		r := at(file)
		r.then += len(then[file])
		for _, line := range then[file] {
			if left[line]--; left[line] < 0 {
				r.gone++
			}
		}
	}
	print(to, rows)
	return nil
}

func print(to io.Writer, rows map[string]*row) {
	const form = "%-36s %7d %7d %+7d %9d %7d\n"
	fmt.Fprintf(to, "%-36s %7s %7s %7s %9s %7s\n",
		"package", "then", "now", "change", "features", "gone")
	var total, fresh row
	for _, name := range slices.Sorted(maps.Keys(rows)) {
		r := rows[name]
		if r.then == 0 {
			fresh.added += r.now + r.added
			continue
		}
		fmt.Fprintf(to, form, name, r.then, r.now, r.now-r.then, r.added, r.gone)
		total.then, total.now, total.added = total.then+r.then, total.now+r.now, total.added+r.added
		total.gone += r.gone
	}
	fmt.Fprintf(to, form, "all that existed", total.then, total.now, total.now-total.then,
		total.added, total.gone)
	fmt.Fprintf(to, form, "packages since", 0, 0, 0, fresh.added, 0)
}

// archived returns the code lines of each file of a commit.
func archived(commit string) (map[string][]string, error) {
	out, err := exec.Command("git", "archive", "--format=tar", commit).Output()
	if err != nil {
		return nil, fmt.Errorf("git archive %s: %w", commit, err)
	}
	files := map[string][]string{}
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

// present returns the code lines of each file of the checkout.
func present() (map[string][]string, error) {
	list := exec.Command("git", "ls-files", "--cached", "--others", "--exclude-standard", "*.go")
	out, err := list.Output()
	if err != nil {
		return nil, fmt.Errorf("git ls-files: %w", err)
	}
	files := map[string][]string{}
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

// codeLines returns the tokens of each line of text that has any.
func codeLines(text []byte) (code []string) {
	file := token.NewFileSet().AddFile("", -1, len(text))
	var s scanner.Scanner
	s.Init(file, text, nil, 0)
	last := 0
	for {
		pos, tok, literal := s.Scan()
		switch {
		case tok == token.EOF:
			return code
		case tok == token.SEMICOLON && literal == "\n":
			continue
		case literal == "":
			literal = tok.String()
		}
		for i, part := range strings.Split(literal, "\n") {
			if line := file.Line(pos) + i; line != last {
				code, last = append(code, part), line
			} else {
				code[len(code)-1] += " " + part
			}
		}
	}
}

// readClasses reads packages.txt. A line "NAME: FOLDER ..." lists folders that are compared as one
// group. A line "+FOLDER FILE ..." lists files, without .go, of features that are newer than the
// commit. The keys of now are the files of the working tree. Each listed file must be one of them.
func readClasses(now map[string][]string) (
	groups map[string]string, features map[string]bool, err error,
) {
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
