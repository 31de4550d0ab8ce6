package config

import (
	"slices"
	"strings"

	"github.com/penstock-io/penstock/backoff"
	"github.com/penstock-io/penstock/backoff/compat"
	"go.yaml.in/yaml/v4"
)

// policyKey is the former name of retry.backoff for a policy.
const policyKey = "policy"

// backoffTable is the key of a policy that is a list of waits.
const backoffTable = "table"

// isShape reports whether text, a value of retry.backoff, is exponential or fixed. Any other value
// is a whole policy. Such a policy replaces the keys base, max and jitter, which must then not be
// set.
func isShape(text string) bool { return text == "exponential" || text == "fixed" }

// RetryPolicy returns the policy that determines the waits of batches.
func (r Retry) RetryPolicy() (backoff.Policy, error) {
	p := backoff.Exponential(r.Base, 2, r.Max)
	switch {
	case !isShape(r.Backoff) && r.Backoff != "":
		return compat.Parse(r.Backoff)
	case r.Backoff == "fixed":
		return backoff.Fixed(r.Base), nil
	case r.Jitter == "none":
		return p, nil
	}
	return p.Full(), nil
}

// retryNode returns the value of the key `retry` in its present form: former keys are renamed, and
// a table in `backoff` is converted to text. It returns nil after an error.
func retryNode(l *loader, n *yaml.Node) *yaml.Node {
	if n.Kind != yaml.MappingNode {
		return n
	}
	out := *n
	out.Content = slices.Clone(n.Content)
	policy, shape := valueOf(n, policyKey), valueOf(n, "backoff")
	if policy != nil && shape != nil {
		bothNames(l, policy, "retry.policy")
		return nil
	}
	if policy != nil {
		formerName(l, policy, "retry.policy")
	}
	for i := 0; i+1 < len(out.Content); i += 2 {
		key, value := *out.Content[i], out.Content[i+1]
		if key.Value == policyKey {
			key.Value = "backoff"
		}
		if key.Value == "backoff" && value.Kind != yaml.ScalarNode {
			if value = tableNode(l, value); value == nil {
				return nil
			}
		}
		out.Content[i], out.Content[i+1] = &key, value
	}
	return &out
}

// tableNode converts the mapping {table: [15s, 1m]} to the text of a policy. After an error, which
// it records, it returns nil.
func tableNode(l *loader, n *yaml.Node) *yaml.Node {
	list := valueOf(n, backoffTable)
	if n.Kind != yaml.MappingNode || len(n.Content) != 2 || list == nil ||
		list.Kind != yaml.SequenceNode {
		l.fail(n, "retry.backoff takes a policy as text, or a list of waits").Hint =
			"such as {table: [15s, 1m, 10m]}"
		return nil
	}
	if len(list.Content) == 0 {
		l.fail(list, "retry.backoff.table is empty").Hint = "such as {table: [15s, 1m, 10m]}"
		return nil
	}
	var waits []string
	for _, w := range list.Content {
		if w.Kind != yaml.ScalarNode || strings.ContainsAny(w.Value, ", ;()") || w.Value == "" {
			l.fail(w, "retry.backoff.table is a list of durations, but this is not a "+
				"duration").Hint =
				"such as 15s or 10m"
			return nil
		}
		waits = append(waits, w.Value)
	}
	text := *n
	text.Kind, text.Tag, text.Content = yaml.ScalarNode, "!!str", nil
	text.Value = "table delays=" + strings.Join(waits, ",")
	return &text
}

// backoffSchema returns the schema of retry, including the forms that retryNode converts.
func backoffSchema(retry object) object {
	const doc = "exponential, by base, max and jitter; or fixed, always base; or a policy as printed " +
		"by penstock backoff; or a table of waits"
	durations := object{{"type", "array"}, {"items", object{{"type", "string"}}}, {"minItems", 1}}
	table := object{
		{"type", "object"}, {"properties", object{{backoffTable, durations}}},
		{"required", []string{backoffTable}},
		{"additionalProperties", false},
	}
	out := slices.Clone(retry)
	for i := range out {
		properties, ok := out[i].value.(object)
		if out[i].key != "properties" || !ok {
			continue
		}
		properties = slices.Clone(properties)
		for k := range properties {
			if properties[k].key == "backoff" {
				properties[k].value = anyOf(object{{"type", "string"}}, table).with("description",
					doc).with("default", "exponential")
			}
		}
		out[i].value = append(properties, member{policyKey, object{
			{"type", "string"}, {"deprecated", true}, {"description", "former name of backoff"},
		}})
	}
	return out
}

// retryPolicy checks a policy in text form. The first two waits must not both be 0. Otherwise a
// failed batch would be sent again without a pause.
func (c check) retryPolicy(spec string) {
	name := "backoff"
	if c.given("retry", policyKey) {
		name = policyKey
	}
	for _, key := range replacedByPolicy {
		if c.given("retry", key) {
			c.wrong("retry", key, "retry.%s has no effect beside retry.%s; remove one of them",
				key, name)
		}
	}
	p, err := compat.Parse(spec)
	if err != nil {
		c.wrong("retry", name, "retry.%s: %v", name, err)
		return
	}
	_, _, first := backoff.Bounds(p, 0)
	if _, _, second := backoff.Bounds(p, 1); first == 0 && second == 0 {
		c.wrong("retry", name, "retry.%s %q waits 0; a failed batch would be sent again "+
			"without a pause", name, spec)
	}
}
