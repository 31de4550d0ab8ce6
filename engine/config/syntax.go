package config

import (
	"cmp"
	"errors"
	"regexp"
	"strings"

	"go.yaml.in/yaml/v4"
)

// quoteText is a hint that does not quote the line. It is used for lines that contain a secret.
const quoteText = "if it is text, quote the whole value"

// syntax adds an error of the YAML parser, with a remedy.
func (d *document) syntax(err error) {
	defer func() {
		if e := d.errs[len(d.errs)-1]; d.masks(e.Place.Line) && strings.Contains(e.Hint, "'") {
			e.Hint = quoteText
		}
	}()
	le, ok := errors.AsType[*yaml.LoadError](err)
	if !ok {
		d.failAt(0, 0, "is not YAML: %v", err)
		return
	}
	line, column := le.Mark.Line, le.Mark.Column
	opened := le.ContextMark
	switch text := le.Message; {
	case strings.Contains(text, "cannot start any token"):
		d.wrongStart(line, column)
	case strings.Contains(text, "mapping values are not allowed"):
		d.secondColon(line, column)
	case strings.Contains(text, "unexpected end of stream") &&
		strings.Contains(le.ContextMsg, "quoted"):
		d.failAt(opened.Line, opened.Column, "the quote that opens here is never closed")
	case strings.Contains(text, "expected ',' or"):
		const what = "this bracket is not closed, or a comma is missing before line %d"
		e := d.failAt(opened.Line, opened.Column, what, max(line, opened.Line+1))
		e.Hint = cmp.Or(d.bareVariable(opened.Line, line), d.bareArguments(opened.Line, line))
	case strings.Contains(text, "unknown anchor"):
		d.unknownAnchor(line, column)
	case strings.Contains(text, "did not find expected key"),
		strings.Contains(text, "did not find expected '-' indicator"):
		d.wrongIndent(line, column)
	case strings.Contains(text, "incompatible YAML document"):
		d.failAt(line, column, "a %%YAML line is not needed; remove it")
	case strings.Contains(text, "did not find expected node content"):
		d.failAt(line, column, "a value is missing here, or a bracket does not match")
	case strings.Contains(text, "found unknown escape character"):
		d.failAt(line, column, "this backslash begins no known escape of double quotes").Hint =
			`write the text in single quotes, or \\ for a backslash`
	case strings.Contains(text, "could not find expected ':'"):
		d.failAt(line, column, "a key without a colon, or a value that is indented less than its "+
			"key, ends before this line")
	default:
		d.failAt(line, column, "is not YAML: %s", text)
	}
}

// lineAt returns a line, and the part of this line that begins at the column. Both are "" if there
// is no such line.
func (d *document) lineAt(line, column int) (whole, rest string) {
	if line < 1 || line > len(d.lines) {
		return "", ""
	}
	r := []rune(d.lines[line-1])
	return string(r), string(r[min(max(column-1, 0), len(r)):])
}

func (d *document) wrongStart(line, column int) {
	_, rest := d.lineAt(line, column)
	if strings.HasPrefix(rest, "\t") {
		d.failAt(line, column, "a tab; YAML is indented with spaces only")
		return
	}
	first, _, _ := strings.Cut(rest+" ", " ")
	e := d.failAt(line, column, "a value that starts with %q must be quoted", firstRune(first))
	e.Hint = "write " + quoted(plainRest(rest))
}

func (d *document) secondColon(line, column int) {
	whole, rest := d.lineAt(line, column)
	before := strings.TrimSuffix(whole, rest)
	if above, _ := d.lineAt(line-1, 1); !strings.Contains(before, ":") && above != "" &&
		!strings.Contains(above, ":") {
		d.failAt(line-1, 1+len(above)-len(strings.TrimLeft(above, " ")), "a colon is missing "+
			"after this key")
		return
	}
	e := d.failAt(line, column, "`: ` is not allowed in an unquoted value")
	if _, value, ok := strings.Cut(whole, ": "); ok {
		e.Hint = "write " + quoted(plainRest(value)) +
			", or the text after the first colon on a separate line"
	}
}

func (d *document) unknownAnchor(line, column int) {
	if d.masks(line) {
		d.failAt(line, column, "YAML reads a word that starts with * as an alias, but no alias "+
			"has this name").Hint = quoteText
		return
	}
	_, rest := d.lineAt(line, column)
	word := rest
	if i := strings.IndexAny(rest, " ,]}"); i >= 0 {
		word = rest[:i]
	}
	e := d.failAt(line, column, "YAML reads `%s` as an alias, but no alias has this name", word)
	e.Hint = "if it is text, quote it: " + quoted(word)
}

func (d *document) wrongIndent(line, column int) {
	whole, rest := d.lineAt(line, column)
	before := strings.TrimRight(strings.TrimSuffix(whole, rest), " ")
	if strings.HasSuffix(before, `"`) || strings.HasSuffix(before, `'`) {
		e := d.failAt(line, column, "text after a closing quote; put the whole value in quotes")
		if _, value, ok := strings.Cut(whole, ": "); ok {
			e.Hint = "write " + quoted(strings.TrimSpace(value))
		}
		return
	}
	d.failAt(line, column, "this line is indented neither like the keys above it nor like their "+
		"values")
}

