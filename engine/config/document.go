package config

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"unicode/utf8"

	"go.yaml.in/yaml/v4"

	"github.com/penstock-io/penstock/stream"
)

// Limits on the size of a config. A larger file is a mistake or an attack.
const (
	maxConfigBytes = 1 << 20
	maxAliases     = 100     // uses of aliases, counted again at each use of an enclosing alias
	maxNodes       = 100_000 // values, after resolving aliases
)

// document is the text of one file, with the mistakes found in it.
type document struct {
	kind    Kind
	path    string
	text    []byte // nil if it could not be read
	lines   []string
	secrets map[string]bool // keys with secret values, which must not appear in messages
	// options has the keys of each component. A secret key may also be the name of a component:
	// `postgres` is the URL of a table, and a sink. The value of the sink is a mapping with its
	// keys.
	options map[string][]string
	tree    *yaml.Node // the whole text, before aliases and variables are replaced
	shown   []string   // lines as they are shown in excerpts
	hidden  []string   // values that must not appear in messages
	errs    Errors
	notices Errors
	aliases int
	nodes   int
}

// fail adds a mistake at a node.
func (d *document) fail(n *yaml.Node, format string, args ...any) *Error {
	return d.failAt(n.Line, n.Column, format, args...)
}

func (d *document) failAt(line, column int, format string, args ...any) *Error {
	e := &Error{
		Place:   Place{File: d.path, Line: line, Column: column},
		Message: d.redact(fmt.Sprintf(format, args...)),
		Excerpt: d.redact(excerpt(d.shown, line, d.shownColumn(line, column))),
	}
	d.errs = append(d.errs, e)
	return e
}

// shownColumn returns the column of a character in d.shown, where masks may have moved it.
func (d *document) shownColumn(line, column int) int {
	if _, rest := d.lineAt(line, column); rest != "" {
		if before, found := strings.CutSuffix(d.shown[line-1], rest); found {
			return 1 + utf8.RuneCountInString(before)
		}
	}
	return column
}

// leastHidden is the minimum length of secrets that are masked in messages. Shorter ones would
// match parts of ordinary words.
const leastHidden = 4

// hide masks value in messages about d, unless it is shorter than leastHidden. For example, an
// error of a component may quote a secret option. A name of a component or option is not masked,
// because messages list these names. Example: `auth: bearer`.
func (d *document) hide(value string) {
	if len(value) >= leastHidden && !d.isName(value) {
		d.hidden = append(d.hidden, value)
	}
}

// isName reports whether word is the name of a component or of one of its options.
func (d *document) isName(word string) bool {
	for component, keys := range d.options {
		if word == component || slices.Contains(keys, word) {
			return true
		}
	}
	return false
}

// hideWords masks each word of value in messages about d, because a message may break the lines of
// a value at other places than the file.
func (d *document) hideWords(value string) {
	for _, word := range strings.Fields(value) {
		d.hide(word)
	}
}

// hidePart masks secret, which is a part of the value of n, in messages about d.
func (d *document) hidePart(n *yaml.Node, secret string) {
	if len(secret) >= leastHidden { // as a whole, too: it may have short words
		d.hidden = slices.Insert(d.hidden, 0, secret)
	}
	d.hideWords(secret)
	if _, rest := d.lineAt(n.Line, n.Column); !strings.Contains(rest, secret) {
		d.maskQuoted(n) // n has escapes or several lines
	}
}

// hideSecrets masks the values of secret keys in messages.
func (d *document) hideSecrets(n *yaml.Node, secret bool) {
	if n.Kind == yaml.ScalarNode && secret && !strings.Contains(n.Value, "${") {
		d.hideWords(n.Value)
		d.maskQuoted(n)
	}
	for i, c := range n.Content {
		key := n.Kind == yaml.MappingNode && i%2 == 0
		below := secret && !key
		if n.Kind == yaml.MappingNode && !key {
			name := n.Content[i-1].Value
			below = secret || d.secrets[name] && !hasKeyOf(c, d.options[name])
		}
		d.hideSecrets(c, below)
	}
}

// hasKeyOf reports whether n is a mapping with one of the keys.
func hasKeyOf(n *yaml.Node, keys []string) bool {
	for key := range entries(n) {
		if slices.Contains(keys, key.Value) {
			return true
		}
	}
	return false
}

// hideUnknown masks the values of an unknown key that may be a misspelled secret key.
func (d *document) hideUnknown(key string) {
	d.secrets[key] = true
	d.shown = masked(d.lines, d.secrets, d.options)
	d.hideSecrets(d.tree, false)
}

