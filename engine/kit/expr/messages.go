package expr

import (
	"errors"
	"fmt"
	"regexp"
	"strings"

	"github.com/expr-lang/expr/file"
)

// problem converts an error of the expr library to an *Error. It adds the position if the library
// reports one, and rewrites some messages.
func problem(err error) *Error {
	e := &Error{Message: err.Error()}
	if fe, ok := errors.AsType[*file.Error](err); ok {
		e.Message, e.At = fe.Message, fe.From
	}
	switch {
	case strings.HasPrefix(e.Message, "unexpected token EOF"):
		e.Message = "ends too early"
	case e.Message == `unexpected token Operator("=")`:
		e.Message = "= does not compare; write =="
	case unexpected.MatchString(e.Message):
		e.Message = unexpected.ReplaceAllString(e.Message, "unexpected $1")
	case mismatched.MatchString(e.Message):
		m := mismatched.FindStringSubmatch(e.Message)
		e.Message = fmt.Sprintf("%s stands between %s and %s", m[1], article(m[2]), article(m[3]))
	case strings.HasPrefix(e.Message, "expected bool, but got "):
		e.Message = "is not a condition, which is true or false, but " +
			article(strings.TrimPrefix(e.Message, "expected bool, but got "))
	default:
		e.Message = withoutGo(e.Message)
	}
	return e
}

// withoutGo rewrites a message of the library that has words of the Go language.
func withoutGo(s string) string {
	if m := operands.FindStringSubmatch(s); m != nil {
		return fmt.Sprintf("%s stands between %s and %s", m[2], article(m[1]), article(m[3]))
	}
	if m := conversion.FindStringSubmatch(s); m != nil {
		return fmt.Sprintf("a value is %s, but must be %s", article(m[1]), article(m[2]))
	}
	s = argument.ReplaceAllStringFunc(s, func(t string) string {
		return "(" + article(argument.FindStringSubmatch(t)[1]) + ")"
	})
	return goPrefix.ReplaceAllString(s, "")
}

// Patterns of the library's messages. The last one matches Go prefixes, which are removed.
var (
	unexpected = regexp.MustCompile(`^unexpected token \w+\((.*)\)$`)
	mismatched = regexp.MustCompile(`^invalid operation: ` +
		`(\S+) \(mismatched types (\S+) and (\S+)\)$`)
	operands = regexp.MustCompile(`^invalid operation: ` + goType + ` (\S+) ` + goType + `$`)

	conversion = regexp.MustCompile(`^interface conversion: interface \{\} is ` + goType +
		`, not ` + goType + `$`)
	argument = regexp.MustCompile(`\(type ` + goType + `\)`)
	goPrefix = regexp.MustCompile(`runtime error: |reflect\.Value\.\w+: |strconv\.\w+: parsing `)
)

// goType matches the name of a type in Go.
const goType = `(<nil>|nil|bool|int|float64|string|time\.\w+|\[\]\S+(?: \{\})?|` +
	`map\[\S+?(?: \{\})?\]\S+(?: \{\})?|func\(.*\).*)`

// article returns words for a type of the expr library. Example: "a number" for int.
func article(t string) string {
	switch t {
	case "string":
		return "text"
	case "int", "float64":
		return "a number"
	case "bool":
		return "true or false"
	case "nil", "<nil>":
		return "null"
	case "time.Time":
		return "a time"
	case "time.Duration":
		return "a duration"
	}
	switch {
	case strings.HasPrefix(t, "[]"):
		return "a list"
	case strings.HasPrefix(t, "map["):
		return "an object"
	case strings.HasPrefix(t, "func("):
		return "a function"
	}
	return "of type " + t
}
