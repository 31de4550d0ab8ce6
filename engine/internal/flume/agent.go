//penstock:pure

package flume

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/penstock-io/penstock/engine/internal/migrate"
)

// part is a source, channel, sink or sink group of an agent. In the key a1.sources.s1.type, s1 is
// the name of the part, and type is the name of a setting of it.
type part struct {
	*migrate.Value
	name string
}

// text returns a property as a setting.
func (p *part) text(key string, from property) *migrate.Value {
	return migrate.NewText(p.Key+"."+key, from.line, from.value)
}

// agent is an agent that a properties file declares.
type agent struct {
	name                             string
	sources, channels, sinks, groups []*part
}

// agents groups properties by agent. AGENT.sources = NAMES declares the sources of an agent, and
// AGENT.sources.NAME.KEY sets a property of the source NAME. Channels, sinks and sink groups work
// in the same way.
func agents(all []property) map[string]*agent {
	out := make(map[string]*agent)
	for _, p := range all {
		name, rest, ok := strings.Cut(p.key, ".")
		if !ok || name == "" {
			continue
		}
		a := out[name]
		if a == nil {
			a = &agent{name: name}
			out[name] = a
		}
		for kind, list := range a.lists() {
			if rest == kind {
				for n := range strings.FieldsSeq(p.value) {
					group := migrate.NewGroup(name+"."+kind+"."+n, 0)
					group.Get() // mark it as read, because notes are about its settings
					*list = append(*list, &part{group, n})
				}
			}
		}
	}
	for _, p := range all {
		if name, rest, ok := strings.Cut(p.key, "."); ok && out[name] != nil {
			out[name].put(rest, p)
		}
	}
	for name, a := range out {
		if len(a.sources)+len(a.channels)+len(a.sinks) == 0 {
			delete(out, name)
		}
	}
	return out
}

func (a *agent) lists() map[string]*[]*part {
	return map[string]*[]*part{"sources": &a.sources, "channels": &a.channels, "sinks": &a.sinks,
		"sinkgroups": &a.groups}
}

// put assigns a property to the source, channel, sink or sink group that it belongs to. rest is the
// key of the property without the name of the agent. Example: for the key a1.sources.s1.type, rest
// is sources.s1.type, and the property is assigned to the source s1. A property of a part that is
// not declared is ignored.
func (a *agent) put(rest string, p property) {
	kind, rest, _ := strings.Cut(rest, ".")
	list := a.lists()[kind]
	if list == nil || rest == "" {
		return
	}
	for _, part := range *list {
		if key, ok := strings.CutPrefix(rest, part.name+"."); ok {
			part.Set(key, part.text(key, p))
		}
	}
}

// below returns the keys of the part that begin with prefix and a dot. It marks them as read, so
// that they are not reported as settings that cannot be converted.
func (p *part) below(prefix string) (keys []string) {
	for _, key := range p.Names() {
		if strings.HasPrefix(key, prefix+".") {
			p.Ignore(key)
			keys = append(keys, key)
		}
	}
	return keys
}

// choose returns the agent with the given name or, if name is "", the only agent.
func choose(all map[string]*agent, name string) (*agent, error) {
	names := slices.Sorted(maps.Keys(all))
	switch {
	case len(all) == 0:
		return nil, fmt.Errorf("the file declares no agent: a Flume configuration has lines " +
			"such as AGENT.sources = NAME")
	case name == "" && len(all) == 1:
		return all[names[0]], nil
	case name == "":
		return nil, fmt.Errorf("the file declares several agents (%s): select one with --agent",
			strings.Join(names, ", "))
	case all[name] == nil:
		return nil, fmt.Errorf("the file declares no agent %q, only %s", name,
			strings.Join(names, ", "))
	}
	return all[name], nil
}
