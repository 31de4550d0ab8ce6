package flume

import (
	"flag"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/penstock-io/penstock/engine/internal/migrate"
)

var update = flag.Bool("update", false, "write what is made into testdata")

// TestConvert compares the config and the notes of whole agents with reviewed files.
func TestConvert(t *testing.T) {
	agents, err := filepath.Glob("testdata/*.conf")
	if err != nil || len(agents) < 3 {
		t.Fatalf("agents: %v, %v", agents, err)
	}
	for _, file := range agents {
		t.Run(filepath.Base(file), func(t *testing.T) {
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			r, err := Convert(string(text), "")
			if err != nil {
				t.Fatal(err)
			}
			var notes strings.Builder
			for _, n := range r.Notes {
				fmt.Fprintln(&notes, n)
			}
			golden(t, strings.TrimSuffix(file, ".conf")+".yaml", r.Config)
			golden(t, strings.TrimSuffix(file, ".conf")+".notes", notes.String())
		})
	}
}

func golden(t *testing.T, file, got string) {
	t.Helper()
	if *update {
		if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if got != string(want) {
		t.Errorf("%s is not what is made now; read it, then -update:\n%s", file, got)
	}
}

// TestEveryKeyIsAccountedFor checks that an unknown key of a source is in a note as lost.
func TestEveryKeyIsAccountedFor(t *testing.T) {
	for _, kind := range []string{"spooldir", "TAILDIR"} {
		text := "a.sources=s\na.channels=c\na.sinks=k\n" +
			"a.sources.s.channels=c\na.channels.c.type=memory\n" +
			"a.sinks.k.type=null\na.sinks.k.channel=c\n" +
			"a.sources.s.type=" + kind + "\na.sources.s.spoolDir=/in\na.sources.s.filegroups=f\n" +
			"a.sources.s.filegroups.f=/in/x\na.sources.s.noSuchKey=1\n"
		r, err := Convert(text, "a")
		if err != nil {
			t.Fatal(err)
		}
		said := func(n migrate.Note) bool {
			return n.Key == "a.sources.s.noSuchKey" && n.Kind == migrate.Lost && n.Line == 12
		}
		if !slices.ContainsFunc(r.Notes, said) {
			t.Errorf("%s: no note has noSuchKey as lost: %v", kind, r.Notes)
		}
	}
}

func TestConvertRefuses(t *testing.T) {
	for text, want := range map[string]string{
		"":             "the file declares no agent",
		"color = blue": "the file declares no agent",
		"a.sources=s\nb.sources=s": "the file declares several agents (a, b): " +
			"select one with --agent",
		"a.sources=s\na.sources.s.x=\\u00": `line 2: "\\u00" ends inside \u and its four ` +
			`hexadecimal digits`,
		"x=\\uzzzz": `line 1: "\\uzzzz": \uzzzz is not a character; ` +
			`\u needs four hexadecimal digits`,
	} {
		_, err := Convert(text, "")
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", text, err, want)
		}
	}
	if _, err := Convert("a.sources=s", "b"); err == nil ||
		err.Error() != `the file declares no agent "b", only a` {
		t.Error(err)
	}
}

// TestProperties checks that a properties file is read like java.util.Properties does, with the
// examples of its documentation, and that values are trimmed like Flume does.
func TestProperties(t *testing.T) {
	text := "# a comment\n! another\n" +
		"Truth = Beauty\n Truth2:Beauty\nTruth3    :Beauty\n" +
		"fruits     apple, banana, pear, \\\n           cantaloupe, watermelon, \\\r\n           " +
		"kiwi, mango\n" +
		"cheeses\n" +
		`a\:b\=c\ d = \u0041\t\\ end` + "\n" +
		"twice=1\ntwice=2 \n" +
		`smile=\uD83D\uDE00`
	got, err := readProperties(text)
	if err != nil {
		t.Fatal(err)
	}
	want := []property{
		{"Truth", "Beauty", 3}, {"Truth2", "Beauty", 4}, {"Truth3", "Beauty", 5},
		{"fruits", "apple, banana, pear, cantaloupe, watermelon, kiwi, mango", 6},
		{"cheeses", "", 9}, {"a:b=c d", "A\t\\ end", 10}, {"twice", "2", 12}, {"smile", "😀", 13},
	}
	if !slices.Equal(got, want) {
		t.Errorf("got\n%+v\nwant\n%+v", got, want)
	}
}

