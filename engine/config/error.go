package config

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// maxShown is how many problems one report prints; the rest is counted.
const maxShown = 20

// Error is a mistake in a config.
type Error struct {
	Place   Place
	Message string // one line: what is wrong and what to write instead
	Excerpt string // the line with its neighbours and a caret; empty if there is none to show
	Hint    string // the nearest valid name or the right form; empty if there is none
}

// Error returns place, message, excerpt and hint, without a line end.
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

// Errors are the independent mistakes in a config, in order of place. errors.As finds the first
// *Error in it.
type Errors []*Error

// Error returns the first 20, separated by empty lines, and the number of the others.
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

// joined returns nil, the one *Error, or Errors sorted by place without repeats (an alias is
// decoded where it is used).
func (es Errors) joined() error {
	slices.SortStableFunc(es, func(a, b *Error) int {
		return cmp.Or(cmp.Compare(a.Place.Line, b.Place.Line), cmp.Compare(a.Place.Column, b.Place.Column))
	})
	es = slices.CompactFunc(es, func(a, b *Error) bool { return *a == *b })
	switch len(es) {
	case 0:
		return nil
	case 1:
		return es[0]
	}
	return es
}

// String returns file:line:column, or the file alone if there is no line.
func (p Place) String() string {
	if p.Line == 0 {
		return p.File
	}
	return fmt.Sprintf("%s:%d:%d", p.File, p.Line, p.Column)
}
