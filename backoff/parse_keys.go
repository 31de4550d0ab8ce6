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

// keys are the settings of one policy as text. A reader takes what it knows; the first fault is kept, and what is left
// in the end is unknown.
type keys struct {
	policy string
	values map[string]string
	known  []string
	err    error
}

func (k *keys) fail(err error) {
	if k.err == nil {
		k.err = err
	}
}

// take removes and returns the value of key.
func (k *keys) take(key string) (string, bool) {
	if !slices.Contains(k.known, key) {
		k.known = append(k.known, key)
	}
	value, ok := k.values[key]
	return value, ok
}

// finish returns the first fault; words are the settings in their order.
func (k *keys) finish(words []string) error {
	for _, word := range words {
		key, _, _ := strings.Cut(word, "=")
		if !slices.Contains(k.known, key) {
			return fmt.Errorf("unknown key %q: %s has %s", key, k.policy, strings.Join(k.known, ", "))
		}
	}
	return k.err
}

func (k *keys) duration(key string) (time.Duration, bool) {
	text, ok := k.take(key)
	if !ok {
		return 0, false
	}
	d, err := parseDuration(text)
	if err != nil {
		k.fail(fmt.Errorf("%s %w", key, err))
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

// must is a duration that has to be there.
func (k *keys) must(key string) time.Duration {
	d, ok := k.duration(key)
	if !ok {
		k.fail(fmt.Errorf("%s is missing", key))
	}
	return d
}

// cap is max; left out it is missing, none is 0.
func (k *keys) cap(missing time.Duration) time.Duration {
	if k.values["max"] == "none" {
		k.take("max")
		return 0
	}
	d, ok := k.duration("max")
	if !ok {
		return missing
	}
	if d == 0 {
		k.fail(errors.New("max is 0: no cap is max=none"))
	}
	return d
}

func (k *keys) float(key string, missing float64) float64 {
	text, ok := k.take(key)
	if !ok {
		return missing
	}
	f, err := strconv.ParseFloat(text, 64)
	if err != nil {
		k.fail(fmt.Errorf("%s %q: want a number", key, text))
	}
	return f
}

// number is a whole number from least on.
func (k *keys) number(key string, least int) (int, bool) {
	text, ok := k.take(key)
	if !ok {
		return 0, false
	}
	n, err := strconv.ParseUint(text, 10, 31)
	if err != nil || int(n) < least {
		k.fail(fmt.Errorf("%s %q: want a whole number from %d to %d", key, text, least, 1<<31-1))
	}
	return int(n), true
}

// jitter reads jitter and width.
func (k *keys) jitter(l Ladder) Policy {
	name, given := k.take("jitter")
	_, wide := k.take("width")
	width := k.float("width", 0)
	if needs := name == "proportional" || name == "additive"; wide && !needs {
		k.fail(errors.New("width is for jitter=proportional and jitter=additive"))
	} else if needs && !wide {
		k.fail(fmt.Errorf("width is missing: jitter=%s needs one, such as width=0.2", name))
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
		k.fail(fmt.Errorf("jitter %q: want none, full, equal, proportional or additive", name))
	}
	return l
}

func (k *keys) delays() []time.Duration {
	text, ok := k.take("delays")
	if !ok {
		k.fail(errors.New("delays is missing"))
		return nil
	}
	var list []time.Duration
	for i, part := range strings.Split(text, ",") {
		d, err := parseDuration(part)
		if err != nil {
			k.fail(fmt.Errorf("delays: number %d, %w", i+1, err))
			return nil
		}
		list = append(list, d)
	}
	return list
}

func (k *keys) points() []Point {
	text, ok := k.take("points")
	if !ok {
		k.fail(errors.New("points is missing"))
		return nil
	}
	var list []Point
	for part := range strings.SplitSeq(text, ",") {
		from, delay, ok := strings.Cut(part, ":")
		n, err := strconv.ParseUint(from, 10, 32)
		if !ok || err != nil {
			k.fail(fmt.Errorf("points: %q: want step:delay, such as 5:1s", part))
			return nil
		}
		d, err := parseDuration(delay)
		if err != nil {
			k.fail(fmt.Errorf("points: step %d, %w", n, err))
			return nil
		}
		list = append(list, Point{uint32(n), d})
	}
	return list
}
