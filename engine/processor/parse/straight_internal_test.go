package parse

import (
	"regexp"
	"regexp/syntax"
	"slices"
	"testing"
)

const accessLog = `^(?P<host>\S+) \S+ (?P<user>\S+) \[(?P<timestamp>[^\]]+)\] ` +
	`"(?P<request>[^"]*)" (?P<status>\d+) (?P<size>\S+) ` +
	`"(?P<referrer>[^"]*)" "(?P<agent>.*)"$`

func straightOf(t *testing.T, pattern string) *straight {
	t.Helper()
	re, err := syntax.Parse(pattern, syntax.Perl)
	if err != nil {
		t.Fatal(err)
	}
	return newStraight(re, re.MaxCap())
}

// TestStraightForms checks which expressions can be matched without backtracking, by a straight.
// FuzzStraight compares its matches with those of package regexp.
func TestStraightForms(t *testing.T) {
	for pattern, want := range map[string]bool{
		accessLog:                     true,
		`^(?P<a>\w+)=(?P<b>\d*);?`:    false, // optional
		`^(?P<a>\w+)=(?P<b>\d*);`:     true,
		`^(?P<a>\w+)`:                 true,
		`(?P<a>\w+)$`:                 false, // not anchored
		`(?m)^(?P<a>\w+)$`:            false, // anchored to a line
		`^(?P<a>.*) (?P<b>.*)$`:       false, // may require backtracking
		`^(?P<a>.*?): (?P<b>.*)$`:     false,
		`^(?P<a>.*): x$`:              true,
		`^(?P<a>\d{4})-(?P<b>\d{2})$`: true,
		`^(?P<a>\d{4})(?P<b>\d+)x`:    true,
		`^(?P<a>\d{1,3})\.(?P<b>.+)$`: true,
		`^(?P<a>\d{1,3})(?P<b>\d+)$`:  false,
		`^(?P<a>a|b)c`:                true, // equivalent to a class
		`^(?P<a>ab|c)d`:               false,
		`^(?i)(?P<a>x+)y`:             false,
		`^(?P<a>[^é]+)é`:              false, // some non-ASCII characters
		`^(?P<a>[^"]{2,})"`:           false, // counted multi-byte characters
		`^(?P<a>\pL+) `:               false,
		`^(?P<a>(\S+ )+)x`:            false,
		`^(?P<a>\d{1,3})`:             false, // ends within the digits of 2026
		`^(?P<a>\d{1,3})$`:            true,
		`^(?P<a>\w+?)`:                false, // matches one character
		`^(?P<a>\w+?) `:               true,
		`^(?P<a>\w+?)(?P<b>-*)`:       false,
		`^(?P<a>)x$`:                  true,
		`^é(?P<a>[^,]+),é$`:           true,
	} {
		if got := straightOf(t, pattern) != nil; got != want {
			t.Errorf("%s goes straight: %v, want %v", pattern, got, want)
		}
	}
}

// FuzzStraight checks that straight and regexp find the same groups.
func FuzzStraight(f *testing.F) {
	texts := []string{
		`1.2.3.4 - bob [17/May/2015:10:05:03 +0000] "GET / HTTP/1.1" 200 12 "-" "an "agent" \x"`,
		"", "2026-11", "20261x", "255.é.\xffx",
		"\xff\xc3=\xa9;", "a: x", "é\xc3,é", "bc", "x", "a \n b", "a=1;", "12", "\xe2\x82é,é",
	}
	for _, pattern := range []string{
		accessLog, `^(?P<a>\w+)=(?P<b>\d*);`, `^(?P<a>.*): x$`, `^(?P<a>\d{4})-(?P<b>\d{2})$`,
		`^(?P<a>\d{1,3})\.(?P<b>.+)$`,
		`^(?P<a>a|b)c`,
		`^(?P<a>)x$`, `^é(?P<a>[^,]+),é$`, `^(?P<a>\S+)(?P<b>\s*)(?P<c>\S*)$`, `^(?s)(?P<a>.+)b$`,
		`^(?P<a>\w*)(?P<b>\W*)$`, `^(?P<a>.+)$`,
		`^(?P<a>[^a]*)(?P<b>a*)$`, `^(?P<a>.*)(b)(c)$`,
		`^(?P<a>\d{1,3})`, `^(?P<a>\d{1,3})(?P<b>-*)`, `^(?P<a>\w+?)`, `^(?P<a>\w+?)(?P<b>-*)`,
	} {
		for _, text := range texts {
			f.Add(pattern, []byte(text))
		}
	}
	f.Fuzz(func(t *testing.T, pattern string, text []byte) {
		re, err := regexp.Compile(pattern)
		if err != nil || len(pattern) > 200 {
			return
		}
		s := straightOf(t, pattern)
		if s == nil {
			return
		}
		want := re.FindSubmatchIndex(text)
		for range 2 { // also with the state of the previous match
			if got := s.match(text); !slices.Equal(got, want) {
				t.Fatalf("%s of %q: %v, want %v", pattern, text, got, want)
			}
		}
	})
}

func TestStraightAllocatesNothing(t *testing.T) {
	s := straightOf(t, accessLog)
	line := []byte(`1.2.3.4 - bob [17/May/2015:10:05:03 +0000] "GET / HTTP/1.1" 200 12 ` +
		`"-" "an agent"`)
	if n := testing.AllocsPerRun(100, func() {
		if s.match(line) == nil {
			t.Fatal("no match")
		}
	}); n != 0 {
		t.Errorf("%v allocations a line", n)
	}
}

func TestNeeds(t *testing.T) {
	for pattern, want := range map[string]string{
		`level=(?P<a>\w+) .*error (?P<b>\d+)`: "level=",
		`(?P<a>x: (?:abcd)+)`:                 "abcd",
		`(?P<a>\w+)|abc`:                      "",
		`(?i)abc(?P<a>\w+)`:                   "",
		`(?:abc)*(?P<a>\w+)d`:                 "d",
		"\uFFFD(?P<a>x)":                      "x",
	} {
		re, err := syntax.Parse(pattern, syntax.Perl)
		if err != nil {
			t.Fatal(err)
		}
		if got := needs(re); got != want {
			t.Errorf("%s needs %q, want %q", pattern, got, want)
		}
	}
}