// maskQuoted masks a secret in quotes in excerpts of the file. The function masked misses a secret
// if its key is written with escapes, and lines of it that are indented less than the key.
func (d *document) maskQuoted(n *yaml.Node) {
	if n.Style&(yaml.SingleQuotedStyle|yaml.DoubleQuotedStyle) == 0 {
		return
	}
	_, rest := d.lineAt(n.Line, n.Column)
	rest = rest[len(properties.FindString(rest)):]
	all := quotedAll.FindString(strings.Join(append([]string{rest}, d.lines[n.Line:]...), "\n"))
	if first, _, _ := strings.Cut(all, "\n"); first != "" {
		shown, want := &d.shown[n.Line-1], stream.Masked+rest[len(first):]
		if before, found := strings.CutSuffix(*shown, rest); found {
			*shown = before + want
		} else if !strings.HasSuffix(*shown, want) { // a later part of the line is masked already
			*shown = strings.ReplaceAll(*shown, first, stream.Masked)
		}
	}
	for i := range strings.Count(all, "\n") {
		d.shown[n.Line+i] = stream.Masked
	}
}

func (d *document) redact(message string) string {
	for _, value := range d.hidden {
		message = strings.ReplaceAll(message, value, "***")
	}
	return maskURLs(message)
}

// report returns the mistakes found in d as an error, with all secrets masked.
func (d *document) report() error {
	for _, e := range d.errs {
		e.Message, e.Excerpt, e.Hint = d.redact(e.Message), d.redact(e.Excerpt), d.redact(e.Hint)
	}
	return d.errs.joined()
}

// masks reports whether excerpts mask a part of the given line. The first line is line 1.
func (d *document) masks(line int) bool {
	return line < 1 || line > len(d.lines) || d.shown[line-1] != d.lines[line-1]
}

// place returns the position of a node.
func (d *document) place(n *yaml.Node) Place {
	return Place{File: d.path, Line: n.Line, Column: n.Column}
}

// read returns the text of the config, or nil after recording an error.
func (d *document) read() []byte {
	file, err := os.Open(d.path)
	if err != nil {
		d.failAt(0, 0, "cannot read the %s: %v", d.kind.Noun, cause(err))
		return nil
	}
	defer file.Close()
	if info, err := file.Stat(); err == nil && info.IsDir() {
		d.failAt(0, 0, "is a directory; give the %s file in it", d.kind.Noun)
		return nil
	}
	text, err := io.ReadAll(io.LimitReader(file, maxConfigBytes+1))
	if err != nil {
		d.failAt(0, 0, "cannot read the %s: %v", d.kind.Noun, cause(err))
		return nil
	}
	return text
}

// cause returns the cause of an error of package os. It omits the path, which the message already
// contains.
func cause(err error) error {
	if pe, ok := errors.AsType[*os.PathError](err); ok {
		return pe.Err
	}
	return err
}

// parse parses text, which must be a single document, and returns its tree with aliases resolved.
// If there is an error, parse records it and returns nil.
func (d *document) parse(text []byte) *yaml.Node {
	if len(text) > maxConfigBytes {
		d.failAt(0, 0, "is larger than %v; a %s is written by hand, so this is probably another "+
			"file",
			stream.Size(maxConfigBytes), d.kind.Noun)
		return nil
	}
	d.lines = strings.Split(strings.ReplaceAll(strings.TrimPrefix(string(text), "\ufeff"), "\r\n",
		"\n"), "\n")
	d.shown = masked(d.lines, d.secrets, d.options)
	if !d.isText(text) {
		return nil
	}
	dec := yaml.NewDecoder(bytes.NewReader(text))
	var doc, second yaml.Node
	switch err := dec.Decode(&doc); {
	case err == io.EOF:
		d.failAt(0, 0, "is empty; a %s has at least %s", d.kind.Noun, d.kind.Least)
		return nil
	case err != nil:
		d.syntax(err)
		return nil
	}
	switch err := dec.Decode(&second); {
	case err == nil:
		d.fail(&second, "a second document starts here (`---`); a %s is one document", d.kind.Noun)
		return nil
	case err != io.EOF:
		d.syntax(err)
		return nil
	}
	d.tree = &doc
	d.hideSecrets(d.tree, false)
	root := d.tidy(doc.Content[0], nil)
	if len(d.errs) > 0 {
		return nil
	}
	return root
}

// isText reports whether text is UTF-8 without ASCII control characters, except for tabs and line
// ends. If it is not, isText records an error, with the position of the wrong character. The YAML
// parser would report no position.
func (d *document) isText(text []byte) bool {
	if bytes.HasPrefix(text, []byte{0xff, 0xfe}) || bytes.HasPrefix(text, []byte{0xfe, 0xff}) {
		d.failAt(0, 0, "is UTF-16; save it as UTF-8")
		return false
	}
	for i, line := range d.lines {
		for column, rest := 1, line; rest != ""; column++ {
			r, n := utf8.DecodeRuneInString(rest)
			if r == utf8.RuneError && n == 1 {
				d.failAt(i+1, column, "byte 0x%02x is not UTF-8; save the %s as UTF-8", rest[0],
					d.kind.Noun)
				return false
			}
			if r < ' ' && r != '\t' && r != '\r' || r == 0x7f {
				d.failAt(i+1, column, "control character 0x%02x; remove it, or write it as "+
					"\"\\x%02x\" in double quotes", r, r)
				return false
			}
			rest = rest[n:]
		}
	}
	return true
}

