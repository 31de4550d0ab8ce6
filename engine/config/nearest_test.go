package config

import (
	"strings"
	"testing"
)

func TestNearest(t *testing.T) {
	names := []string{"include", "exclude", "path", "max_record", "drop"}
	for word, want := range map[string]string{
		"inclde": "include", "pth": "path", "paht": "path", "maxrecord": "max_record",
		"MAX-RECORD": "max_record", "x": "",
		"colour": "", "": "", "dorp": "drop", "excludes": "exclude", strings.Repeat("a", 1000): "",
	} {
		if got := Nearest(word, names); got != want {
			t.Errorf("Nearest(%q) = %q, want %q", word, got, want)
		}
	}
}

// naive computes the distance by its definition, for short words.
func naive(a, b string) int {
	if a == "" || b == "" {
		return len(a) + len(b)
	}
	cost := 1
	if a[0] == b[0] {
		cost = 0
	}
	d := min(naive(a[1:], b)+1, naive(a, b[1:])+1, naive(a[1:], b[1:])+cost)
	if len(a) > 1 && len(b) > 1 && a[0] == b[1] && a[1] == b[0] {
		d = min(d, naive(a[2:], b[2:])+1)
	}
	return d
}

func TestDistance(t *testing.T) {
	words := []string{"", "a", "ab", "ba", "abc", "acb", "cab", "path", "paht", "pth", "batch",
		"bacth", "xyz"}
	for _, a := range words {
		for _, b := range words {
			if got, want := distance(a, b), naive(a, b); got != want {
				t.Errorf("distance(%q, %q) = %d, want %d", a, b, got, want)
			}
		}
	}
}

func TestMasked(t *testing.T) {
	secrets := map[string]bool{"password": true, "headers": true, "postgres": true}
	options := map[string][]string{"postgres": {"table", "password"}}
	for in, want := range map[string]string{
		"password: abc":                         "password: ***",
		"user: abc":                             "user: abc",
		"a: {password: 'a,b}c', user: me}":      "a: {password: ***, user: me}",
		"a: {password: a, user: me}":            "a: {password: ***",
		"password: ${PW}":                       "password: ${PW}",
		"password: ${PW:-hunter2}":              "password: ***",
		"headers:\n  Authorization: x\nuser: y": "headers:\n  ***\nuser: y",
		"url: https://me:pw@h/x":                "url: https://***@h/x",
		"url: https://token@h":                  "url: https://***@h",
		"{password: ${A}, headers: b}":          "{password: ${A}, headers: ***",
		"password:\n\n  - abc\n\nuser: y":       "password:\n\n  ***\n\nuser: y",
		"password: >\n  a\n  b\nx: 1":           "password: ***\n  ***\n  ***\nx: 1",
		"password: 'it''s', user: me":           "password: ***, user: me",
		"postgres: host=h password=x":           "postgres: ***",
		"postgres:\n  host=h password=x":        "postgres:\n  ***",
		"postgres:\n  table: t\n  password: x":  "postgres:\n  table: t\n  password: ***",
		"postgres:\n  other: x":                 "postgres:\n  ***",
		"postgres: {other: x}":                  "postgres: ***",
		"postgres: {table: t, password: x}":     "postgres: {table: t, password: ***",
	} {
		got := strings.Join(masked(strings.Split(in, "\n"), secrets, options), "\n")
		if got != want {
			t.Errorf("masked\n%s\ngives\n%s\nwant\n%s", in, got, want)
		}
	}
}

func TestExcerptOfALongLine(t *testing.T) {
	line := strings.Repeat("a", 300) + "HERE" + strings.Repeat("b", 300)
	got := excerpt([]string{"short", line, "\tend"}, 2, 301)
	lines := strings.Split(got, "\n")
	if len(lines) != 2 || strings.IndexByte(lines[1], '^') != strings.Index(lines[0], "HERE") {
		t.Errorf("excerpt\n%s", got)
	}
	if excerpt(nil, 3, 1) != "" || excerpt([]string{"a"}, 0, 0) != "" {
		t.Error("an excerpt of no line")
	}
}
