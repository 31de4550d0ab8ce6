package config

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"unicode/utf8"

	"go.yaml.in/yaml/v4"

	"github.com/penstock-io/penstock/stream"
)

// The maximum size of a config. A larger file is a mistake or an attack.
const (
	maxConfigBytes = 1 << 20
	maxAliases     = 100     // uses; an alias within an aliased value counts each time
	maxNodes       = 100_000 // values, after resolving aliases
)

// loader reads one config. Its methods add to errs and continue where possible.
type loader struct {
	kind    Kind
	path    string
	dir     string // directory for relative paths
	lines   []string
	options LoadOptions
	secrets map[string]bool // keys with secret values, which must not appear in messages
	shown   []string        // lines as shown in excerpts
	hidden  []string        // values that must not appear in messages
	errs    Errors
	notices Errors
	aliases int
	nodes   int
	source  Use // of the current pipeline
	set     *set
	text    []byte                // nil if it could not be read
	root    *yaml.Node            // nil if it could not be parsed
	top     map[string]*yaml.Node // its values by key
	meant   map[string]bool       // known keys for which the unknown ones probably stand
}

// claim is the owner of a resource that only one component may have.
type claim struct {
	what  string
	where Place
}

// fail records a mistake at a node.
func (l *loader) fail(n *yaml.Node, format string, args ...any) *Error {
	return l.failAt(n.Line, n.Column, format, args...)
}

func (l *loader) failAt(line, column int, format string, args ...any) *Error {
	e := &Error{
		Place:   Place{File: l.path, Line: line, Column: column},
		Message: l.redact(fmt.Sprintf(format, args...)),
		Excerpt: l.redact(excerpt(l.shown, line, column)),
	}
	l.errs = append(l.errs, e)
	return e
}

// leastHidden is the minimum length of a secret that is masked in messages. A shorter one would
// match parts of ordinary words.
const leastHidden = 4

// hide masks a value in messages, because errors of a component may quote its options.
func (l *loader) hide(value string) {
	if len(value) >= leastHidden {
		l.hidden = append(l.hidden, value)
	}
}

// hideSecrets hides the values of secret keys, word by word, because excerpts break lines
// differently.
func (l *loader) hideSecrets(n *yaml.Node, secret bool) {
	if n.Kind == yaml.ScalarNode && secret && !strings.Contains(n.Value, "${") {
		for _, word := range strings.Fields(n.Value) {
			l.hide(word)
		}
		l.maskQuoted(n)
	}
	for i, c := range n.Content {
		key := n.Kind == yaml.MappingNode && i%2 == 0
		below := secret && !key
		if n.Kind == yaml.MappingNode && !key {
			below = secret || l.secrets[n.Content[i-1].Value]
		}
		l.hideSecrets(c, below)
	}
}

// maskQuoted masks the continuation lines of a quoted secret, regardless of their indentation.
func (l *loader) maskQuoted(n *yaml.Node) {
	if n.Style&(yaml.SingleQuotedStyle|yaml.DoubleQuotedStyle) == 0 {
		return
	}
	_, rest := l.lineAt(n.Line, n.Column)
	all := quotedAll.FindString(strings.Join(append([]string{rest}, l.lines[n.Line:]...), "\n"))
	for i := range strings.Count(all, "\n") {
		l.shown[n.Line+i] = stream.Masked
	}
}

func (l *loader) redact(message string) string {
	for _, value := range l.hidden {
		message = strings.ReplaceAll(message, value, "***")
	}
	return maskURLs(message)
}

// report returns the mistakes found by l as an error, with all secrets masked.
func report(l *loader) error {
	for _, e := range l.errs {
		e.Message, e.Excerpt, e.Hint = l.redact(e.Message), l.redact(e.Excerpt), l.redact(e.Hint)
	}
	return l.errs.joined()
}

// masks reports whether l shows the line with a masked part; lines count from 1.
func masks(l *loader, line int) bool {
	return line < 1 || line > len(l.lines) || l.shown[line-1] != l.lines[line-1]
}

// place returns the position of a node.
func (l *loader) place(n *yaml.Node) Place {
	return Place{File: l.path, Line: n.Line, Column: n.Column}
}

// read returns the text of the config, or nil after recording an error.
func (l *loader) read() []byte {
	file, err := os.Open(l.path)
	if err != nil {
		l.failAt(0, 0, "cannot read the %s: %v", l.kind.Noun, cause(err))
		return nil
	}
	defer file.Close()
	if info, err := file.Stat(); err == nil && info.IsDir() {
		l.failAt(0, 0, "is a folder; name the %s file in it", l.kind.Noun)
		return nil
	}
	text, err := io.ReadAll(io.LimitReader(file, maxConfigBytes+1))
	if err != nil {
		l.failAt(0, 0, "cannot read the %s: %v", l.kind.Noun, cause(err))
		return nil
	}
	return text
}

// cause removes the path from an error of package os, because the message contains it already.
func cause(err error) error {
	if pe, ok := errors.AsType[*os.PathError](err); ok {
		return pe.Err
	}
	return err
}

