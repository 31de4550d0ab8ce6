//penstock:pure

package parse

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/penstock-io/penstock/stream"
)

// dissect splits a text at the literal texts in a pattern. Example: the pattern `%{method} %{path}`
// has the literal " ". It splits "GET /a b" into method "GET" and path "/a b".
//
// `%{name}` takes the text up to the next literal, or to the end if there is none. `%{}` ignores
// this text. After `%{name->}`, the literal may occur several times in a row. Each literal is
// matched at its first occurrence, without backtracking. So the time grows only linearly with the
// text.
type dissect struct {
	columns
	parts []part
}

// part is one `%{...}` of the pattern, with the literal after it.
type part struct {
	field   int    // index in columns; -1 for %{}
	before  string // the literal after the part; "" if the pattern ends there
	padding bool   // the literal may occur several times in a row
}

func newDissect(o *Options) (*format, error) {
	prefix, parts, named, err := dissected(o.Pattern)
	if err != nil {
		return nil, err
	}
	fields, err := typed(o, named)
	if err != nil {
		return nil, err
	}
	parts = append([]part{{field: -1, before: prefix}}, parts...)
	return &format{fields: fields, make: func() splitter {
		return &dissect{columns{fields: fields}, parts}
	}}, nil
}

// dissected parses a pattern into the literal before the first part, the parts, and the names of
// the fields.
func dissected(pattern string) (prefix string, parts []part, named []string, err error) {
	wrong := func(at int, format string, args ...any) error {
		return &stream.OptionError{Key: "pattern", Err: fmt.Errorf(format, args...),
			At: len([]rune(pattern[:at]))}
	}
	prefix, rest, _ := strings.Cut(pattern, "%{")
	if len(prefix) == len(pattern) {
		return "", nil, nil, wrong(0, "has no %%{field}, so there would be no field")
	}
	for at := len(prefix); ; {
		name, behind, closed := strings.Cut(rest, "}")
		if !closed || strings.Contains(name, "%{") {
			return "", nil, nil, wrong(at, "%%{ is not closed")
		}
		p := part{field: -1}
		name, p.padding = strings.CutSuffix(name, "->")
		if name != "" {
			if strings.ContainsAny(name, "+?*&/|:") {
				return "", nil, nil, wrong(at,
					"%%{%s}: there are %%{name}, %%{} and %%{name->}, and `types` for numbers",
					name)
			}
			if slices.Contains(named, name) {
				return "", nil, nil, wrong(at, "names two fields %q", name)
			}
			p.field = len(named)
			named = append(named, name)
		}
		next, more, found := strings.Cut(behind, "%{")
		p.before = next
		if p.padding && next == "" {
			return "", nil, nil, wrong(at,
				"%%{%s->} needs the repeated text after it", name)
		}
		if found && next == "" {
			return "", nil, nil, wrong(at,
				"%%{%s} and the next field need text between them", name)
		}
		parts = append(parts, p)
		if !found {
			break
		}
		at = len(pattern) - len(more) - len("%{")
		rest = more
	}
	if len(named) == 0 {
		return "", nil, nil, option("pattern",
			errors.New("has no name in its %{}, so there would be no field"))
	}
	return prefix, parts, named, nil
}

func (d *dissect) split(b *stream.Batch, off, n uint32) problem {
	i, end := int(off), int(off+n)
	plain := bytes.IndexByte(b.Data[i:end], '\\') < 0
	for k := range d.parts {
		p := &d.parts[k]
		to, bare := end, false
		if k == 0 {
			if !bytes.HasPrefix(b.Data[i:end], []byte(p.before)) {
				return problem{"the text does not begin like the pattern", 0}
			}
			i += len(p.before)
			continue
		}
		if p.before != "" { // otherwise the last part takes the rest of the text
			n, first := indexOf(b.Data[i:end], p.before)
			to, bare = i+n, plain && first && p.before[0] == '"'
		}
		if to < i {
			return problem{"at this point the pattern wants " + p.before, i - int(off)}
		}
		if p.field >= 0 {
			if bad := d.add(b, p.field, uint32(i), uint32(to-i), off); bad.what != "" {
				return bad
			}
			if bare {
				b.Fields[len(b.Fields)-1].Bare = true
			}
		}
		i = to + len(p.before)
		for p.padding && bytes.HasPrefix(b.Data[i:end], []byte(p.before)) {
			i += len(p.before)
		}
	}
	if i != end {
		return problem{"text after the end of the pattern", i - int(off)}
	}
	return problem{}
}

// indexOf is like bytes.Index. It is faster in the usual case: the literal is found where its first
// byte occurs for the first time. first reports this case. It is also true if s does not contain
// this byte.
func indexOf(s []byte, literal string) (at int, first bool) {
	at = bytes.IndexByte(s, literal[0])
	if at < 0 || len(s)-at >= len(literal) && string(s[at:at+len(literal)]) == literal {
		return at, true
	}
	n := bytes.Index(s[at:], []byte(literal))
	if n < 0 {
		return n, false
	}
	return at + n, false
}
