package config

import (
	"os"

	"github.com/penstock-io/penstock/stream"
)

// Kind names a kind of YAML file in messages.
type Kind struct {
	Noun  string // the kind of file in one word: "config"
	Least string // minimum contents of such a file, for the message about an empty one
}

// DecodeFile decodes a YAML file other than a config. v is a pointer to a struct that contains the
// defaults. The struct's tags and its Validate method work as for the options of a component. In
// errors, the noun of k takes the place of the name of a component. The error is an *[Error], or
// [Errors] if there are several independent mistakes.
func DecodeFile(path string, k Kind, v any) error {
	l := newLoader(path, LoadOptions{Env: os.LookupEnv})
	l.kind = k
	text := l.read()
	if len(l.errs) > 0 {
		return l.report()
	}
	return decodeText(l, text, v)
}

// Decode is like [DecodeFile] for a text in memory. path is the name of the text in errors.
func Decode(path string, text []byte, k Kind, v any) error {
	l := newLoader(path, LoadOptions{Env: os.LookupEnv})
	l.kind = k
	return decodeText(l, text, v)
}

func decodeText(l *loader, text []byte, v any) error {
	if root := l.parse(text); root != nil {
		l.optionsOf(Use{Component: stream.Component{Name: l.kind.Noun}, Options: v}, root, root)
	}
	return l.report()
}
