package config

import (
	"cmp"
	"encoding"
	"fmt"
	"math"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"go.yaml.in/yaml/v4"

	"github.com/penstock-io/penstock/stream"
)

// decodeScalar decodes text into v, according to the type of v only. For example, a password 0123
// stays text, although it is a number to YAML.
func (l *loader) decodeScalar(n *yaml.Node, v reflect.Value, o option) bool {
	if n.Kind != yaml.ScalarNode {
		e := l.fail(n, "%s wants %s, but this is %s", o.name, wanted(v.Type()),
			article(kindName(n)))
		if n.Style&yaml.FlowStyle != 0 && v.Kind() == reflect.String && !o.secret {
			_, rest := l.lineAt(n.Line, n.Column)
			e.Hint = "if it is text, quote it: " + quoted(bracketed(rest))
		}
		return false
	}
	before := len(l.errs)
	if l.checkCut(n, o.expression, o.secret); len(l.errs) > before {
		return false
	}
	text, fromFile, ok := l.expand(n)
	if !ok {
		return false
	}
	shown := show(n, text, o.secret || fromFile)
	if o.secret || fromFile {
		l.hide(text)
	}
	if err := setScalar(v, text, shown); err != nil {
		l.fail(n, "%s: %v", o.name, err)
		return false
	}
	if err := checkBounds(v, o, shown); err != nil {
		l.fail(n, "%s: %v", o.name, err)
		return false
	}
	if v.Kind() != reflect.String {
		return true
	}
	if !l.checkEnum(n, text, shown, o) {
		return false
	}
	if o.path || o.glob && isRelativeGlob(text) {
		v.SetString(l.resolve(text))
	}
	return !o.alone || l.claim(n, o, v.String())
}

func (l *loader) checkEnum(n *yaml.Node, text, shown string, o option) bool {
	if o.enum == nil || slices.Contains(o.enum, text) {
		return true
	}
	e := l.fail(n, "%s: there is no %s; want %s", o.name, shown, choice(o.enum))
	if near := Nearest(text, o.enum); near != "" {
		e.Hint = fmt.Sprintf("did you mean %q?", near)
	}
	return false
}

// checkBounds returns an error if a number or duration is outside the bounds of its option.
func checkBounds(v reflect.Value, o option, shown string) error {
	for _, b := range []struct {
		text, word string
		outside    int
	}{{o.min, "less", -1}, {o.max, "more", 1}} {
		if b.text == "" {
			continue
		}
		bound := reflect.New(v.Type()).Elem()
		if err := setScalar(bound, b.text, b.text); err != nil {
			panic(fmt.Sprintf("config: BUG: a bound of %s: %v", o.name, err))
		}
		if compareNumbers(v, bound) == b.outside {
			return fmt.Errorf("%s is %s than %s", shown, b.word, b.text)
		}
	}
	return nil
}

// compareNumbers compares two values of the same numeric type.
func compareNumbers(a, b reflect.Value) int {
	switch {
	case a.CanInt():
		return cmp.Compare(a.Int(), b.Int())
	case a.CanUint():
		return cmp.Compare(a.Uint(), b.Uint())
	}
	return cmp.Compare(a.Float(), b.Float())
}

// claim reserves a path for an option, because only one option of the config may use the path. If
// another option has reserved it already, claim records an error and returns false.
func (l *loader) claim(n *yaml.Node, o option, path string) bool {
	key := path
	if abs, err := filepath.Abs(path); err == nil {
		key = abs
	}
	if first, taken := l.set.claims[key]; taken {
		l.fail(n, "%s: %s is taken by %s %s; two owners would destroy each other's data",
			o.name, path, first.what, inLine(l, first.where))
		return false
	}
	l.set.claims[key] = claim{o.name, l.place(n)}
	return true
}

// show returns a value for a message. It masks secrets. It also masks values from a file or a
// variable, because these are often secrets.
func show(n *yaml.Node, text string, hidden bool) string {
	switch {
	case text != n.Value || hidden && strings.Contains(n.Value, "${"):
		return fmt.Sprintf("what %q gives", n.Value)
	case hidden:
		return "the value"
	}
	return fmt.Sprintf("%q", maskURLs(text))
}

