//penstock:pure

package config

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/penstock-io/penstock/stream"
)

// excerptWidth is the maximum number of characters of a line in an excerpt. Of a longer line, only
// the part around the caret is shown.
const excerptWidth = 100

// excerpt returns the line and its neighbors, with a caret below the column. Lines and columns
// count from 1, and columns count characters. Secrets in lines must be masked before, because
// excerpts are logged.
func excerpt(lines []string, line, column int) string {
	if line < 1 || line > len(lines) {
		return ""
	}
	from := 0
	if n := len([]rune(lines[line-1])); n > excerptWidth && column > excerptWidth*3/4 {
		from = min(column-excerptWidth/2, n-excerptWidth)
	}
	var b strings.Builder
	for i := max(line-1, 1); i <= min(line+1, len(lines)); i++ {
		text := strings.TrimRight(window(lines[i-1], from), " ")
		if i != line && text == "" {
			continue
		}
		fmt.Fprintf(&b, "%5d | %s", i, text)
		b.WriteByte('\n')
		if i == line {
			// The caret is at the end of the line if the column is in a masked part.
			at := min(column-1-from, utf8.RuneCountInString(text))
			fmt.Fprintf(&b, "      | %s^\n", strings.Repeat(" ", max(at, 0)))
		}
	}
	return strings.TrimRight(b.String(), "\n")
}

// window returns at most excerptWidth characters of a line, beginning with the character at index
// from. A terminal must show each of them as one character, so window replaces tabs and
// nonprintable characters.
func window(line string, from int) string {
	r := []rune(line)
	to := min(from+excerptWidth, len(r))
	from = min(from, to)
	for i := from; i < to; i++ {
		if r[i] == '\t' {
			r[i] = ' '
		} else if !unicode.IsPrint(r[i]) {
			r[i] = unicode.ReplacementChar
		}
	}
	return string(r[from:to])
}

var (
	secretKey = regexp.MustCompile(`["']?([A-Za-z_][A-Za-z0-9_-]*)["']?\s*:(\s+|$)`)
	firstKey  = regexp.MustCompile(`^(?:\{\s*)?([a-z_]+):(?:\s|$)`)
	quotedAll = regexp.MustCompile(`(?s)^("(\\.|[^"\\])*"|'(''|[^'])*')`)
	// properties matches the anchor and the tag of a value.
	properties = regexp.MustCompile(`^([&!]\S*\s+)*`)
	variable   = regexp.MustCompile(`^["']?\$\{[^}]*\}["']?\s*[,}]`)
	// bareUser matches user and password of a URL without a scheme.
	bareUser = regexp.MustCompile("[^\\s\"'`\\[\\](){},/@:]+:[^\\s\"'`@/]+@")
)

// masked returns the lines of a config with secrets masked: secrets in URLs, and values of secret
// keys. The value of a key is on the line of the key, or on indented lines below. The text may be
// invalid YAML, so masked also masks a value if it is uncertain whether it is secret. Below
// the name of a component, options are not masked, unless they are secret themselves.
func masked(lines []string, secrets map[string]bool, options map[string][]string) []string {
	out := make([]string, len(lines))
	within := -1 // indentation of the secret key above this line; -1 if there is none
	for i, line := range lines {
		depth := len(line) - len(strings.TrimLeft(line, " "))
		if within >= 0 && depth > within && strings.TrimSpace(line) != "" {
			out[i] = line[:depth] + "***"
			continue
		}
		if strings.TrimSpace(line) != "" {
			within = -1
		}
		isSecret := func(name, value string) bool {
			return secrets[name] && !startsWithKeyOf(options[name], value, lines[i+1:])
		}
		var secret bool
		out[i], secret = maskLine(maskURLs(line), isSecret)
		if secret {
			within = depth
		}
	}
	return out
}

// startsWithKeyOf reports whether a value is a mapping that begins with one of the keys. The value
// is on the line of its key, or begins on the next line with text.
func startsWithKeyOf(keys []string, value string, below []string) bool {
	for _, line := range below {
		if value != "" {
			break
		}
		value = strings.TrimSpace(line)
	}
	m := firstKey.FindStringSubmatch(value)
	return m != nil && slices.Contains(keys, m[1])
}

// maskLine masks the secret values in one line, and reports whether the line contains a secret key.
// It does not mask variables such as ${NAME}, because their names are not secret.
func maskLine(line string, isSecret func(name, value string) bool) (string, bool) {
	found := false
	for at := 0; ; {
		m := secretKey.FindStringSubmatchIndex(line[at:])
		if m == nil {
			return line, found
		}
		name, value := line[at+m[2]:at+m[3]], at+m[1]
		at = value
		rest := line[value:]
		if !isSecret(name, rest) {
			continue
		}
		found = true
		switch q := quotedAll.FindString(rest); {
		case rest == "":
		case variable.MatchString(rest+",") && !strings.Contains(rest, ":-"):
		case q != "":
			line = line[:value] + "***" + rest[len(q):]
		default:
			return line[:value] + "***", found
		}
	}
}

// maskURLs masks secrets in URLs like stream.MaskURLs. It also masks user and password in URLs
// without a scheme.
func maskURLs(text string) string {
	return bareUser.ReplaceAllString(stream.MaskURLs(text), stream.Masked+"@")
}