// tagged adds an error for a YAML tag. For example, `where: !ok` means an empty value of type
// ok.
func (d *document) tagged(n *yaml.Node) {
	_, rest := d.lineAt(n.Line, n.Column)
	tag, _, _ := strings.Cut(rest+" ", " ")
	if d.masks(n.Line) {
		tag = "!..."
	}
	e := d.fail(n, "`%s` is a YAML tag; a %s has no tags, so it would not be part of the "+
		"value", tag, d.kind.Noun)
	switch {
	case n.Kind != yaml.ScalarNode:
	case d.masks(n.Line):
		e.Hint = quoteText
	default:
		e.Hint = "if it is text, quote it: " + quoted(plainRest(rest))
	}
}

// cut returns a value and the comment after it, as written in the file, if n is a value without
// quotes. It returns "" if n has quotes or no comment follows.
func (d *document) cut(n *yaml.Node) string {
	const quotes = yaml.SingleQuotedStyle | yaml.DoubleQuotedStyle | yaml.LiteralStyle |
		yaml.FoldedStyle
	if n.Kind != yaml.ScalarNode || n.Style&quotes != 0 || !strings.HasPrefix(n.LineComment, "#") {
		return ""
	}
	_, rest := d.lineAt(n.Line, n.Column)
	if i := strings.Index(rest, " #"); i < 0 {
		return n.Value + " " + n.LineComment // the scalar has several lines
	}
	return strings.TrimRight(rest, " ")
}

// checkCut adds an error for a value that is cut off by ` #`, where YAML starts a comment. In an
// expression, ` #` is always an error. In any other value, it is an error if the value has an
// unclosed bracket or double quote, and in a secret also if no space follows the #. The other cases
// are no error, because comments after values are common.
func (d *document) checkCut(n *yaml.Node, expression, secret bool) {
	whole := d.cut(n)
	if whole == "" {
		return
	}
	attached := len(n.LineComment) > 1 && n.LineComment[1] != ' '
	if !expression && !unbalanced(n.Value) && !(secret && attached) {
		return
	}
	if secret {
		d.fail(n, "` #` starts a comment in YAML, so the value ends before it").Hint =
			"quote the whole value, or put the comment on a separate line"
		return
	}
	e := d.fail(n, "` #` starts a comment in YAML, so the value is only %s", quoted(n.Value))
	e.Hint = "put the comment on a separate line"
	if unbalanced(n.Value) || strings.Count(n.Value, "'")%2+strings.Count(n.Value, "`")%2 > 0 {
		e.Hint = "write " + quoted(whole) + ", or put the comment on a separate line"
	}
}

// bareValue matches an unquoted variable such as ${NAME} within brackets. YAML would read its brace
// as the start of a mapping.
var bareValue = regexp.MustCompile(`[:,\[{]\s*(\$\{[^{}]*\})`)

// bareVariable returns a hint if one of the lines has an unquoted variable within brackets, else
// "".
func (d *document) bareVariable(from, to int) string {
	for _, line := range d.lines[max(0, from-1):min(to, len(d.lines))] {
		if found := bareValue.FindStringSubmatch(line); found != nil {
			return "within { } and [ ] a variable needs quotes: " + quoted(found[1])
		}
	}
	return ""
}

// bareCall matches a call of a function with several arguments, without quotes around it.
var bareCall = regexp.MustCompile(`:\s+(\w+\([^()]*,[^()]*\))`)

// bareArguments returns a hint if one of the lines has an unquoted call of a function within
// braces, else "". There, YAML ends a value at the comma between two arguments.
func (d *document) bareArguments(from, to int) string {
	for _, line := range d.lines[max(0, from-1):min(to, len(d.lines))] {
		if found := bareCall.FindStringSubmatch(line); found != nil {
			return "within { } and [ ] a value with a comma needs quotes: " + quoted(found[1])
		}
	}
	return ""
}

// unbalanced reports whether s has brackets or double quotes that are not closed.
func unbalanced(s string) bool {
	depth := 0
	for _, r := range s {
		switch r {
		case '(', '[', '{':
			depth++
		case ')', ']', '}':
			depth--
		}
	}
	return depth > 0 || strings.Count(s, `"`)%2 == 1
}

// quoted returns the single-quoted YAML form of a text.
func quoted(s string) string { return "'" + strings.ReplaceAll(s, "'", "''") + "'" }

// plainRest returns the unquoted value at the start of rest, which is a part of a line. The value
// ends at a comment. If rest begins within brackets, the value also ends at the next comma, or at
// the bracket that closes them. Example: of `a b, c]` it returns `a b`.
func plainRest(rest string) string {
	if i := strings.Index(rest, " #"); i >= 0 {
		rest = rest[:i]
	}
	rest = strings.TrimSpace(rest)
	if strings.HasSuffix(rest, "]") && !strings.Contains(rest, "[") ||
		strings.HasSuffix(rest, "}") && !strings.Contains(rest, "{") {
		if i := strings.IndexAny(rest, ",]}"); i >= 0 {
			rest = rest[:i]
		}
	}
	return strings.TrimSpace(rest)
}

// bracketed returns the part of rest from the opening bracket at its start to the matching closing
// bracket.
func bracketed(rest string) string {
	depth := 0
	for i, r := range rest {
		switch r {
		case '[', '{':
			depth++
		case ']', '}':
			depth--
		}
		if depth == 0 {
			return rest[:i+1]
		}
	}
	return strings.TrimSpace(rest)
}

func firstRune(s string) string {
	for _, r := range s {
		return string(r)
	}
	return ""
}
