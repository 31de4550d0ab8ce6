//penstock:pure

package config

import (
	"fmt"
	"regexp"
	"strings"
	"unicode"
)

// excerptWidth is how many characters of a line an excerpt shows; of a longer one the part around the caret.
const excerptWidth = 100

// excerpt shows the line, one before and one after, and a caret below the column; lines and columns count from 1, columns in
// characters. Values of the keys named in secrets, and passwords in URLs, are masked: a report ends up in logs.
func excerpt(lines []string, line, column int, secrets map[string]bool) string {
	if line < 1 || line > len(lines) {
		return ""
	}
	from := 0
	if n := len([]rune(lines[line-1])); n > excerptWidth && column > excerptWidth*3/4 {
		from = min(column-excerptWidth/2, n-excerptWidth)
	}
	var b strings.Builder
	for i := max(line-1, 1); i <= min(line+1, len(lines)); i++ {
		text := strings.TrimRight(window(mask(lines[i-1], secrets), from), " ")
		if i != line && text == "" {
			continue
		}
		fmt.Fprintf(&b, "%5d | %s", i, text)
		b.WriteByte('\n')
		if i == line {
			fmt.Fprintf(&b, "      | %s^\n", strings.Repeat(" ", max(column-1-from, 0)))
		}
	}
	return strings.TrimRight(b.String(), "\n")
}

// window cuts excerptWidth characters out of a line and replaces those that a terminal would not show as one character.
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
	keyValue = regexp.MustCompile(`(["']?)([A-Za-z_][A-Za-z0-9_-]*)(["']?\s*:\s+)([^\s,}][^,}]*)`)
	userinfo = regexp.MustCompile(`(://[^\s/@:]*):[^\s/@]*@`)
)

// mask hides what stands behind a secret key and the password of a URL. A variable stays: its name is no secret.
func mask(line string, secrets map[string]bool) string {
	line = userinfo.ReplaceAllString(line, "$1:***@")
	return keyValue.ReplaceAllStringFunc(line, func(s string) string {
		m := keyValue.FindStringSubmatch(s)
		if !secrets[m[2]] || strings.HasPrefix(strings.TrimLeft(m[4], `"'`), "${") {
			return s
		}
		return m[1] + m[2] + m[3] + "***"
	})
}

// Redact hides the password in every URL of a text.
func Redact(text string) string { return userinfo.ReplaceAllString(text, "$1:***@") }
