//penstock:pure

package syslog

import (
	"bytes"
	"cmp"
	"slices"
	"unicode/utf8"

	"github.com/penstock-io/penstock/engine/kit/ndjson"
)

// maxName is the maximum length, in bytes, of a name in the structured data of a message.
const maxName = 32

// structured is the structured data of a message of RFC 5424. It consists of elements, each with an
// id and parameters, such as [id name="value"].
type structured struct {
	params []param // a param without a name is the start of an element
	buf    []byte
}

// param is a parameter of an element: the id of the element, and the name and value of the
// parameter.
type param struct {
	id, name, value []byte
	escaped         bool // the value has escapes
}

func (s *structured) reset() { s.params = s.params[:0] }

// cut removes the structured data from the start of text. ok reports whether the data is valid. It
// is not valid if two elements have the same id.
func (s *structured) cut(text []byte) (rest []byte, ok bool) {
	if len(text) > 0 && text[0] == '-' {
		return text[1:], true
	}
	rest, ok = s.cutElements(text)
	return rest, !s.sort() && ok
}

func (s *structured) cutElements(text []byte) (rest []byte, ok bool) {
	for len(text) > 0 && text[0] == '[' {
		if text, ok = s.cutElement(text[1:]); !ok {
			return nil, false
		}
	}
	return text, ok
}

// cutElement removes an element from the start of text and adds its parameters to s. The caller has
// removed the opening bracket.
func (s *structured) cutElement(text []byte) (rest []byte, ok bool) {
	n := nameLength(text)
	if n == 0 {
		return nil, false
	}
	id := text[:n]
	s.params = append(s.params, param{id: id})
	for text = text[n:]; len(text) > 0 && text[0] == ' '; {
		text = text[1:]
		n = nameLength(text)
		if n == 0 || len(text) < n+2 || text[n] != '=' || text[n+1] != '"' {
			return nil, false
		}
		p := param{id: id, name: text[:n]}
		if text, ok = p.cutValue(text[n+2:]); !ok {
			return nil, false
		}
		s.params = append(s.params, p)
	}
	if len(text) == 0 || text[0] != ']' {
		return nil, false
	}
	return text[1:], true
}

// nameLength returns the length of the name at the start of text; 0 if there is none.
func nameLength(text []byte) int {
	for i, c := range text {
		if i == maxName || !isGraphic(c) || c == '=' || c == ']' || c == '"' {
			return i
		}
	}
	return len(text)
}

// cutValue removes a value and its closing quote from the start of text. The caller has removed the
// opening quote.
func (p *param) cutValue(text []byte) (rest []byte, ok bool) {
	for i := 0; i < len(text); i++ {
		switch text[i] {
		case '"':
			p.value = text[:i]
			return text[i+1:], utf8.Valid(p.value)
		case ']':
			return nil, false
		case '\\':
			i++
			if i == len(text) || !isEscapable(text[i]) {
				return nil, false
			}
			p.escaped = true
		}
	}
	return nil, false
}

func isEscapable(c byte) bool { return c == '"' || c == '\\' || c == ']' }

func compareParams(a, b param) int {
	return cmp.Or(bytes.Compare(a.id, b.id), bytes.Compare(a.name, b.name))
}

// sort sorts the parameters by id and name. It returns true if two elements have the same id.
func (s *structured) sort() (twice bool) {
	slices.SortStableFunc(s.params, compareParams)
	for i := 1; i < len(s.params); i++ {
		if p := &s.params[i]; p.name == nil && bytes.Equal(p.id, s.params[i-1].id) {
			return true
		}
	}
	return false
}

// append appends the data as a JSON object, with the elements and parameters sorted by id and name.
// If an element has several parameters with the same name, only the last one is appended.
func (s *structured) append(dst []byte) []byte {
	dst = append(dst, '{')
	for i := range s.params {
		p := &s.params[i]
		switch {
		case p.name == nil && i > 0 && bytes.Equal(p.id, s.params[i-1].id): // twice
		case p.name == nil:
			if i > 0 {
				dst = append(dst, "},"...)
			}
			dst = append(ndjson.AppendString(dst, p.id), ":{"...)
		case i+1 < len(s.params) && compareParams(*p, s.params[i+1]) == 0: // the last one is used
		default:
			if dst[len(dst)-1] != '{' {
				dst = append(dst, ',')
			}
			dst = append(ndjson.AppendString(dst, p.name), ':')
			dst = ndjson.AppendString(dst, s.decode(p))
		}
	}
	if len(s.params) > 0 {
		dst = append(dst, '}')
	}
	return append(dst, '}')
}

// decode returns the value of a parameter with its escapes decoded. The result is valid until the
// next call.
func (s *structured) decode(p *param) []byte {
	if !p.escaped {
		return p.value
	}
	s.buf = s.buf[:0]
	for i := 0; i < len(p.value); i++ {
		if p.value[i] == '\\' {
			i++ // a character follows, as cutValue has checked
		}
		s.buf = append(s.buf, p.value[i])
	}
	return s.buf
}
