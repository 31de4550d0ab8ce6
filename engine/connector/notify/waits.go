package notify

import (
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/penstock-io/penstock/backoff"
	"github.com/penstock-io/penstock/engine/kit/expr"
	"github.com/penstock-io/penstock/engine/kit/parked"
)

// Waits is the option schedule. It is a list of waits, a backoff policy, or an expression that
// returns the record's own schedule.
type Waits struct {
	List   []time.Duration `yaml:",list"`
	Policy string          // in the syntax of penstock backoff; "" for none
	Of     expr.Text       // the record's own schedule; an empty result means the default
}

// Expression marks the text as an expression for the config reader; see [expr.Text].
func (*Waits) Expression() {}

// UnmarshalText reads a policy or an expression. If a text can be both, it is a policy. A text of
// the form NAME KEY=VALUE cannot be an expression, so it is a policy even if it has a mistake.
// Options.Validate then reports the mistake.
func (w *Waits) UnmarshalText(text []byte) error {
	*w = Waits{}
	if _, err := backoff.Parse(string(text)); err == nil || policyForm.Match(text) {
		w.Policy = string(text)
	} else {
		w.Of = expr.Text(text)
	}
	return nil
}

var policyForm = regexp.MustCompile(`^\s*[a-z_0-9]+\s+[a-z_]+=[^=]`)

// MarshalText returns the policy, the expression, or the list.
func (w Waits) MarshalText() ([]byte, error) {
	switch {
	case w.Policy != "":
		return []byte(w.Policy), nil
	case w.Of != "":
		return []byte(w.Of), nil
	}
	return fmt.Append(nil, w.List), nil
}

// waitsOf returns the waits between the attempts of a backoff policy. It returns an error if the
// policy has no end within parked.MaxAttempts.
func waitsOf(spec string) (waits []time.Duration, err error) {
	policy, err := backoff.Parse(spec)
	if err != nil {
		return nil, err
	}
	for n, wait := range backoff.Delays(policy, nil) {
		if n >= parked.MaxAttempts {
			return nil, fmt.Errorf("has no end within %d attempts; add a limit", parked.MaxAttempts)
		}
		waits = append(waits, wait)
	}
	return waits, nil
}

// parseWaits parses a record's own schedule: waits separated by spaces or commas, a JSON array of
// waits, or a policy. Numbers without a unit are seconds. For an empty text, it returns nil, which
// means the schedule of the route.
func parseWaits(text string) (waits []time.Duration, err error) {
	text = strings.TrimSpace(text)
	switch {
	case text == "":
		return nil, nil
	case text[0] == '[':
		waits, err = jsonWaits(text)
	case strings.IndexByte("0123456789.", text[0]) >= 0:
		waits, err = listedWaits(text)
	default:
		waits, err = waitsOf(text)
	}
	if err != nil {
		return nil, err
	}
	for i := range waits {
		waits[i] = waits[i].Truncate(time.Millisecond) // the store has milliseconds
	}
	return waits, parked.Schedule{Waits: waits}.Validate()
}

func listedWaits(text string) (waits []time.Duration, err error) {
	isSeparator := func(r rune) bool { return r == ' ' || r == ',' }
	for word := range strings.FieldsFuncSeq(text, isSeparator) {
		if strings.Trim(word, "0123456789.") == "" {
			word += "s"
		}
		wait, err := time.ParseDuration(word)
		if err != nil {
			return nil, fmt.Errorf("%.20q is not a duration such as 15s", word)
		}
		waits = append(waits, wait)
	}
	return waits, nil
}

// jsonWaits parses a JSON array of waits. An empty array means a single attempt.
func jsonWaits(text string) ([]time.Duration, error) {
	var items []any
	if err := json.Unmarshal([]byte(text), &items); err != nil {
		return nil, errors.New("is not a JSON array")
	}
	words := make([]string, len(items))
	for i, item := range items {
		words[i] = fmt.Sprint(item)
	}
	waits, err := listedWaits(strings.Join(words, " "))
	if len(waits) != len(items) && err == nil {
		err = errors.New("has an item that is not a wait")
	}
	return append([]time.Duration{}, waits...), err
}

// maxCachedWaits bounds the number of schedules in each waitsCache.
const maxCachedWaits = 256

// waitsCache has the parsed schedules of recent records, because many records have the same
// schedule.
type waitsCache map[string][]time.Duration

func (c waitsCache) get(text string) ([]time.Duration, error) {
	if waits, ok := c[text]; ok {
		return waits, nil
	}
	waits, err := parseWaits(text)
	if err != nil {
		return nil, fmt.Errorf("schedule: %w", err)
	}
	if len(c) >= maxCachedWaits {
		clear(c)
	}
	c[text] = slices.Clip(waits)
	return waits, nil
}
