package expr

import (
	"errors"
	"slices"
	"strings"

	"github.com/penstock-io/penstock/stream"
)

// Text is an expression in the options of a component.
type Text string

// Expression tells the config reader that the text is an expression. The reader then reports ` #`
// in it as an error, because YAML cuts off the rest as a comment.
func (*Text) Expression() {}

// Compile compiles the text as the value of the option with the given key, for records of the
// schema. It returns nil if the text is empty.
func (t Text) Compile(key string, in stream.Schema) (*Program, error) {
	if t == "" {
		return nil, nil
	}
	p, err := Value(string(t), in)
	if err != nil {
		return nil, Option(key, err)
	}
	return p, nil
}

// Named is a program with a name. Example: the program of a header's value has the name of the
// header.
type Named struct {
	Name    string
	Program *Program
}

// CompileNamed compiles the expressions of the option with the given key, for records of the
// schema. The result is sorted by name.
func CompileNamed(key string, texts map[string]Text, in stream.Schema) (list []Named, err error) {
	for name, text := range texts {
		p, err := Value(string(text), in)
		if err != nil {
			return nil, Option(key+"."+name, err)
		}
		list = append(list, Named{name, p})
	}
	slices.SortFunc(list, func(a, b Named) int { return strings.Compare(a.Name, b.Name) })
	return list, nil
}

// Option returns err as the error of the option with the given key. The key is "" if the value of
// the component is the expression itself, as in `where: status >= 500`.
func Option(key string, err error) error {
	if e, ok := errors.AsType[*Error](err); ok {
		return &stream.OptionError{Key: key, Err: e, At: e.At, Word: e.Word, Known: e.Known}
	}
	return &stream.OptionError{Key: key, Err: err}
}
