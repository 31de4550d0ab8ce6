//penstock:pure

package fluentbit

import (
	"fmt"
	"strings"

	"github.com/penstock-io/penstock/engine/internal/migrate"
)

// config is a configuration in either format. Names are in lower case.
type config struct {
	service                  *migrate.Value
	inputs, filters, outputs []*migrate.Value
	includes                 []*migrate.Value // globs of other files
	others                   []*migrate.Value
}

// parse reads a configuration. Its format is the classic one if its first line, apart from comments
// and empty lines, begins with [ or @. Otherwise its format is YAML.
func parse(text string) (config, error) {
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		if strings.HasPrefix(line, "[") || strings.HasPrefix(line, "@") {
			return parseClassic(text)
		}
		break
	}
	return parseYAML(text)
}

// parseClassic reads sections in brackets, each followed by lines of a name and a value.
func parseClassic(text string) (config, error) {
	var c config
	var section *migrate.Value
	variables := readVariables(text)
	n := 0
	for raw := range strings.Lines(text) {
		n++
		line := strings.TrimSpace(raw)
		switch {
		case line == "" || strings.HasPrefix(line, "#"):
			continue
		case strings.HasPrefix(line, "@"):
			if _, ok := cutFold(line, setCommand); ok {
				continue
			}
			name, value, _ := strings.Cut(strings.Replace(line, "\t", " ", 1), " ")
			v := migrate.NewText(name, n, strings.TrimSpace(value))
			if strings.EqualFold(name, "@INCLUDE") {
				c.includes = append(c.includes, v)
			} else {
				c.others = append(c.others, v)
			}
			continue
		case strings.HasPrefix(line, "["):
			name, ok := strings.CutSuffix(line[1:], "]")
			if !ok {
				return c, fmt.Errorf("line %d: %q is not a section: want [NAME]", n, line)
			}
			section = c.section(strings.ToLower(strings.TrimSpace(name)), n)
			continue
		}
		if section == nil {
			return c, fmt.Errorf("line %d: %q is before the first section", n, line)
		}
		name, value, _ := strings.Cut(strings.Replace(line, "\t", " ", 1), " ")
		value, err := variables.expand(strings.TrimSpace(value))
		if err != nil {
			return c, fmt.Errorf("line %d: %w", n, err)
		}
		add(section, strings.ToLower(name), n, value)
	}
	return c, nil
}

// setCommand is the beginning of a line that sets a variable: @SET NAME=VALUE.
const setCommand = "@SET "

// maxExpanded is the maximum size of the expanded values of a configuration, in bytes.
const maxExpanded = 16 << 20

// variables are set by lines of the form @SET NAME=VALUE.
type variables struct {
	values   map[string]string
	expanded int // total size of the values that expand has returned
}

// readVariables returns the variables of a configuration. They hold for all of its lines.
func readVariables(text string) variables {
	v := variables{values: make(map[string]string)}
	for line := range strings.Lines(text) {
		if rest, ok := cutFold(strings.TrimSpace(line), setCommand); ok {
			name, value, _ := strings.Cut(rest, "=")
			v.values[strings.TrimSpace(name)] = strings.TrimSpace(value)
		}
	}
	return v
}

// expand replaces each ${NAME} in text by the value of the variable NAME, if it is set. Like Fluent
// Bit, it does not expand variables within the values.
func (v *variables) expand(text string) (string, error) {
	var b strings.Builder
	for {
		before, rest, begins := strings.Cut(text, "${")
		name, after, ends := strings.Cut(rest, "}")
		if !begins || !ends {
			b.WriteString(text)
			v.expanded += b.Len()
			return b.String(), nil
		}
		value, isSet := v.values[name]
		if !isSet {
			value = "${" + name + "}"
		}
		b.WriteString(before + value)
		if v.expanded+b.Len() > maxExpanded {
			return "", fmt.Errorf("with its variables expanded, the configuration is larger than "+
				"%d bytes", maxExpanded)
		}
		text = after
	}
}

func cutFold(s, prefix string) (string, bool) {
	if len(s) < len(prefix) || !strings.EqualFold(s[:len(prefix)], prefix) {
		return s, false
	}
	return s[len(prefix):], true
}

// add adds a value to a section. A name that occurs several times, such as Regex, becomes a list.
func add(section *migrate.Value, name string, line int, value string) {
	v := migrate.NewText(section.Key+"."+name, line, value)
	if old := section.Get(name); old != nil {
		v = migrate.NewList(old.Key, old.Line, append(old.List(), v)...)
	}
	section.Set(name, v)
}

func (c *config) section(name string, line int) *migrate.Value {
	v := migrate.NewGroup(strings.ToUpper(name), line)
	v.Get() // mark the section as read, because notes are about its settings
	switch name {
	case "service":
		c.service = v
	case "input":
		c.inputs = append(c.inputs, v)
	case "filter":
		c.filters = append(c.filters, v)
	case "output":
		c.outputs = append(c.outputs, v)
	default:
		c.others = append(c.others, v)
	}
	return v
}

// parseYAML reads the YAML format. It has a section service, and a section pipeline with inputs,
// filters and outputs.
func parseYAML(text string) (config, error) {
	top, err := migrate.ParseYAML(text, false)
	if err != nil {
		return config{}, err
	}
	c := config{service: top.Get("service").LowerNames(), includes: top.List("includes")}
	for _, part := range []struct {
		name string
		into *[]*migrate.Value
	}{{"inputs", &c.inputs}, {"filters", &c.filters}, {"outputs", &c.outputs}} {
		for _, v := range top.List("pipeline", part.name) {
			*part.into = append(*part.into, v.LowerNames())
		}
	}
	if len(c.inputs)+len(c.outputs)+len(c.includes) == 0 {
		return c, fmt.Errorf("it has neither a section in brackets nor a pipeline, so it is not " +
			"a configuration of Fluent Bit")
	}
	for _, name := range top.Names() {
		if name != "service" && name != "pipeline" && name != "includes" && name != "env" {
			c.others = append(c.others, top.Get(name))
		}
	}
	return c, nil
}