// TestGlobs compares globs with the regular expressions from which they were made. It tries many
// names. The globs must match all names that the expression matches. They may match further names
// only if they are reported as wider.
func TestGlobs(t *testing.T) {
	names := []string{"", "a", "ab", "a.log", "b.log", "a.log.1", "a.log.22", "A.LOG", "x.tmp",
		"access-20260101.log", "access-2026010.log", "a*b", "[x]", "a-b.out", "ü.log", "log"}
	for _, c := range []struct {
		pattern   string
		wider, ok bool
	}{
		{`^.*$`, false, true}, {`.*\.log`, false, true}, {`^a\.log$`, false, true},
		{`[ab]\.log`, false, true}, {`.+\.log`, false, true},
		{`(a|b)\.log`, false, true}, {`.*\.(log|tmp|out)`, false, true},
		{`a\.log(\.1)?`, false, true}, {`access-\d{8}\.log`, false, true},
		{`a\.log\.\d+`, true, true}, {`[a-z]*\.log`, true, true},
		{`a\*b`, false, true}, {`\[x\]`, false, true}, {`(?i)a\.log`, false, true},
		{`.\.log`, false, true}, {`[^a]\.log`, false, true}, {`^$`, false, true},
		{`[^.]\.log`, false, true}, {`[^/]\.log`, false, true}, {`[^./]-\w\.out`, false, true},
		{`[ -0a-z]\.log`, false, true}, {`[!-~]b`, false, true}, {`[^\x00-~]\.log`, false, true},
		{`a[^ab]?\.log`, false, true}, {`[^\x00-\x{10FFFF}]a`, false, false},
		{`\bx`, false, false}, {`(?!x).*`, false, false}, {`(ab|c)+`, false, false},
	} {
		list, wider, ok := globs(c.pattern)
		if ok != c.ok || wider != c.wider {
			t.Errorf("%s: %q, wider %v, ok %v", c.pattern, list, wider, ok)
		}
		if !ok {
			continue
		}
		for _, g := range list {
			if strings.Contains(g, "/") || strings.Contains(g, "[!") {
				t.Errorf("%s became %q, which has a slash or the class [!", c.pattern, g)
			}
		}
		re := regexp.MustCompile("^(?:" + c.pattern + ")$")
		for _, name := range names {
			want := re.MatchString(name)
			got := slices.ContainsFunc(list,
				func(g string) bool { m, _ := path.Match(g, name); return m })
			if got != want && (want || !wider) && name != "" {
				t.Errorf("%s became %q: for %q the expression says %v, they say %v", c.pattern,
					list, name, want, got)
			}
		}
	}
}

// FuzzConvert checks that every text results in a config or an error within bounded time.
func FuzzConvert(f *testing.F) {
	files, _ := filepath.Glob("testdata/*.conf")
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(string(text))
	}
	f.Add(
		"a.sources=s\na.sources.s.type=spooldir\na.sources.s.includePattern=((((a|b)|c)|d)|e){60}",
	)
	f.Fuzz(func(t *testing.T, text string) {
		r, err := Convert(text, "")
		if err == nil && !strings.HasPrefix(r.Config, "# Converted from the Flume agent") {
			t.Errorf("%q", r.Config)
		}
	})
}

// TestCombinedHTTPSinks checks that options in which combined HTTP sinks differ are in the notes.
func TestCombinedHTTPSinks(t *testing.T) {
	r, err := Convert("a.sources=s\na.channels=c\na.sinks=k l\n"+
		"a.sources.s.type=spooldir\na.sources.s.spoolDir=/in\na.sources.s.channels=c\n"+
		"a.channels.c.type=memory\n"+
		"a.sinks.k.type=http\na.sinks.k.channel=c\na.sinks.k.endpoint=http://a/\n"+
		"a.sinks.k.acceptHeader=text/html\na.sinks.k.connectTimeout=1000\n"+
		"a.sinks.l.type=http\na.sinks.l.channel=c\na.sinks.l.endpoint=http://b/\n"+
		"a.sinks.l.contentTypeHeader=text/csv\na.sinks.l.connectTimeout=1000\n", "")
	if err != nil {
		t.Fatal(err)
	}
	for key, want := range map[string]bool{"contentTypeHeader": true, "acceptHeader": true,
		"connectTimeout": false} {
		noted := slices.ContainsFunc(r.Notes, func(n migrate.Note) bool {
			return n.Key == "a.sinks.l."+key && n.Kind == migrate.Differs
		})
		if noted != want {
			t.Errorf("%s: there is a note: %v, want %v: %v", key, noted, want, r.Notes)
		}
	}
}