// parse returns the tree of the single document in text, with aliases resolved, or nil after
// recording an error.
func (l *loader) parse(text []byte) *yaml.Node {
	if len(text) > maxConfigBytes {
		l.failAt(0, 0, "is larger than %v; a %s is written by hand, this is something else",
			stream.Size(maxConfigBytes), l.kind.Noun)
		return nil
	}
	l.lines = strings.Split(strings.ReplaceAll(strings.TrimPrefix(string(text), "\ufeff"), "\r\n",
		"\n"), "\n")
	l.shown = masked(l.lines, l.secrets)
	if !l.isText(text) {
		return nil
	}
	dec := yaml.NewDecoder(bytes.NewReader(text))
	var doc, second yaml.Node
	switch err := dec.Decode(&doc); {
	case err == io.EOF:
		l.failAt(0, 0, "is empty; a %s has at least %s", l.kind.Noun, l.kind.Least)
		return nil
	case err != nil:
		l.syntax(err)
		return nil
	}
	switch err := dec.Decode(&second); {
	case err == nil:
		l.fail(&second, "a second document starts here (`---`); a %s is one document", l.kind.Noun)
		return nil
	case err != io.EOF:
		l.syntax(err)
		return nil
	}
	l.hideSecrets(&doc, false)
	root := l.tidy(doc.Content[0], nil)
	if len(l.errs) > 0 {
		return nil
	}
	return root
}

// isText rejects text that the YAML parser would reject without a position.
func (l *loader) isText(text []byte) bool {
	if bytes.HasPrefix(text, []byte{0xff, 0xfe}) || bytes.HasPrefix(text, []byte{0xfe, 0xff}) {
		l.failAt(0, 0, "is UTF-16; save it as UTF-8")
		return false
	}
	for i, line := range l.lines {
		for column, rest := 1, line; rest != ""; column++ {
			r, n := utf8.DecodeRuneInString(rest)
			if r == utf8.RuneError && n == 1 {
				l.failAt(i+1, column, "byte 0x%02x is not UTF-8; save the %s as UTF-8", rest[0],
					l.kind.Noun)
				return false
			}
			if r < ' ' && r != '\t' && r != '\r' || r == 0x7f {
				l.failAt(i+1, column, "control character 0x%02x; take it out, or write it as "+
					"\"\\x%02x\" in double quotes", r, r)
				return false
			}
			rest = rest[n:]
		}
	}
	return true
}

// tidy resolves aliases and merge keys, and rejects YAML features that a config must not use: tags,
// repeated keys, and keys that are not text. open are the anchors that contain the node.
func (l *loader) tidy(n *yaml.Node, open []*yaml.Node) *yaml.Node {
	if l.nodes++; l.nodes == maxNodes+1 {
		l.fail(n, "more than %d values, aliases followed; a %s is written by hand, this is "+
			"something else", maxNodes, l.kind.Noun)
	}
	if l.nodes > maxNodes || l.aliases > maxAliases {
		return &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!null", Line: n.Line, Column: n.Column}
	}
	if n.Style&yaml.TaggedStyle != 0 && n.Tag != "!!str" {
		l.tagged(n)
	}
	out := *n
	switch n.Kind {
	case yaml.AliasNode:
		return l.follow(n, open)
	case yaml.MappingNode:
		out.Content = l.pairs(n, append(open, n))
	case yaml.SequenceNode:
		out.Content = make([]*yaml.Node, len(n.Content))
		for i, c := range n.Content {
			out.Content[i] = l.tidy(c, append(open, n))
		}
	}
	return &out
}

func (l *loader) follow(n *yaml.Node, open []*yaml.Node) *yaml.Node {
	if l.aliases++; l.aliases == maxAliases+1 {
		l.fail(n, "more than %d aliases, those within aliased values counted each time", maxAliases)
	}
	for _, o := range open {
		if o == n.Alias {
			l.fail(n, "alias *%s stands within what it names", n.Value)
			return &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!null", Line: n.Line, Column: n.Column}
		}
	}
	return l.tidy(n.Alias, open)
}

// pairs returns the keys and values of a mapping. Those of a merge key come last and replace none.
func (l *loader) pairs(n *yaml.Node, open []*yaml.Node) []*yaml.Node {
	out := make([]*yaml.Node, 0, len(n.Content))
	seen := map[string]*yaml.Node{}
	var merged []*yaml.Node
	for i := 0; i < len(n.Content); i += 2 {
		key, value := l.tidy(n.Content[i], open), l.tidy(n.Content[i+1], open)
		if key.Kind != yaml.ScalarNode {
			l.fail(key, "a key must be text, and this is a %s", kindName(key))
			continue
		}
		if first, ok := seen[key.Value]; ok {
			l.fail(key, "%q is given twice; the first is in line %d", key.Value, first.Line)
			continue
		}
		seen[key.Value] = key
		if key.Tag == "!!merge" {
			merged = append(merged, l.mergedFrom(value)...)
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

func (l *loader) mergedFrom(value *yaml.Node) []*yaml.Node {
	switch value.Kind {
	case yaml.MappingNode:
		return value.Content
	case yaml.SequenceNode:
		var out []*yaml.Node
		for _, c := range value.Content {
			if c.Kind != yaml.MappingNode {
				l.fail(c, "a merge key (<<) takes mappings, and this is %s", article(kindName(c)))
				continue
			}
			out = append(out, c.Content...)
		}
		return out
	}
	l.fail(value, "a merge key (<<) takes an alias of a mapping, and this is %s",
		article(kindName(value)))
	return nil
}

// kindName returns the kind of a node in words for users.
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
