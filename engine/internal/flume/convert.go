//penstock:pure

package flume

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

type converter struct {
	agent    *agent
	notes    []Note
	progress []Progress
	yaml     strings.Builder
	broken   int            // routes without a sink
	files    map[string]int // file sinks by path, which only one route may write
	told     map[*part]bool // sink groups of which a note was made
}

func (c *converter) note(p *part, key string, w Weight, format string, args ...any) {
	n := Note{Key: c.agent.name + "." + p.kind + "." + p.name, Weight: w, Text: fmt.Sprintf(format, args...)}
	if key != "" {
		n.Key += "." + key
		n.Line = p.line(key)
	}
	c.notes = append(c.notes, n)
}

// put writes one line of the config, indented by depth steps.
func (c *converter) put(depth int, format string, args ...any) {
	c.yaml.WriteString(strings.Repeat("  ", depth))
	fmt.Fprintf(&c.yaml, format, args...)
	c.yaml.WriteByte('\n')
}

func (c *converter) convert() {
	c.files, c.told = make(map[string]int), make(map[*part]bool)
	c.put(0, "# Made from the Flume agent %s by `penstock import flume`. Read what it said before the first start.", c.agent.name)
	c.put(0, "state: ./state")
	c.put(0, "pipelines:")
	if len(c.agent.sources) == 0 {
		c.broken++
	}
	names := make(map[string]bool)
	for _, s := range c.agent.sources {
		c.source(s, unique(names, s.name))
	}
	for _, ch := range c.agent.channels {
		c.channel(ch)
	}
	for _, list := range [][]*part{c.agent.sources, c.agent.sinks, c.agent.groups} {
		for _, p := range list {
			for _, key := range p.unused() {
				c.note(p, key, Lost, "%s", "is not known here")
			}
		}
	}
}

// unique makes a name of the form that penstock wants of what Flume allows.
func unique(taken map[string]bool, name string) string {
	var b strings.Builder
	for _, r := range strings.ToLower(name) {
		if r >= 'a' && r <= 'z' || r >= '0' && r <= '9' || r == '-' || r == '_' {
			b.WriteRune(r)
		} else {
			b.WriteByte('-')
		}
	}
	const longest = 56 // of the 64 that a name may have, so that a number fits behind it
	s := b.String()[:min(b.Len(), longest)]
	for n := 2; taken[s]; n++ {
		s = fmt.Sprintf("%s-%d", strings.TrimRight(b.String()[:min(b.Len(), longest)], "-"), n)
	}
	taken[s] = true
	return s
}

// quote writes a text as a YAML scalar.
func quote(s string) string {
	// ${ would be a variable.
	return strings.ReplaceAll(strconv.Quote(s), "${", "$${")
}

func quotes(list []string) string {
	out := make([]string, len(list))
	for i, s := range list {
		out[i] = quote(s)
	}
	return "[" + strings.Join(out, ", ") + "]"
}

// source writes a pipeline.
func (c *converter) source(s *part, name string) {
	kind, before := s.get("type"), len(c.progress)
	c.put(1, "%s:", name)
	switch strings.ToLower(kind) {
	case "spooldir", "org.apache.flume.source.spooldirectorysource":
		c.spooldir(s)
	case "taildir", "org.apache.flume.source.taildir.taildirsource":
		c.taildir(s)
	case "exec", "org.apache.flume.source.execsource":
		if !c.tailCommand(s) {
			return
		}
	default:
		c.noSource(s, "type", "a source %q does not exist here; penstock reads files (spool_dir, tail)", kind)
		return
	}
	c.processors(s)
	c.routes(s)
	if n := len(c.progress); n > before {
		c.progress[n-1].Pipeline, c.progress[n-1].Routes = name, c.routeNames(s)
	}
}

// routeNames are the routes of a source: main is the name of an only one.
func (c *converter) routeNames(s *part) []string {
	channels := strings.Fields(s.get("channels"))
	if len(channels) < 2 {
		return []string{"main"}
	}
	names, taken := make([]string, 0, len(channels)), make(map[string]bool)
	for _, ch := range channels {
		names = append(names, unique(taken, ch))
	}
	return names
}

// noSource writes a pipeline that cannot run: validate names what is missing.
func (c *converter) noSource(s *part, key, format string, args ...any) {
	c.broken++
	c.put(2, "# no source: Flume's was %s", s.get("type"))
	c.note(s, key, Lost, format, args...)
	for key := range s.set {
		s.used[key] = true // one note says it for all of them
	}
	c.put(2, "sink: drop")
}

// tailCommand knows the usual exec source, tail -F.
func (c *converter) tailCommand(s *part) bool {
	words := strings.Fields(s.get("command"))
	if len(words) < 3 || words[0] != "tail" || !slices.Contains(words, "-F") && !slices.Contains(words, "-f") {
		c.noSource(s, "command", "an exec source does not exist here, as what its command prints while the agent is down is lost; "+
			"write its output to a file and use tail")
		return false
	}
	file := words[len(words)-1]
	c.put(2, "source:")
	c.put(3, "tail:")
	c.put(4, "include: [%s]", quote(file))
	c.put(4, "start: end")
	c.note(s, "command", Differs, "tail reads %s itself: over rotation, and from its checkpoint after a restart", file)
	for _, key := range []string{"restart", "restartThrottle", "logStdErr", "batchSize", "batchTimeout",
		"shell", "channels", "selector.type"} {
		s.has(key)
	}
	return true
}

// channel says what becomes of a channel.
func (c *converter) channel(ch *part) {
	kind := ch.get("type")
	switch strings.ToLower(kind) {
	case "memory":
		c.note(ch, "type", Needless, "the files themselves are the queue, and a checkpoint says how far each is delivered; a kill "+
			"loses nothing")
	case "file":
		c.note(ch, "type", Needless, "the files themselves are the queue; but what is in this channel at the moment is not carried "+
			"over: stop the agent's sources first, and the agent when the channel is empty")
	default:
		c.note(ch, "type", Lost, "a channel %q does not exist here: what other programs put into it or take from it is not reached", kind)
	}
}

// sinksOf returns the sinks that drain a channel.
func (c *converter) sinksOf(channel string) []*part {
	var out []*part
	for _, k := range c.agent.sinks {
		if k.get("channel") == channel {
			out = append(out, k)
		}
	}
	return out
}

// routes writes the sinks of a source: a route for each of its channels.
func (c *converter) routes(s *part) {
	channels := strings.Fields(s.get("channels"))
	if s.has("selector.type") && strings.EqualFold(s.get("selector.type"), "multiplexing") {
		s.below("selector")
		c.note(s, "selector.type", Lost, "%s", "a multiplexing selector looks at headers, which records here do not have: every "+
			"route gets every record; give each a `where`")
	}
	if s.has("selector.optional") {
		c.note(s, "selector.optional", Differs, "%s", "each route has its own checkpoint, and one that is stuck holds up no other")
	}
	switch len(channels) {
	case 0:
		c.broken++
		c.note(s, "channels", Lost, "%s", "the source has no channel, and so no sink")
	case 1:
		c.sink(s, channels[0], 2, "")
	default:
		c.put(2, "routes:")
		names := make(map[string]bool)
		for _, ch := range channels {
			route := unique(names, ch)
			c.put(3, "%s:", route)
			c.sink(s, ch, 4, route)
		}
	}
}
