//penstock:pure

package flume

import (
	"path"
	"regexp/syntax"
	"strings"
)

// maxGlobs is the maximum number of globs for one pattern.
const maxGlobs = 64

// globs converts a regular expression to globs. The expression is meant to match whole file names.
// wider reports whether the globs may also match other names. ok is false if there are no globs for
// the expression.
func globs(pattern string) (list []string, wider, ok bool) {
	re, err := syntax.Parse(pattern, syntax.Perl)
	if err != nil {
		return nil, false, false
	}
	c := globber{}
	list, ok = c.of(re)
	if !ok {
		return nil, false, false
	}
	seen := make(map[string]bool)
	var out []string
	for _, g := range list {
		for strings.Contains(g, "**") {
			g = strings.ReplaceAll(g, "**", "*")
		}
		if _, err := path.Match(g, ""); err != nil {
			return nil, false, false
		}
		if g != "" && !seen[g] {
			seen[g] = true
			out = append(out, g)
		}
	}
	return out, c.wider, true
}

type globber struct{ wider bool }

// of returns globs that match all texts that an expression matches. If the globs may also match
// other texts, it sets c.wider. The second result is false if there are no globs for the
// expression.
func (c *globber) of(re *syntax.Regexp) ([]string, bool) {
	switch re.Op {
	case syntax.OpEmptyMatch, syntax.OpBeginLine, syntax.OpEndLine, syntax.OpBeginText,
		syntax.OpEndText:
		return []string{""}, true // the globs always match whole names
	case syntax.OpLiteral:
		if re.Flags&syntax.FoldCase != 0 {
			return []string{foldedGlob(re.Rune)}, true
		}
		return []string{literalGlob(re.Rune)}, true
	case syntax.OpAnyChar, syntax.OpAnyCharNotNL:
		return []string{"?"}, true
	case syntax.OpCharClass:
		return []string{classGlob(re.Rune)}, true
	case syntax.OpCapture:
		return c.of(re.Sub[0])
	case syntax.OpStar, syntax.OpPlus, syntax.OpQuest, syntax.OpRepeat:
		return c.repeated(re)
	case syntax.OpAlternate:
		var all []string
		for _, sub := range re.Sub {
			list, ok := c.of(sub)
			if !ok || len(all)+len(list) > maxGlobs {
				return nil, false
			}
			all = append(all, list...)
		}
		return all, true
	case syntax.OpConcat:
		all := []string{""}
		for _, sub := range re.Sub {
			list, ok := c.of(sub)
			if !ok || len(all)*len(list) > maxGlobs {
				return nil, false
			}
			var next []string
			for _, a := range all {
				for _, b := range list {
					next = append(next, a+b)
				}
			}
			all = next
		}
		return all, true
	}
	return nil, false
}

// repeated converts a repetition. The result is exact for a fixed number of repetitions, for an
// optional expression, and for any character without a maximum, such as .* and .+. Otherwise the
// result has the minimum number of repetitions, followed by a star, and may match other names as
// well. Example: x{2,5} becomes xx*. The second result is false if the repetition cannot be
// converted: only an optional expression may have several globs.
func (c *globber) repeated(re *syntax.Regexp) ([]string, bool) {
	list, ok := c.of(re.Sub[0])
	if !ok {
		return nil, false
	}
	least, most := re.Min, re.Max
	switch re.Op {
	case syntax.OpStar:
		least, most = 0, -1
	case syntax.OpPlus:
		least, most = 1, -1
	case syntax.OpQuest:
		least, most = 0, 1
	}
	if len(list) != 1 {
		if most != 1 || least != 0 || len(list) >= maxGlobs {
			return nil, false
		}
		return append([]string{""}, list...), true
	}
	if least > maxGlobs {
		return nil, false
	}
	front := strings.Repeat(list[0], least)
	switch {
	case most == least:
		return []string{front}, true
	case most == 1:
		return []string{"", list[0]}, true
	case most < 0 && list[0] == "?":
	default:
		c.wider = true
	}
	return []string{front + "*"}, true
}

func literalGlob(runes []rune) string {
	var b strings.Builder
	for _, r := range runes {
		if strings.ContainsRune(`*?[\`, r) {
			b.WriteByte('\\')
		}
		b.WriteRune(r)
	}
	return b.String()
}

func foldedGlob(runes []rune) string {
	var b strings.Builder
	for _, r := range runes {
		lower, upper := strings.ToLower(string(r)), strings.ToUpper(string(r))
		if lower == upper {
			b.WriteString(literalGlob([]rune{r}))
		} else {
			b.WriteString("[" + lower + upper + "]")
		}
	}
	return b.String()
}

func classGlob(pairs []rune) string {
	var b strings.Builder
	b.WriteByte('[')
	put := func(r rune) {
		if strings.ContainsRune(`\]^-[`, r) {
			b.WriteByte('\\')
		}
		b.WriteRune(r)
	}
	for i := 0; i+1 < len(pairs); i += 2 {
		put(pairs[i])
		if pairs[i] != pairs[i+1] {
			b.WriteByte('-')
			put(pairs[i+1])
		}
	}
	b.WriteByte(']')
	return b.String()
}
