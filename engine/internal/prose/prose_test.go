package prose

import (
	"encoding/json"
	"flag"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "write the counts as they are into testdata/ratchet.json")

const (
	top     = "../../.."
	ratchet = "testdata/ratchet.json"
)

// counted returns the counts of the tree by package (its folder) and page (its file).
func counted(t *testing.T) map[string]*Counts {
	t.Helper()
	all := map[string]*Counts{}
	err := filepath.WalkDir(top, func(p string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name := d.Name()
		if d.IsDir() {
			skipped := slices.Contains([]string{"testdata", "out", "bin", "node_modules"}, name)
			if p != top && (strings.HasPrefix(name, ".") || skipped) {
				return filepath.SkipDir
			}
			return nil
		}
		ext := path.Ext(name)
		if ext != ".go" && ext != ".md" || name == "CHANGELOG.md" {
			return nil
		}
		source, err := os.ReadFile(p)
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(top, p)
		if err != nil {
			return err
		}
		key, counts := filepath.ToSlash(rel), Counts{}
		if ext == ".md" {
			counts = Page(source)
		} else {
			key = path.Dir(key)
			if counts, err = GoFile(p, source); err != nil {
				return err
			}
		}
		if all[key] == nil {
			all[key] = &Counts{}
		}
		all[key].Add(counts)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// TestRatchet fails if a package or page has got worse. That means more clauses or long sentences
// in relation to its words, more wide lines in relation to its lines, or more banned words. With -v
// it prints the whole table.
func TestRatchet(t *testing.T) {
	now := counted(t)
	if *update {
		write(t, now)
		return
	}
	var kept map[string]*kept
	source, err := os.ReadFile(ratchet)
	if err == nil {
		err = json.Unmarshal(source, &kept)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%-40s %7s %9s %6s %6s %7s %7s", "package or page", "words", "clauses", "says", "banned",
		"long", "wide")
	var total Counts
	for _, key := range slices.Sorted(maps.Keys(now)) {
		c := now[key]
		total.Add(*c)
		t.Log(row(key, *c))
		limit := kept[key]
		if limit == nil {
			limit = &kept0
		}
		if worse := limit.worse(*c); worse != "" {
			t.Errorf("%s got worse: %s; rewrite it in the words of CONTRIBUTING.md", key, worse)
		}
	}
	t.Log(row("all", total))
}

// kept holds the counts that a package or page must not exceed. If its text has grown, most counts
// may grow in proportion.
type kept struct {
	Counts
	Banned int `json:"banned,omitempty"`
}

// kept0 limits new packages and pages: no banned word, few clauses, few long sentences.
var kept0 = kept{Counts: Counts{Words: 10_000, Clauses: 15, Long: 30, Lines: 1000, Wide: 100}}

// worse describes the counts that got worse, or returns "". Counts of clauses, long sentences and
// wide lines may grow in proportion to the text.
func (k *kept) worse(c Counts) string {
	grown := func(count, was, size, sizeWas int) bool {
		return count > was && count*max(sizeWas, 1) > was*max(size, 1) && count > 1
	}
	var all []string
	for _, f := range []struct {
		name                      string
		count, was, size, sizeWas int
	}{
		{"what/who clauses", c.Clauses, k.Clauses, c.Words, k.Words},
		{"long sentences", c.Long, k.Long, c.Words, k.Words},
		{"wide lines", c.Wide, k.Wide, c.Lines, k.Lines},
	} {
		if grown(f.count, f.was, f.size, f.sizeWas) {
			all = append(all, fmt.Sprintf("%d %s, were %d", f.count, f.name, f.was))
		}
	}
	if c.Says > k.Says {
		all = append(all,
			fmt.Sprintf("%d times \"says whether\" and the like, were %d", c.Says, k.Says))
	}
	if len(c.Banned) > k.Banned {
		all = append(all, fmt.Sprintf("banned words %q, were %d", c.Banned, k.Banned))
	}
	return strings.Join(all, "; ")
}

func row(key string, c Counts) string {
	per := 0.0
	if c.Words > 0 {
		per = 10_000 * float64(c.Clauses) / float64(c.Words)
	}
	return fmt.Sprintf("%-40s %7d %9.1f %6d %6d %7d %7d", key, c.Words, per, c.Says, len(c.Banned),
		c.Long, c.Wide)
}

func write(t *testing.T, now map[string]*Counts) {
	t.Helper()
	all := map[string]kept{}
	for key, c := range now {
		all[key] = kept{*c, len(c.Banned)}
	}
	text, err := json.Marshal(all)
	if err == nil {
		text = []byte(strings.ReplaceAll(string(text), "},\"", "},\n\"") + "\n")
		err = os.WriteFile(ratchet, text, 0o644)
	}
	if err != nil {
		t.Fatal(err)
	}
}

func TestCounts(t *testing.T) {
	source := "package x\n\n// Says whether what is here is `what` it \"who\" was. It begins " +
		"anew.\n" +
		"//\n//\twhat := code\nvar x = 1\n\n//go:noinline\nfunc f() {}\n"
	c, err := GoFile("x.go", []byte(source))
	if err != nil || c.Clauses != 1 || c.Says != 1 || len(c.Banned) != 1 || c.Words != 13 ||
		c.Wide != 0 {
		t.Errorf("%+v, %v", c, err)
	}
	long := strings.Repeat("word ", 31) + ". Short. " + strings.Repeat("word ", 30) + ".\n"
	if c := Page([]byte(long + "```\nwhat\n```\n| who | b |\n")); c.Long != 1 || c.Clauses != 1 {
		t.Errorf("%+v", c)
	}
}
