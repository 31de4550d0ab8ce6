package config

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// maxShown is the maximum number of mistakes that a report prints. Further ones are only counted.
const maxShown = 20

// Error is a mistake in a config.
type Error struct {
	Place   Place
	Message string // one line: the mistake and its remedy
	Excerpt string // the line with its neighbors and a caret; empty if there is none
	Hint    string // the most similar valid name or the correct form; empty if there is none
}

// Error returns position, message, excerpt and hint, without a final newline.
func (e *Error) Error() string {
	var b strings.Builder
	if e.Place != (Place{}) {
		b.WriteString(e.Place.String() + ": ")
	}
	b.WriteString(e.Message)
	if e.Excerpt != "" {
		b.WriteString("\n" + e.Excerpt)
	}
	if e.Hint != "" {
		b.WriteString("\n  hint: " + e.Hint)
	}
	return b.String()
}

// Errors are the independent mistakes in a config, in the order of their positions. errors.As finds
// only the first of them.
type Errors []*Error

// Error returns the texts of the first 20 mistakes, separated by empty lines, and the number of
// further ones.
func (es Errors) Error() string {
	var b strings.Builder
	for i, e := range es {
		if i == maxShown {
			fmt.Fprintf(&b, "\n\nand %d more", len(es)-maxShown)
			break
		}
		if i > 0 {
			b.WriteString("\n\n")
		}
		b.WriteString(e.Error())
	}
	return b.String()
}

// Unwrap returns the mistakes.
func (es Errors) Unwrap() []error {
	out := make([]error, len(es))
	for i, e := range es {
		out[i] = e
	}
	return out
}

// sorted returns es sorted by position, without duplicates. Duplicates occur because an alias is
// decoded at each of its uses.
func (es Errors) sorted() Errors {
	slices.SortStableFunc(es, func(a, b *Error) int {
		return cmp.Or(cmp.Compare(a.Place.Line, b.Place.Line),
			cmp.Compare(a.Place.Column, b.Place.Column))
	})
	return slices.CompactFunc(es, func(a, b *Error) bool { return *a == *b })
}

// joined returns the mistakes in es as one error, sorted by position and without duplicates: nil if
// there is none, an *Error if there is one, and Errors otherwise.
func (es Errors) joined() error {
	es = es.sorted()
	switch len(es) {
	case 0:
		return nil
	case 1:
		return es[0]
	}
	return es
}

// String returns file:line:column. If there is no line, it returns only the file.
func (p Place) String() string {
	if p.Line == 0 {
		return p.File
	}
	return fmt.Sprintf("%s:%d:%d", p.File, p.Line, p.Column)
}