func wanted(t reflect.Type) string {
	switch {
	case t == durationType:
		return "a duration such as 200ms"
	case t == sizeType:
		return "a size such as 256KiB"
	}
	switch t.Kind() {
	case reflect.Bool:
		return "true or false"
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64,
		reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		return "a whole number"
	case reflect.Float32, reflect.Float64:
		return "a number"
	}
	return "text"
}

// setScalar parses text into v. Its own errors quote shown instead of text, which may be secret.
func setScalar(v reflect.Value, text, shown string) error {
	if v.Type() == durationType {
		d, err := parseDuration(text, shown)
		v.SetInt(int64(d))
		return err
	}
	if v.Type() == sizeType {
		s, err := stream.ParseSize(text)
		if err != nil {
			return fmt.Errorf("%s is not a size; write a number with a unit, such as 256KiB or "+
				"1MB, below 8EiB",
				shown)
		}
		v.SetInt(int64(s))
		return nil
	}
	if u, ok := v.Addr().Interface().(encoding.TextUnmarshaler); ok {
		return u.UnmarshalText([]byte(text))
	}
	switch v.Kind() {
	case reflect.String:
		v.SetString(text)
		return nil
	case reflect.Bool:
		if text != "true" && text != "false" {
			return fmt.Errorf("%s is not true or false", shown)
		}
		v.SetBool(text == "true")
		return nil
	case reflect.Float32, reflect.Float64:
		f, err := strconv.ParseFloat(text, 64)
		if err != nil || math.IsNaN(f) || math.IsInf(f, 0) || v.OverflowFloat(f) {
			return fmt.Errorf("%s is not a number", shown)
		}
		v.SetFloat(f)
		return nil
	}
	return setWhole(v, text, shown)
}

func setWhole(v reflect.Value, text, shown string) error {
	digits := strings.TrimPrefix(text, "-")
	if len(digits) > 1 && digits[0] == '0' && onlyDigits.MatchString(digits) {
		return fmt.Errorf("%s starts with 0, which some programs read as octal; remove the "+
			"0", shown)
	}
	if v.CanUint() {
		u, err := strconv.ParseUint(text, 10, v.Type().Bits())
		if err != nil {
			return fmt.Errorf("%s is not a whole number from 0 to %d", shown,
				uint64(math.MaxUint64)>>(64-v.Type().Bits()))
		}
		v.SetUint(u)
		return nil
	}
	if !v.CanInt() {
		panic(fmt.Sprintf("config: BUG: no way to decode into %v", v.Type()))
	}
	i, err := strconv.ParseInt(text, 10, v.Type().Bits())
	if err != nil {
		return fmt.Errorf("%s is not a whole number", shown)
	}
	v.SetInt(i)
	return nil
}

var (
	onlyDigits = regexp.MustCompile(`^[0-9]+$`)
	bareNumber = regexp.MustCompile(`^-?[0-9]+(\.[0-9]+)?$`)
	// hugeDuration matches a duration that is refused only because its number is too large.
	hugeDuration = regexp.MustCompile(`^([0-9]+(\.[0-9]+)?(ns|us|µs|ms|s|m|h))+$`)
	wordyUnit    = regexp.MustCompile(
		`^([0-9.]+)\s*(d|day|days|sec|secs|second|seconds|min|mins|minute|minutes|hour|hours|msec|w)$`)
)

// parseDuration parses a duration, which must not be negative. If the unit is missing, the error
// suggests units.
func parseDuration(text, shown string) (time.Duration, error) {
	if bareNumber.MatchString(text) && text != "0" {
		return 0, fmt.Errorf("%s has no unit; write %ss or %sms", shown, text, text)
	}
	d, err := time.ParseDuration(text)
	switch {
	case err != nil && wordyUnit.MatchString(text):
		return 0, fmt.Errorf("%s is not a duration; the units are ns, us, ms, s, m and h", shown)
	case err != nil && hugeDuration.MatchString(text):
		return 0, fmt.Errorf("%s is too long; a duration is at most 2562047h, 292 years", shown)
	case err != nil:
		return 0, fmt.Errorf("%s is not a duration; write a number with a unit, such as 200ms, "+
			"5s or 1h30m", shown)
	case d < 0:
		return 0, fmt.Errorf("%s is negative", shown)
	}
	return d, nil
}
