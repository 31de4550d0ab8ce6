//penstock:pure

package flume

import (
	"slices"
	"strings"

	"github.com/penstock-io/penstock/engine/internal/migrate"
)

type converter struct {
	*migrate.Builder
	agent  *agent
	stored []progress     // of the current source
	files  map[string]int // file sinks by path; only one route may write to a path
	told   map[*part]bool // sink groups that have a note already
}

// note adds a note about a property of p, which may be missing.
func (c *converter) note(p *part, key string, k migrate.Kind, format string, args ...any) {
	if p.Get(key) == nil {
		c.Note(p.text(key, property{}), k, format, args...)
	} else {
		c.Note(p.Get(key), k, format, args...)
	}
}

func (c *converter) convert() {
	for _, s := range c.agent.sources {
		c.source(s, c.Unique(s.name))
	}
	for _, ch := range c.agent.channels {
		c.channel(ch)
	}
	for _, list := range [][]*part{c.agent.sources, c.agent.sinks, c.agent.groups} {
		for _, p := range list {
			for _, v := range p.Unread() {
				c.Note(v, migrate.Lost, "is not a known option")
			}
		}
	}
}

func quotes(list []string) string {
	out := make([]string, len(list))
	for i, s := range list {
		out[i] = migrate.Quote(s)
	}
	return "[" + strings.Join(out, ", ") + "]"
}

// source writes a pipeline for a source.
func (c *converter) source(s *part, name string) {
	kind := s.Text("type")
	c.Put(1, "%s:", name)
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
	routes := c.routes(s)
	for _, p := range c.stored {
		p.pipeline = name
		c.Progress = append(c.Progress, migrate.Progress{Pipeline: name, Routes: routes,
			Carry: p.carry})
	}
	c.stored = nil
}

// noSource writes a pipeline without a source. `penstock validate` will ask for one.
func (c *converter) noSource(s *part, key, format string, args ...any) {
	c.Broken++
	c.Put(2, "# no source: Flume's was %s", s.Text("type"))
	c.note(s, key, migrate.Lost, format, args...)
	s.IgnoreAll() // one note is enough for all settings of the source
	c.Put(2, "sink: drop")
}

// tailCommand converts an exec source with the usual command, tail -F.
func (c *converter) tailCommand(s *part) bool {
	words := strings.Fields(s.Text("command"))
	if len(words) < 3 || words[0] != "tail" || !slices.Contains(words, "-F") &&
		!slices.Contains(words, "-f") {
		c.noSource(s, "command", "not converted, because the command's output is lost while "+
			"the agent is down; write the output to a file and use tail")
		return false
	}
	file := words[len(words)-1]
	c.Put(2, "source:")
	c.Put(3, "tail:")
	c.Put(4, "include: [%s]", migrate.Quote(file))
	c.Put(4, "start: end")
	c.note(s, "command", migrate.Differs, "the source tail reads %s itself, follows rotation, "+
		"and resumes at its checkpoint", file)
	s.Ignore("restart", "restartThrottle", "logStdErr", "batchSize", "batchTimeout", "shell",
		"channels", "selector.type")
	return true
}

// channel adds notes about a channel.
func (c *converter) channel(ch *part) {
	kind := ch.Text("type")
	switch strings.ToLower(kind) {
	case "memory":
		c.note(ch, "type", migrate.Unneeded, "penstock has no channel: unread data stays in the "+
			"files, and the checkpoint has the position in each; a kill loses nothing")
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
		if k.Text("channel") == channel {
			out = append(out, k)
		}
	}
	return out
}

// routes writes the routes of a source, one for each channel, and returns their names. If there is
// only one route, its name is main.
func (c *converter) routes(s *part) []string {
	channels := strings.Fields(s.Text("channels"))
	if strings.EqualFold(s.Text("selector.type"), "multiplexing") {
		s.below("selector")
		c.note(s, "selector.type", migrate.Lost, "%s",
			"records have no headers for a multiplexing selector: every route gets every "+
				"record; add a `where` to each")
	}
	c.Note(s.Get("selector.optional"), migrate.Differs, "each route has its own checkpoint, so a "+
		"stuck route delays no other")
	switch len(channels) {
	case 0:
		c.Broken++
		c.note(s, "channels", migrate.Lost, "%s", "the source has no channel, so it has no sink")
	case 1:
		c.sink(s, channels[0], 2, "")
	default:
		c.Put(2, "routes:")
		var taken migrate.Names
		var names []string
		for _, ch := range channels {
			route := taken.Unique(ch)
			names = append(names, route)
			c.Put(3, "%s:", route)
			c.sink(s, ch, 4, route)
		}
		return names
	}
	return []string{"main"}
}
