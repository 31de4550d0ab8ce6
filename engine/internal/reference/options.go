package main

import (
	"fmt"
	"slices"
	"strings"

	"go.yaml.in/yaml/v4"
)

// optionsPage returns a page with a table of options for each part of a config. It is generated
// from the JSON Schema.
func optionsPage(schema []byte) (string, error) {
	var document yaml.Node
	if err := yaml.Unmarshal(schema, &document); err != nil {
		return "", fmt.Errorf("parse the schema: %w", err)
	}
	root := document.Content[0]
	defs := get(root, "$defs")
	p := optionPage{}
	p.text.WriteString("# Every option\n\n" + generated +
		"This page lists the options of each part of a config with their values, defaults and " +
		"meanings. [Configuration](../configuration.md) explains how the parts fit together, " +
		"and the [reference](../README.md#reference) has pages of the sources and sinks. " +
		"`penstock schema` prints a JSON Schema of the config for editors.\n")
	p.section("The config", root)
	p.section("Pipelines and routes", get(defs, "route"))
	for _, kind := range []string{"source", "processor", "sink"} {
		alternatives := get(get(defs, kind), "anyOf")
		if alternatives == nil {
			return "", fmt.Errorf("the schema has no components of the kind %s", kind)
		}
		for _, one := range alternatives.Content {
			components := get(one, "properties")
			if components == nil {
				continue
			}
			for i := 0; i+1 < len(components.Content); i += 2 {
				name := components.Content[i].Value
				p.section(strings.ToUpper(kind[:1])+kind[1:]+" `"+name+"`", components.Content[i+1])
			}
		}
	}
	return p.text.String(), nil
}

type optionPage struct {
	text strings.Builder
	rows int
}

// section writes a table with the options of an object.
func (p *optionPage) section(title string, object *yaml.Node) {
	fmt.Fprintf(&p.text, "\n## %s\n\n", title)
	start := p.text.Len()
	p.text.WriteString("| option | values | default | meaning |\n| --- | --- | --- | --- |\n")
	before := p.rows
	p.options("", object)
	if p.rows == before { // omit a table without rows
		text := p.text.String()[:start]
		p.text.Reset()
		p.text.WriteString(text + "It has no named options.\n")
	}
}

// options writes a row for each property of an object and of the objects in it.
func (p *optionPage) options(prefix string, object *yaml.Node) {
	for _, o := range variants(object) {
		properties := get(o, "properties")
		if properties == nil {
			continue
		}
		required := names(get(o, "required"))
		for i := 0; i+1 < len(properties.Content); i += 2 {
			key, value := properties.Content[i].Value, properties.Content[i+1]
			if deprecated := get(value, "deprecated"); deprecated != nil {
				continue // former names are in docs/renames.md
			}
			if prefix == "" &&
				slices.Contains([]string{"pipelines", "processors", "sink", "routes"}, key) {
				continue // these are in other sections
			}
			fallback := valueText(get(value, "default"))
			if slices.Contains(required, key) {
				fallback = "required"
			}
			fmt.Fprintf(&p.text, "| `%s%s` | %s | %s | %s |\n", prefix, key, cell(valuesOf(value)),
				fallback,
				cell(meaning(value)))
			p.rows++
			p.options(prefix+key+".", value)
			for _, v := range variants(value) {
				if items := get(v, "items"); items != nil {
					p.options(prefix+key+"[].", items)
				}
			}
		}
	}
}

// meaning returns the description in a schema. If there is none, it returns the first description
// among the alternatives of the schema, or "".
func meaning(n *yaml.Node) string {
	for _, one := range append([]*yaml.Node{n}, variants(n)...) {
		if text := scalar(get(one, "description")); text != "" {
			return text
		}
	}
	return ""
}

// variants returns the alternatives of a schema (anyOf). If an alternative has alternatives itself,
// variants returns these in its place. A schema without alternatives is returned as its only
// variant. References are not resolved.
func variants(n *yaml.Node) (all []*yaml.Node) {
	alternatives := get(n, "anyOf")
	if alternatives == nil {
		return []*yaml.Node{n}
	}
	for _, one := range alternatives.Content {
		all = append(all, variants(one)...)
	}
	return all
}

// valuesOf returns a description of the values that a schema accepts.
func valuesOf(n *yaml.Node) string {
	var all []string
	for _, v := range variants(n) {
		text := ""
		switch ref := scalar(get(v, "$ref")); {
		case strings.HasSuffix(ref, "/variable"):
			continue // every option accepts a variable
		case ref != "":
			text = ref[strings.LastIndexByte(ref, '/')+1:]
		case get(v, "enum") != nil:
			text = "`" + strings.Join(names(get(v, "enum")), "`, `") + "`"
		case get(v, "items") != nil:
			text = "list"
		default:
			text = typeText(names(get(v, "type")))
		}
		if !slices.Contains(all, text) {
			all = append(all, text)
		}
	}
	return strings.Join(all, "; ")
}

func typeText(types []string) string {
	switch {
	case slices.Contains(types, "object"):
		return "mapping"
	case slices.Contains(types, "string"):
		return "text"
	}
	return strings.Join(types, ", ")
}

// valueText returns a default value as it is written in a config, or "" if there is no default.
func valueText(n *yaml.Node) string {
	if n == nil || n.Kind == yaml.ScalarNode && n.Value == "" {
		return ""
	}
	if n.Kind == yaml.SequenceNode {
		return "`[" + strings.Join(names(n), ", ") + "]`"
	}
	return "`" + n.Value + "`"
}

// get returns the value of a key of a mapping, or nil.
func get(n *yaml.Node, key string) *yaml.Node {
	if n == nil || n.Kind != yaml.MappingNode {
		return nil
	}
	for i := 0; i+1 < len(n.Content); i += 2 {
		if n.Content[i].Value == key {
			return n.Content[i+1]
		}
	}
	return nil
}

func scalar(n *yaml.Node) string {
	if n == nil {
		return ""
	}
	return n.Value
}

// names returns the scalars in a list. If n is a scalar, it returns this scalar.
func names(n *yaml.Node) (all []string) {
	switch {
	case n == nil:
	case n.Kind == yaml.ScalarNode:
		all = append(all, n.Value)
	default:
		for _, one := range n.Content {
			all = append(all, one.Value)
		}
	}
	return all
}
