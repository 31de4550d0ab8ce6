//penstock:pure

package trial

import (
	"encoding/json"
	"strings"
)

// Change is a change of one field of a record. Before is empty if the field was added. After is
// empty if it was removed.
type Change struct {
	Name          string
	Before, After string // values as JSON
}

// Diff returns the changes between two states of a record. Removed fields come first. The others
// follow in the order of the later record. A text that is not a JSON object counts as an object
// without fields.
func Diff(before, after string) []Change {
	old, now := members(before), members(after)
	values := make(map[string]string, len(old))
	for _, m := range old {
		values[m.name] = m.value
	}
	kept := make(map[string]bool, len(now))
	for _, m := range now {
		kept[m.name] = true
	}
	var all []Change
	for _, m := range old {
		if !kept[m.name] {
			all = append(all, Change{Name: m.name, Before: m.value})
		}
	}
	for _, m := range now {
		if was := values[m.name]; was != m.value {
			all = append(all, Change{Name: m.name, Before: was, After: m.value})
		}
	}
	return all
}

type member struct{ name, value string }

// members returns the members of a JSON object in order. It returns nil if text is not an object.
func members(text string) (all []member) {
	d := json.NewDecoder(strings.NewReader(text))
	if t, err := d.Token(); err != nil || t != json.Delim('{') {
		return nil
	}
	for d.More() {
		name, err := d.Token()
		if err != nil {
			return nil
		}
		var value json.RawMessage
		if err := d.Decode(&value); err != nil {
			return nil
		}
		all = append(all, member{name.(string), string(value)})
	}
	if _, err := d.Token(); err != nil { // the closing brace
		return nil
	}
	return all
}

// String returns the change as a line: `+ a: 1`, `- a`, or `~ a: 1 -> 2`.
func (c Change) String() string {
	switch {
	case c.Before == "":
		return "+ " + c.Name + ": " + c.After
	case c.After == "":
		return "- " + c.Name
	}
	return "~ " + c.Name + ": " + c.Before + " -> " + c.After
}
