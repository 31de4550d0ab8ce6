//penstock:pure

package migrate

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
)

// Writer writes a config line by line. The zero Writer is ready to use.
type Writer struct{ b strings.Builder }

// Put writes one line, indented by depth levels.
func (w *Writer) Put(depth int, format string, args ...any) {
	w.b.WriteString(strings.Repeat("  ", depth))
	fmt.Fprintf(&w.b, format, args...)
	w.b.WriteByte('\n')
}

// String returns the lines written so far.
func (w *Writer) String() string { return w.b.String() }

// Quote returns a text as a YAML scalar without variables.
func Quote(s string) string {
	// ${ would begin a variable.
	return strings.ReplaceAll(strconv.Quote(s), "${", "$${")
}

// variable matches the variables of Vector and Filebeat: ${NAME}, ${NAME:-default},
// ${NAME:default}.
var variable = regexp.MustCompile(`\$\{([A-Za-z_][A-Za-z0-9_]*)(?::-?([^}]*))?\}`)

// QuoteVariables returns a text as a YAML scalar, and keeps environment variables.
func QuoteVariables(s string) string {
	var b strings.Builder
	end := 0
	for _, m := range variable.FindAllStringSubmatchIndex(s, -1) {
		b.WriteString(strings.ReplaceAll(s[end:m[0]], "${", "$${"))
		b.WriteString("${" + s[m[2]:m[3]])
		if m[4] >= 0 {
			b.WriteString(":-" + s[m[4]:m[5]])
		}
		b.WriteString("}")
		end = m[1]
	}
	b.WriteString(strings.ReplaceAll(s[end:], "${", "$${"))
	return strconv.Quote(b.String())
}

// QuoteList returns texts as a YAML sequence, and keeps environment variables.
func QuoteList(list []string) string {
	out := make([]string, len(list))
	for i, s := range list {
		out[i] = QuoteVariables(s)
	}
	return "[" + strings.Join(out, ", ") + "]"
}

// Names makes valid, unused names. The zero Names is ready to use.
type Names struct{ taken map[string]bool }

// Unique returns a valid and unused name for a pipeline or route, similar to its name in the
// original config.
func (n *Names) Unique(name string) string {
	if n.taken == nil {
		n.taken = make(map[string]bool)
	}
	var b strings.Builder
	for _, r := range strings.ToLower(name) {
		if r >= 'a' && r <= 'z' || r >= '0' && r <= '9' || r == '-' || r == '_' {
			b.WriteRune(r)
		} else {
			b.WriteByte('-')
		}
	}
	const longest = 56 // shorter than the limit of 64, so that a number can be appended
	stem := b.String()[:min(b.Len(), longest)]
	s := stem
	for i := 2; n.taken[s]; i++ {
		s = fmt.Sprintf("%s-%d", strings.TrimRight(stem, "-"), i)
	}
	n.taken[s] = true
	return s
}
