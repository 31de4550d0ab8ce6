package flow

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"go.yaml.in/yaml/v4"

	"github.com/penstock-io/penstock/engine/internal/config"
)

// form reads YAML nodes strictly. Its methods return readers of one value, or the first error with its place.
type form struct{ path string }

// fields are the keys that a mapping may have.
type fields map[string]func(*yaml.Node) error

func (f *form) fail(n *yaml.Node, format string, args ...any) error {
	e := &FormError{File: f.path, Message: fmt.Sprintf(format, args...)}
	if n != nil {
		e.Line, e.Column = n.Line, n.Column
	}
	return e
}

func (f *form) unknown(n *yaml.Node, what string, names []string) error {
	if near := config.Nearest(n.Value, names); near != "" {
		return f.fail(n, "%q is no key of %s; did you mean %q?", n.Value, what, near)
	}
	slices.Sort(names)
	return f.fail(n, "%q is no key of %s; there is: %s", n.Value, what, strings.Join(names, ", "))
}

// pairs calls read with each key and value, and refuses what is no mapping or says a key twice.
func (f *form) pairs(n *yaml.Node, what string, read func(key, value *yaml.Node) error) error {
	if n.Kind != yaml.MappingNode {
		return f.fail(n, "%s must be a mapping of keys and values", what)
	}
	seen := map[string]int{}
	for i := 0; i+1 < len(n.Content); i += 2 {
		key, value := n.Content[i], n.Content[i+1]
		if line, twice := seen[key.Value]; twice {
			return f.fail(key, "%q is given twice; the first is in line %d", key.Value, line)
		}
		seen[key.Value] = key.Line
		if key.Kind != yaml.ScalarNode || value.Kind == yaml.AliasNode {
			return f.fail(key, "keys are text and values stand where they belong; aliases are not followed here")
		}
		if err := read(key, value); err != nil {
			return err
		}
	}
	return nil
}

func (f *form) mapping(n *yaml.Node, what string, keys fields) error {
	return f.pairs(n, what, func(key, value *yaml.Node) error {
		read, ok := keys[key.Value]
		if !ok {
			names := make([]string, 0, len(keys))
			for name := range keys {
				names = append(names, name)
			}
			slices.Sort(names)
			return f.unknown(key, what, names)
		}
		return read(value)
	})
}

func (f *form) list(n *yaml.Node, what string, read func(*yaml.Node) error) error {
	if n.Kind != yaml.SequenceNode || len(n.Content) == 0 {
		return f.fail(n, "%s must be a list", what)
	}
	for _, c := range n.Content {
		if err := read(c); err != nil {
			return err
		}
	}
	return nil
}

func (f *form) text(to *string) func(*yaml.Node) error {
	return func(n *yaml.Node) error {
		if n.Kind != yaml.ScalarNode {
			return f.fail(n, "this must be text")
		}
		*to = n.Value
		return nil
	}
}

func (f *form) yes(n *yaml.Node) error {
	if n.Kind != yaml.ScalarNode || n.Value != "true" {
		return f.fail(n, "write true")
	}
	return nil
}

func (f *form) duration(to *time.Duration, lowest, highest time.Duration) func(*yaml.Node) error {
	return func(n *yaml.Node) error {
		d, err := time.ParseDuration(n.Value)
		if n.Kind != yaml.ScalarNode || err != nil {
			return f.fail(n, "%q is not a duration such as 10ms or 120s", n.Value)
		}
		if d < lowest || d > highest {
			return f.fail(n, "%v is out of range: %v to %v", d, lowest, highest)
		}
		*to = d
		return nil
	}
}

func (f *form) number(to *float64, lowest, highest float64) func(*yaml.Node) error {
	return func(n *yaml.Node) error {
		v, err := strconv.ParseFloat(n.Value, 64)
		if n.Kind != yaml.ScalarNode || err != nil || math.IsNaN(v) {
			return f.fail(n, "%q is not a number", n.Value)
		}
		if v < lowest || v > highest {
			if lowest == math.SmallestNonzeroFloat64 {
				return f.fail(n, "%g is out of range: more than 0, at most %g", v, highest)
			}
			return f.fail(n, "%g is out of range: %g to %g", v, lowest, highest)
		}
		*to = v
		return nil
	}
}

func (f *form) whole(to *int, lowest, highest int) func(*yaml.Node) error {
	return func(n *yaml.Node) error {
		v, err := strconv.Atoi(n.Value)
		if n.Kind != yaml.ScalarNode || err != nil {
			return f.fail(n, "%q is not a whole number", n.Value)
		}
		if v < lowest || v > highest {
			return f.fail(n, "%d is out of range: %d to %d", v, lowest, highest)
		}
		*to = v
		return nil
	}
}
