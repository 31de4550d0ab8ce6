package archtest

import (
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// pages returns the texts of all Markdown files. The keys are paths relative to the project's
// folder, with slashes.
func pages(t *testing.T) map[string]string {
	t.Helper()
	found := map[string]string{}
	err := filepath.WalkDir(top, func(p string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		skipped := slices.Contains([]string{"testdata", "node_modules", "out"}, d.Name())
		if d.IsDir() && p != top && (strings.HasPrefix(d.Name(), ".") || skipped) {
			return filepath.SkipDir
		}
		if d.IsDir() || path.Ext(p) != ".md" {
			return nil
		}
		text, err := os.ReadFile(p)
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(top, p)
		found[filepath.ToSlash(rel)] = string(text)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(found) < 30 {
		t.Fatalf("found %d pages: the walk starts at the wrong place", len(found))
	}
	return found
}

var (
	fenced   = regexp.MustCompile("(?s)```.*?```")
	link     = regexp.MustCompile(`\]\(([^()\s]+)\)`)
	heading  = regexp.MustCompile(`(?m)^#+ (.*)$`)
	unslug   = regexp.MustCompile(`[^\p{L}\p{N}_ -]`)
	inlined  = regexp.MustCompile("`([^`\n]+)`")
	testLine = regexp.MustCompile(`^func (Test|Example|Fuzz)`)
	indented = regexp.MustCompile(`(?m)^    (\S.*)$`)
)

// TestLinksResolve checks that every link of a page leads to a file. If the link names a heading,
// the file must have this heading.
func TestLinksResolve(t *testing.T) {
	all, links := pages(t), 0
	for page, text := range all {
		for _, m := range link.FindAllStringSubmatch(fenced.ReplaceAllString(text, ""), -1) {
			if strings.Contains(m[1], "://") {
				continue
			}
			links++
			file, anchor, _ := strings.Cut(m[1], "#")
			to := page
			if file != "" {
				to = path.Join(path.Dir(page), file)
			}
			if _, err := os.Stat(filepath.Join(top, filepath.FromSlash(to))); err != nil {
				t.Errorf("%s: the link %s leads nowhere", page, m[1])
			} else if anchor != "" && !hasHeading(all[to], anchor) {
				t.Errorf("%s: the link %s names no heading of %s", page, m[1], to)
			}
		}
	}
	if links < 50 {
		t.Errorf("found %d links: the form of a link has changed", links)
	}
}

// TestIndexHasEveryPage checks that docs/README.md links every page of docs. The pages of decisions
// and scenarios are excepted, because these folders have indexes of their own.
func TestIndexHasEveryPage(t *testing.T) {
	all := pages(t)
	index := all["docs/README.md"]
	for page := range all {
		name, inDocs := strings.CutPrefix(page, "docs/")
		own := strings.HasPrefix(name, "adr/") || strings.HasPrefix(name, "scenarios/")
		if !inDocs || own || name == "README.md" {
			continue
		}
		if !strings.Contains(index, "]("+name+")") && !strings.Contains(index, "]("+name+"#") {
			t.Errorf("docs/README.md does not link docs/%s", name)
		}
	}
}

func hasHeading(text, anchor string) bool {
	for _, m := range heading.FindAllStringSubmatch(text, -1) {
		slug := unslug.ReplaceAllString(strings.ToLower(strings.TrimSpace(m[1])), "")
		if strings.ReplaceAll(slug, " ", "-") == anchor {
			return true
		}
	}
	return false
}

// TestCommandsExist checks that the make targets, packages and tests in commands on a page exist.
// TestDocsCommandsExist in engine/cmd/penstock checks the commands of penstock.
func TestCommandsExist(t *testing.T) {
	makefile, err := os.ReadFile(filepath.Join(top, "Makefile"))
	if err != nil {
		t.Fatal(err)
	}
	checked := 0
	for page, text := range pages(t) {
		for _, re := range []*regexp.Regexp{inlined, indented} {
			for _, m := range re.FindAllStringSubmatch(text, -1) {
				line, _, _ := strings.Cut(m[1], " #")
				words := strings.Fields(line)
				if len(words) < 2 {
					continue
				}
				switch {
				case words[0] == "make":
					checked++
					checkTarget(t, page, string(makefile), words[1:])
				case words[0] == "go" && (words[1] == "test" || words[1] == "run"):
					checked++
					checkPackages(t, page, words[1:])
				}
			}
		}
	}
	if checked < 30 {
		t.Errorf("found %d commands: their form has changed", checked)
	}
}

func checkTarget(t *testing.T, page, makefile string, words []string) {
	t.Helper()
	for _, w := range words {
		if strings.HasPrefix(w, "-") {
			continue
		}
		if !strings.Contains(makefile, "\n"+w+":") {
			t.Errorf("%s: make has no target %s", page, w)
		}
		return
	}
}

// checkPackages checks the arguments of go test or go run: packages and flags.
func checkPackages(t *testing.T, page string, words []string) {
	t.Helper()
	var dirs []string
	for i := 1; i < len(words) && !strings.HasPrefix(words[i], "-"); i++ {
		if dir, found := strings.CutPrefix(words[i], "./"); found {
			dirs = append(dirs, dir)
		}
		if words[0] == "run" {
			break
		}
	}
	for _, dir := range dirs {
		if len(inFolder(t, dir)) == 0 {
			t.Errorf("%s: %s holds no package", page, dir)
		}
	}
	for i, w := range words[:len(words)-1] {
		if w == "-run" && len(dirs) > 0 && !hasTest(t, dirs, words[i+1]) {
			t.Errorf("%s: no test of %v matches %s", page, dirs, words[i+1])
		}
	}
}

// inFolder returns the files of a package, or of all packages that match a pattern ending in /...
func inFolder(t *testing.T, dir string) (files []*file) {
	t.Helper()
	tree, whole := strings.CutSuffix(dir, "/...")
	for _, f := range all(t) {
		if f.dir == dir || whole && f.under(tree) {
			files = append(files, f)
		}
	}
	return files
}

func hasTest(t *testing.T, dirs []string, pattern string) bool {
	t.Helper()
	match, err := regexp.Compile(pattern)
	if err != nil {
		return false
	}
	for _, dir := range dirs {
		for _, f := range inFolder(t, dir) {
			for _, line := range f.lines {
				name, _, _ := strings.Cut(strings.TrimPrefix(line, "func "), "(")
				if f.test && testLine.MatchString(line) && match.MatchString(name) {
					return true
				}
			}
		}
	}
	return false
}
