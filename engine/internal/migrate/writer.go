//penstock:pure

package migrate

import (
	"cmp"
	"fmt"
	"regexp"
	"strconv"
	"strings"
)

// Writer writes a config line by line. The zero value is ready to use.
type Writer struct{ b strings.Builder }

// Put writes one line, indented by depth levels.
func (w *Writer) Put(depth int, format string, args ...any) {
	w.b.WriteString(strings.Repeat("  ", depth))
	fmt.Fprintf(&w.b, format, args...)
	w.b.WriteByte('\n')
}

// String returns the lines written so far.
func (w *Writer) String() string { return w.b.String() }

// Quote returns a text as a YAML scalar. A ${ in the text does not begin a variable.
func Quote(s string) string {
	return strings.ReplaceAll(strconv.Quote(s), "${", "$${")
}

// variable matches the forms of variables in Vector and Filebeat: ${NAME}, ${NAME:-default} and
// ${NAME:default}.
var variable = regexp.MustCompile(`\$\{([A-Za-z_][A-Za-z0-9_]*)(?::-?([^}]*))?\}`)

// QuoteVariables returns a text as a YAML scalar. Variables in the text stay variables.
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

// QuoteList returns texts as a YAML sequence. Variables in the texts stay variables.
func QuoteList(list []string) string {
	out := make([]string, len(list))
	for i, s := range list {
		out[i] = QuoteVariables(s)
	}
	return "[" + strings.Join(out, ", ") + "]"
}

// Names chooses names of pipelines and routes. The zero value is ready to use.
type Names struct{ taken map[string]bool }

// Unique returns a valid name that it has not returned before. The result is similar to name, which
// comes from the original config.
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
	const longest = 56 // below the limit of 64, so that a number can be appended
	stem := cmp.Or(b.String()[:min(b.Len(), longest)], "unnamed")
	s := stem
	for i := 2; n.taken[s]; i++ {
		s = fmt.Sprintf("%s-%d", strings.TrimRight(stem, "-"), i)
	}
	n.taken[s] = true
	return s
}
