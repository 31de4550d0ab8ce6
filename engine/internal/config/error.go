package config

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// maxShown is how many problems one report prints; the rest is counted.
const maxShown = 20

// Error is one thing that is wrong with a config.
type Error struct {
	Place   Place
	Message string // what is wrong and what to write instead, in one line
	Excerpt string // the line, its neighbours and a caret; "" where there is no line to show
	Hint    string // the nearest valid name or the right form; "" where there is none
}

// Error gives place, message, excerpt and hint, without a line end.
func (e *Error) Error() string {
	var b strings.Builder
	b.WriteString(e.Place.String())
	b.WriteString(": ")
	b.WriteString(e.Message)
	if e.Excerpt != "" {
		b.WriteString("\n" + e.Excerpt)
	}
	if e.Hint != "" {
		b.WriteString("\n  hint: " + e.Hint)
	}
	return b.String()
}

// Errors is everything that is wrong with a config, in order of place: independent problems are told together.
type Errors []*Error

// Error gives the first maxShown, apart by an empty line, and the number of the others.
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

// Unwrap gives each of them.
func (es Errors) Unwrap() []error {
	out := make([]error, len(es))
	for i, e := range es {
		out[i] = e
	}
	return out
}

// joined returns nil, the one *Error, or Errors sorted by place without repeats (an alias is decoded where it is used).
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

// String gives file:line:column, or the file alone where no line is known.
func (p Place) String() string {
	if p.Line == 0 {
		return p.File
	}
	return fmt.Sprintf("%s:%d:%d", p.File, p.Line, p.Column)
}
