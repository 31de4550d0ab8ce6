//penstock:pure

package flume

import (
	"fmt"
	"slices"
	"strings"

	"github.com/penstock-io/penstock/engine/internal/migrate"
)

type converter struct {
	agent    *agent
	notes    []migrate.Note
	progress []progress         // of the current source
	stored   []migrate.Progress // of all sources
	names    migrate.Names      // of pipelines
	yaml     migrate.Writer
	broken   int            // number of routes without a sink
	files    map[string]int // file sinks by path; only one route may write to a path
	told     map[*part]bool // sink groups that have a note already
}

func (c *converter) note(p *part, key string, k migrate.Kind, format string, args ...any) {
	n := migrate.Note{Key: c.agent.name + "." + p.kind + "." + p.name, Kind: k,
		Text: fmt.Sprintf(format, args...)}
	if key != "" {
		n.Key += "." + key
		n.Line = p.line(key)
	}
	c.notes = append(c.notes, n)
}

// put writes a line of the config, indented by depth levels.
func (c *converter) put(
	depth int,
	format string,
	args ...any,
) {
	c.yaml.Put(depth, format, args...)
}

func (c *converter) convert() {
	c.files, c.told = make(map[string]int), make(map[*part]bool)
	c.put(0, "# Converted from the Flume agent %s by `penstock import flume`. Read its "+
		"notes before the first start.", c.agent.name)
	c.put(0, "state: ./state")
	c.put(0, "pipelines:")
	if len(c.agent.sources) == 0 {
		c.broken++
	}
	for _, s := range c.agent.sources {
		c.source(s, c.names.Unique(s.name))
	}
	for _, ch := range c.agent.channels {
		c.channel(ch)
	}
	for _, list := range [][]*part{c.agent.sources, c.agent.sinks, c.agent.groups} {
		for _, p := range list {
			for _, key := range p.unused() {
				c.note(p, key, migrate.Lost, "%s", "is not a known option")
			}
		}
	}
}

func quote(s string) string { return migrate.Quote(s) }

func quotes(list []string) string {
	out := make([]string, len(list))
	for i, s := range list {
		out[i] = quote(s)
	}
	return "[" + strings.Join(out, ", ") + "]"
}

// source writes a pipeline for a source.
func (c *converter) source(s *part, name string) {
	kind := s.get("type")
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
		c.noSource(s, "type", "penstock has no source %q; "+
			"penstock reads files (spool_dir, tail)", kind)
		return
	}
	c.processors(s)
	c.routes(s)
	for _, p := range c.progress {
		p.pipeline = name
		c.stored = append(c.stored, migrate.Progress{Pipeline: name, Routes: c.routeNames(s),
			Carry: p.carry})
	}
	c.progress = nil
}

// routeNames returns the names of the routes of a source. If there is only one route, its name is
// main.
func (c *converter) routeNames(s *part) []string {
	channels := strings.Fields(s.get("channels"))
	if len(channels) < 2 {
		return []string{"main"}
	}
	var taken migrate.Names
	names := make([]string, 0, len(channels))
	for _, ch := range channels {
		names = append(names, taken.Unique(ch))
	}
	return names
}

// noSource writes a pipeline without a source. `penstock validate` will ask for one.
func (c *converter) noSource(s *part, key, format string, args ...any) {
	c.broken++
	c.put(2, "# no source: Flume's was %s", s.get("type"))
	c.note(s, key, migrate.Lost, format, args...)
	for key := range s.set {
		s.used[key] = true // one note is enough for all settings of the source
	}
	c.put(2, "sink: drop")
}

// tailCommand converts an exec source with the usual command, tail -F.
func (c *converter) tailCommand(s *part) bool {
	words := strings.Fields(s.get("command"))
	if len(words) < 3 || words[0] != "tail" || !slices.Contains(words, "-F") &&
		!slices.Contains(words, "-f") {
		c.noSource(s, "command", "not converted, because the command's output is lost while "+
			"the agent is down; write the output to a file and use tail")
		return false
	}
	file := words[len(words)-1]
	c.put(2, "source:")
	c.put(3, "tail:")
	c.put(4, "include: [%s]", quote(file))
	c.put(4, "start: end")
	c.note(
		s,
		"command",
		migrate.Differs,
		"the source tail reads %s itself, follows rotation, and resumes "+
			"at its checkpoint",
		file,
	)
	for _, key := range []string{"restart", "restartThrottle", "logStdErr", "batchSize",
		"batchTimeout",
		"shell", "channels", "selector.type"} {
		s.has(key)
	}
	return true
}

// channel adds notes about a channel.
func (c *converter) channel(ch *part) {
	kind := ch.get("type")
	switch strings.ToLower(kind) {
	case "memory":
		c.note(
			ch,
			"type",
			migrate.Unneeded,
			"penstock has no channel: unread data stays in the files, "+
				"and the checkpoint has the position in each; a kill loses nothing",
		)
	case "file":
		c.note(ch, "type", migrate.Unneeded, "penstock has no channel: unread data stays "+
			"in the files. Data in this channel is not imported: stop the agent's sources "+
			"first, and the agent when the channel is empty")
	default:
		c.note(ch, "type", migrate.Lost, "penstock has no channel %q, and cannot "+
			"exchange data with other programs through it", kind)
	}
}

// sinksOf returns the sinks that read from a channel.
func (c *converter) sinksOf(channel string) []*part {
	var out []*part
	for _, k := range c.agent.sinks {
		if k.get("channel") == channel {
			out = append(out, k)
		}
	}
	return out
}

// routes writes the routes of a source. There is one route for each channel.
func (c *converter) routes(s *part) {
	channels := strings.Fields(s.get("channels"))
	if s.has("selector.type") && strings.EqualFold(s.get("selector.type"), "multiplexing") {
		s.below("selector")
		c.note(s, "selector.type", migrate.Lost, "%s",
			"records have no headers for a multiplexing selector: every route gets every "+
				"record; add a `where` to each")
	}
	if s.has("selector.optional") {
		c.note(s, "selector.optional", migrate.Differs, "%s",
			"each route has its own checkpoint, so a stuck route delays no other")
	}
	switch len(channels) {
	case 0:
		c.broken++
		c.note(s, "channels", migrate.Lost, "%s", "the source has no channel, so it has no sink")
	case 1:
		c.sink(s, channels[0], 2, "")
	default:
		c.put(2, "routes:")
		var names migrate.Names
		for _, ch := range channels {
			route := names.Unique(ch)
			c.put(3, "%s:", route)
			c.sink(s, ch, 4, route)
		}
	}
}
