package config

import (
	"os"

	"github.com/penstock-io/penstock/stream"
)

// Kind names a kind of YAML file in messages.
type Kind struct {
	Noun  string // what such a file is, in one word: "config"
	Least string // what such a file has at least, for the message about an empty one
}

// DecodeFile reads a YAML file of another kind than a config into v, a pointer to a struct that
// holds the defaults. The struct's tags and its Validate method mean what they mean for the options
// of a component, whose name is the kind's noun. An error is an *[Error], or [Errors] where several
// independent things are wrong.
func DecodeFile(path string, k Kind, v any) error {
	l := newLoader(path, LoadOptions{Env: os.LookupEnv})
	l.kind = k
	text := l.read()
	if len(l.errs) > 0 {
		return report(l)
	}
	return decodeText(l, text, v)
}

// Decode is [DecodeFile] of a text. The path names it in errors.
func Decode(path string, text []byte, k Kind, v any) error {
	l := newLoader(path, LoadOptions{Env: os.LookupEnv})
	l.kind = k
	return decodeText(l, text, v)
}

func decodeText(l *loader, text []byte, v any) error {
	if root := l.parse(text); root != nil {
		l.optionsOf(Use{Component: stream.Component{Name: l.kind.Noun}, Options: v}, root, root)
	}
	return report(l)
}