// tidy resolves aliases and merge keys in n. It rejects YAML features that a config must not use:
// tags other than !!str, repeated keys, and keys that are lists or mappings. The argument open has
// the mappings and lists that enclose n, so that tidy detects an alias within its own anchor.
func (d *document) tidy(n *yaml.Node, open []*yaml.Node) *yaml.Node {
	if d.nodes++; d.nodes == maxNodes+1 {
		d.fail(n, "more than %d values after aliases are expanded; a %s is written by hand, so "+
			"this is probably another file", maxNodes, d.kind.Noun)
	}
	if d.nodes > maxNodes || d.aliases > maxAliases {
		return &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!null", Line: n.Line, Column: n.Column}
	}
	if n.Style&yaml.TaggedStyle != 0 && n.Tag != "!!str" {
		d.tagged(n)
	}
	out := *n
	switch n.Kind {
	case yaml.AliasNode:
		return d.follow(n, open)
	case yaml.MappingNode:
		out.Content = d.pairs(n, append(open, n))
	case yaml.SequenceNode:
		out.Content = make([]*yaml.Node, len(n.Content))
		for i, c := range n.Content {
			out.Content[i] = d.tidy(c, append(open, n))
		}
	}
	return &out
}

func (d *document) follow(n *yaml.Node, open []*yaml.Node) *yaml.Node {
	if d.aliases++; d.aliases == maxAliases+1 {
		d.fail(n, "more than %d aliases, counting those in aliased values each time", maxAliases)
	}
	for _, o := range open {
		if o == n.Alias {
			d.fail(n, "alias *%s is inside its own anchor", n.Value)
			return &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!null", Line: n.Line, Column: n.Column}
		}
	}
	return d.tidy(n.Alias, open)
}

// pairs returns the keys and values of a mapping. Keys from a merge key (<<) come last. A key that
// the mapping itself has is not merged.
func (d *document) pairs(n *yaml.Node, open []*yaml.Node) []*yaml.Node {
	out := make([]*yaml.Node, 0, len(n.Content))
	seen := map[string]*yaml.Node{}
	var merged []*yaml.Node
	for i := 0; i < len(n.Content); i += 2 {
		key, value := d.tidy(n.Content[i], open), d.tidy(n.Content[i+1], open)
		if key.Kind != yaml.ScalarNode {
			d.fail(key, "a key must be text, but this is a %s", kindName(key))
			continue
		}
		if first, ok := seen[key.Value]; ok {
			d.fail(key, "%q is given twice; the first is in line %d", key.Value, first.Line)
			continue
		}
		seen[key.Value] = key
		if key.Tag == "!!merge" {
			merged = append(merged, d.mergedFrom(value)...)
			continue
		}
		out = append(out, key, value)
	}
	for i := 0; i+1 < len(merged); i += 2 {
		if _, ok := seen[merged[i].Value]; !ok {
			seen[merged[i].Value] = merged[i]
			out = append(out, merged[i], merged[i+1])
		}
	}
	return out
}

func (d *document) mergedFrom(value *yaml.Node) []*yaml.Node {
	switch value.Kind {
	case yaml.MappingNode:
		return value.Content
	case yaml.SequenceNode:
		var out []*yaml.Node
		for _, c := range value.Content {
			if c.Kind != yaml.MappingNode {
				d.fail(c, "a merge key (<<) takes mappings, but this is %s", article(kindName(c)))
				continue
			}
			out = append(out, c.Content...)
		}
		return out
	}
	d.fail(value, "a merge key (<<) takes an alias of a mapping, but this is %s",
		article(kindName(value)))
	return nil
}

// kindName returns the kind of a node in words, for messages.
func kindName(n *yaml.Node) string {
	switch {
	case n.Kind == yaml.MappingNode:
		return "mapping"
	case n.Kind == yaml.SequenceNode:
		return "list"
	case isNull(n):
		return "blank"
	}
	return "text"
}

// isNull reports whether a value is missing, ~ or null.
func isNull(n *yaml.Node) bool {
	return n.Kind == yaml.ScalarNode && n.Tag == "!!null" &&
		n.Style&(yaml.SingleQuotedStyle|yaml.DoubleQuotedStyle) == 0
}
