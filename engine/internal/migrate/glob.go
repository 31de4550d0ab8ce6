package migrate

import (
	"fmt"
	"regexp"
	"strings"
)

// MatchGlob reports whether a path matches a glob. In the glob, ** matches any number of
// directories. * matches any number of characters other than a slash, and ? matches one. {a,b}
// matches a or b. [ab] matches one of the characters a and b, and [!ab] any other one. A backslash
// makes the next character literal. An invalid glob matches nothing.
func MatchGlob(glob, path string) bool {
	re, err := regexp.Compile(globPattern(glob))
	return err == nil && re.MatchString(path)
}

// globPart matches a part of a glob: an escaped character, one or two stars, a class, or any other
// character.
var globPart = regexp.MustCompile(`(?s)\\.|\*\*/|\*\*|\[(?:\\.|[^\]\\])*\]|.`)

// globPattern returns the regular expression of a glob.
func globPattern(glob string) string {
	depth := 0 // number of open braces
	return "^" + globPart.ReplaceAllStringFunc(glob, func(part string) string {
		switch {
		case part == "**/":
			return "(?:.*/)?"
		case part == "**":
			return ".*"
		case part == "*":
			return "[^/]*"
		case part == "?":
			return "[^/]"
		case part == "{":
			depth++
			return "(?:"
		case part == "}" && depth > 0:
			depth--
			return ")"
		case part == "," && depth > 0:
			return "|"
		case strings.HasPrefix(part, "[") && part != "[":
			return classPattern(part)
		case strings.HasPrefix(part, `\`) && part != `\`:
			part = part[1:]
		}
		return regexp.QuoteMeta(part)
	}) + "$"
}

var escapedChar = regexp.MustCompile(`(?s)\\.`)

// classPattern returns the regular expression of a class such as [!a-z].
func classPattern(class string) string {
	if rest, ok := strings.CutPrefix(class, "[!"); ok {
		class = "[^" + rest
	}
	return escapedChar.ReplaceAllStringFunc(class, func(char string) string {
		return fmt.Sprintf(`\x{%x}`, []rune(char)[1])
	})
}

// mayContain reports whether a directory may contain files that match a glob, directly or in the
// directories below it. It may return true for a directory without such files.
func mayContain(glob, dir string) bool {
	parts := strings.Split(glob, "/")
	for i, name := range strings.Split(dir, "/") {
		switch {
		case strings.Contains(parts[i], "**"):
			return true
		case i == len(parts)-1:
			return false // the glob matches no file at this depth
		case strings.Contains(parts[i], "{"):
			return true
		case !MatchGlob(parts[i], name):
			return false
		}
	}
	return true
}
