//penstock:pure

package backoff

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Settings are the keys and values of one policy in a text. [ParseWith] passes them to the function
// for this policy, which calls a method of Settings for each key that it knows. Afterwards
// ParseWith returns an error if the text has a key that was not asked for. If there are several
// errors, it returns only the first one.
type Settings struct {
	policy string
	values map[string]string
	known  []string
	err    error
}

// Policy returns the name of the policy.
func (k *Settings) Policy() string { return k.policy }

// Fail adds an error in the settings. Only the first error is reported.
func (k *Settings) Fail(err error) {
	if k.err == nil {
		k.err = err
	}
}

// Text returns the value of a key, or false if the key is not given.
func (k *Settings) Text(key string) (string, bool) {
	if !slices.Contains(k.known, key) {
		k.known = append(k.known, key)
	}
	value, ok := k.values[key]
	return value, ok
}

// finish returns the first error of the settings, such as an unknown key. The parameter words has
// the settings in the order of the text.
func (k *Settings) finish(words []string) error {
	for _, word := range words {
		key, _, _ := strings.Cut(word, "=")
		if !slices.Contains(k.known, key) {
			return fmt.Errorf("unknown key %q: %s has %s", key, k.policy,
				strings.Join(k.known, ", "))
		}
	}
	return k.err
}

// Duration returns the value of a key, a duration of 0 or more, or false if the key is not given.
func (k *Settings) Duration(key string) (time.Duration, bool) {
	text, ok := k.Text(key)
	if !ok {
		return 0, false
	}
	d, err := parseDuration(text)
	if err != nil {
		k.Fail(fmt.Errorf("%s %w", key, err))
	}
	return d, true
}

func parseDuration(text string) (time.Duration, error) {
	d, err := time.ParseDuration(text)
	if err != nil {
		return 0, fmt.Errorf("%q: want a duration such as 250ms or 1h30m, at most 2562047h", text)
	}
	if d < 0 {
		return 0, fmt.Errorf("%v is negative", d)
	}
	return d, nil
}

// must returns the value of a required key, a duration. If the key is missing, it records an error.
func (k *Settings) must(key string) time.Duration {
	d, ok := k.Duration(key)
	if !ok {
		k.Fail(fmt.Errorf("%s is missing", key))
	}
	return d
}

// cap returns the value of the key max. It returns missing if the key is not given, and 0 for
// max=none.
func (k *Settings) cap(missing time.Duration) time.Duration {
	if k.values["max"] == "none" {
		k.Text("max")
		return 0
	}
	d, ok := k.Duration("max")
	if !ok {
		return missing
	}
	if d == 0 {
		k.Fail(errors.New("max is 0: no cap is max=none"))
	}
	return d
}

// Float returns the value of a key, a number. It returns missing if the key is not given.
func (k *Settings) Float(key string, missing float64) float64 {
	text, ok := k.Text(key)
	if !ok {
		return missing
	}
	f, err := strconv.ParseFloat(text, 64)
	if err != nil {
		k.Fail(fmt.Errorf("%s %q: want a number", key, text))
	}
	return f
}

// Number returns the value of a key, a whole number of at most 2^32-1, or false if the key is not
// given. The parameter least is the lowest valid number.
func (k *Settings) Number(key string, least int) (int, bool) {
	text, ok := k.Text(key)
	if !ok {
		return 0, false
	}
	n, err := parseCount(text, least)
	if err != nil {
		k.Fail(fmt.Errorf("%s %w", key, err))
	}
	return n, true
}

// jitter returns l with the jitter mode that the keys jitter and width select.
func (k *Settings) jitter(l Ladder) Policy {
	name, given := k.Text("jitter")
	_, wide := k.Text("width")
	width := k.Float("width", 0)
	if needs := name == "proportional" || name == "additive"; wide && !needs {
		k.Fail(errors.New("width is for jitter=proportional and jitter=additive"))
	} else if needs && !wide {
		k.Fail(fmt.Errorf("width is missing: jitter=%s needs one, such as width=0.2", name))
	}
	switch name {
	case "none":
		return l.Plain()
	case "full":
		return l.Full()
	case "equal":
		return l.Equal()
	case "proportional":
		return l.Proportional(width)
	case "additive":
		return l.Additive(width)
	}
	if given {
		k.Fail(fmt.Errorf("jitter %q: want none, full, equal, proportional or additive", name))
	}
	return l
}

func (k *Settings) delays() []time.Duration {
	text, ok := k.Text("delays")
	if !ok {
		k.Fail(errors.New("delays is missing"))
		return nil
	}
	var list []time.Duration
	for i, part := range strings.Split(text, ",") {
		d, err := parseDuration(part)
		if err != nil {
			k.Fail(fmt.Errorf("delays: number %d, %w", i+1, err))
			return nil
		}
		list = append(list, d)
	}
	return list
}

func (k *Settings) points() []Point {
	text, ok := k.Text("points")
	if !ok {
		k.Fail(errors.New("points is missing"))
		return nil
	}
	var list []Point
	for part := range strings.SplitSeq(text, ",") {
		from, delay, ok := strings.Cut(part, ":")
		n, err := strconv.ParseUint(from, 10, 32)
		if !ok || err != nil {
			k.Fail(fmt.Errorf("points: %q: want step:delay, such as 5:1s", part))
			return nil
		}
		d, err := parseDuration(delay)
		if err != nil {
			k.Fail(fmt.Errorf("points: step %d, %w", n, err))
			return nil
		}
		list = append(list, Point{uint32(n), d})
	}
	return list
}
