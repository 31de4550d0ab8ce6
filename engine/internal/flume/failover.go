//penstock:pure

package flume

import (
	"cmp"
	"slices"
	"strconv"
	"strings"

	"github.com/penstock-io/penstock/engine/internal/migrate"
)

// failoverGroup returns the sink group that consists of exactly these sinks and has the processor
// failover. With this processor, the next sink is used if one fails. failoverGroup returns nil if
// there is no such group, if there is only one sink, or if a sink is not an HTTP sink.
func (c *converter) failoverGroup(sinks []*part) *part {
	for _, s := range sinks {
		if sinkKind(s) != "http" {
			return nil
		}
	}
	for _, g := range c.agent.groups {
		if !strings.EqualFold(g.Text("processor.type"), "failover") || len(sinks) < 2 {
			continue
		}
		members := strings.Fields(g.Text("sinks"))
		outside := func(s *part) bool { return !slices.Contains(members, s.name) }
		if len(members) == len(sinks) && !slices.ContainsFunc(sinks, outside) {
			return g
		}
	}
	return nil
}

// failoverSink writes the sinks of a failover group. The sink with the highest priority comes
// first.
func (c *converter) failoverSink(g *part, sinks []*part, depth int) {
	priority := func(s *part) int {
		n, err := strconv.Atoi(g.Text("processor.priority." + s.name))
		if err != nil && !c.told[g] {
			c.note(g, "processor.type", migrate.Differs,
				"sink %s has no numeric priority; check the order of failover", s.name)
		}
		return n
	}
	ordered := slices.Clone(sinks)
	slices.SortStableFunc(ordered, func(a, b *part) int {
		return cmp.Compare(priority(b), priority(a))
	})
	c.Put(depth, "failover:")
	for _, s := range ordered {
		c.Put(depth+1, "-")
		c.httpSink([]*part{s}, depth+2)
	}
	if !c.told[g] {
		c.note(g, "processor.type", migrate.Differs, "%s",
			"a sink is down while its breaker is open, after a few consecutive failures; single "+
				"batches probe it at intervals of 0.5 s to 30 s (docs/sink-failover.md)")
	}
	c.told[g] = true
	g.below("processor")
}
