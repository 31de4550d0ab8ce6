//penstock:pure

package flume

import (
	"path"
	"regexp/syntax"
	"strings"
	"unicode"
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
	list, ok = c.of(re, true, true)
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
// other texts, it sets c.wider. first and last report whether the expression is at the start and at
// the end of the whole pattern. The second result is false if there are no globs for the
// expression.
func (c *globber) of(re *syntax.Regexp, first, last bool) ([]string, bool) {
	switch re.Op {
	case syntax.OpEmptyMatch:
		return []string{""}, true
	case syntax.OpBeginLine, syntax.OpBeginText:
		c.wider = c.wider || !first // the globs always match whole names
		return []string{""}, true
	case syntax.OpEndLine, syntax.OpEndText:
		c.wider = c.wider || !last
		return []string{""}, true
	case syntax.OpLiteral:
		if re.Flags&syntax.FoldCase != 0 {
			return []string{foldedGlob(re.Rune)}, true
		}
		return []string{literalGlob(re.Rune)}, true
	case syntax.OpAnyChar, syntax.OpAnyCharNotNL:
		return []string{"?"}, true
	case syntax.OpCharClass:
		if len(re.Rune) == 0 {
			return nil, false // it matches nothing
		}
		return []string{classGlob(re.Rune)}, true
	case syntax.OpCapture:
		return c.of(re.Sub[0], first, last)
	case syntax.OpStar, syntax.OpPlus, syntax.OpQuest, syntax.OpRepeat:
		return c.repeated(re)
	case syntax.OpAlternate:
		var all []string
		for _, sub := range re.Sub {
			list, ok := c.of(sub, first, last)
			if !ok || len(all)+len(list) > maxGlobs {
				return nil, false
			}
			all = append(all, list...)
		}
		return all, true
	case syntax.OpConcat:
		all := []string{""}
		for i, sub := range re.Sub {
			list, ok := c.of(sub, first && i == 0, last && i == len(re.Sub)-1)
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
// well. Example: x{2,5} becomes xx*. The second result is false if the minimum exceeds maxGlobs, or
// if the repeated expression has several globs and is not just optional.
func (c *globber) repeated(re *syntax.Regexp) ([]string, bool) {
	list, ok := c.of(re.Sub[0], false, false)
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

// literalGlob returns the glob for a literal text. It writes * as [*], so that two stars are next
// to each other only if both are wildcards.
func literalGlob(runes []rune) string {
	var b strings.Builder
	for _, r := range runes {
		switch r {
		case '*':
			b.WriteString("[*]")
		case '?', '[', '\\':
			b.WriteByte('\\')
			fallthrough
		default:
			b.WriteRune(r)
		}
	}
	return b.String()
}

// foldedGlob returns the glob for a text whose letters match in upper and lower case.
func foldedGlob(runes []rune) string {
	var b strings.Builder
	for _, r := range runes {
		same := []rune{r}
		for f := unicode.SimpleFold(r); f != r; f = unicode.SimpleFold(f) {
			same = append(same, f)
		}
		if len(same) == 1 {
			b.WriteString(literalGlob(same))
		} else {
			b.WriteString("[" + string(same) + "]")
		}
	}
	return b.String()
}

// classGlob returns the glob for a class of characters, which is given as ranges. A class that
// contains the last Unicode character is written as a negated one, such as [^a]. The glob has no
// slash, because names have none, and a slash would split the glob.
func classGlob(ranges []rune) string {
	var b strings.Builder
	b.WriteByte('[')
	if ranges[len(ranges)-1] == unicode.MaxRune {
		b.WriteByte('^')
		ranges = complement(ranges)
	}
	begin := b.Len()
	put := func(r rune) {
		if strings.ContainsRune(`\]^-[!`, r) {
			b.WriteByte('\\')
		}
		b.WriteRune(r)
	}
	putRange := func(first, last rune) {
		if first > last {
			return
		}
		put(first)
		if first != last {
			b.WriteByte('-')
			put(last)
		}
	}
	for i := 0; i+1 < len(ranges); i += 2 {
		first, last := ranges[i], ranges[i+1]
		if first <= '/' && '/' <= last {
			putRange(first, '/'-1)
			first = '/' + 1
		}
		putRange(first, last)
	}
	if b.Len() == begin {
		return "?"
	}
	return b.String() + "]"
}

// complement returns the ranges of the characters that are not in the given ranges. The last given
// range must end at the last Unicode character.
func complement(ranges []rune) (between []rune) {
	from := rune(0)
	for i := 0; i+1 < len(ranges); i += 2 {
		if from < ranges[i] {
			between = append(between, from, ranges[i]-1)
		}
		from = ranges[i+1] + 1
	}
	return between
}
