//penstock:pure

package flume

import (
	"cmp"
	"path"
	"slices"
	"strconv"
	"strings"

	"github.com/penstock-io/penstock/engine/internal/migrate"
)

// sink writes the sink of a route, which replaces the sinks of a channel. If the first supported
// sink is an HTTP sink, all HTTP sinks of the channel are combined, into an http or a failover
// sink. Otherwise only the first supported sink is written.
func (c *converter) sink(s *part, channel string, depth int, route string) {
	sinks := c.sinksOf(channel)
	var usable []*part
	for _, k := range sinks {
		if sinkKind(k) == "" {
			c.note(k, "type", migrate.Lost, "penstock has no sink %q", k.Text("type"))
			k.IgnoreAll()
			continue
		}
		usable = append(usable, k)
	}
	if len(usable) == 0 {
		c.Broken++
		c.Put(depth, "# no sink: add one. Flume's channel %s had %s", channel, described(sinks))
		if len(sinks) == 0 {
			c.note(s, "channels", migrate.Lost, "channel %s has no sink", channel)
		}
		return
	}
	group := c.failoverGroup(usable)
	if group == nil {
		c.grouped(usable)
	}
	first := usable[0]
	c.Put(depth, "sink:")
	kind := sinkKind(first)
	if group != nil {
		kind = "failover"
		c.failoverSink(group, usable, depth+1)
	}
	switch kind {
	case "drop":
		c.Put(depth+1, "drop: {}")
	case "file":
		c.fileSink(first, depth+1, route)
	case "http":
		c.httpSink(usable, depth+1)
	}
	for _, k := range usable[1:] {
		if sinkKind(k) != "http" || sinkKind(first) != "http" {
			c.note(k, "channel", migrate.Differs,
				"several sinks shared the data of channel %s; "+
					"sink %s gets all of it here",
				channel, first.name)
		}
	}
	if sinkKind(first) == "http" {
		c.Put(depth, "batch: { records: 1 } # one request per record, as in Flume; "+
			"larger batches are much faster if the receiver accepts several lines")
	}
}

const statusHandling = "2xx means delivered; 408, 425, 429 and 5xx are retried; " +
	"400, 413 and 422 make dead letters; any other status pauses the worker until the cause " +
	"is fixed (docs/sinks-http.md)"

func described(sinks []*part) string {
	if len(sinks) == 0 {
		return "none"
	}
	var out []string
	for _, k := range sinks {
		out = append(out, k.name+" ("+k.Text("type")+")")
	}
	return strings.Join(out, ", ")
}

// sinkKind returns the name of the component that replaces a sink, or "" if there is none.
func sinkKind(k *part) string {
	switch strings.ToLower(k.Text("type")) {
	case "null", "org.apache.flume.sink.nullsink":
		return "drop"
	case "file_roll", "org.apache.flume.sink.rollingfilesink":
		return "file"
	case "http", "org.apache.flume.sink.http.httpsink":
		return "http"
	}
	return ""
}

// grouped adds notes about the processors of the sink groups that contain one of the sinks.
func (c *converter) grouped(sinks []*part) {
	for _, g := range c.agent.groups {
		members := strings.Fields(g.Text("sinks"))
		isMember := func(k *part) bool { return slices.Contains(members, k.name) }
		if c.told[g] || !slices.ContainsFunc(sinks, isMember) {
			continue
		}
		c.told[g] = true
		switch strings.ToLower(g.Text("processor.type")) {
		case "failover":
			c.note(g, "processor.type", migrate.Differs, "%s",
				"there are no priorities: all sinks work concurrently, each at its own speed, "+
					"and a failing one gets only probes")
		case "load_balance":
			c.note(g, "processor.type", migrate.Differs, "%s",
				"each sink is a worker with its own window; the next batch goes to the worker "+
					"that is expected to finish it first (flow.dispatch)")
		}
		g.below("processor")
	}
}

func (c *converter) fileSink(k *part, depth int, route string) {
	dir := k.Text("sink.directory")
	if dir == "" {
		c.note(k, "sink.directory", migrate.Lost, "%s", "is missing: set path to the file")
	}
	name := k.name
	if c.files[path.Join(dir, name)]++; c.files[path.Join(dir, name)] > 1 {
		name += "-" + route + strconv.Itoa(c.files[path.Join(dir, k.name)])
		c.note(k, "channel", migrate.Differs, "two routes would write to one file: the second "+
			"writes to %s", name+".log")
	}
	file := path.Join(dir, name+".log")
	c.Put(depth, "file:")
	c.Put(depth+1, "path: %s", migrate.Quote(file))
	c.Put(depth+1, "format: raw")
	if k.Text("sink.rollInterval") != "0" {
		c.note(k, "sink.rollInterval", migrate.Differs,
			"all records go to %s, which is not rotated by time", file)
	}
	if kind := k.Text("sink.serializer"); kind != "" && !strings.EqualFold(kind, "TEXT") {
		c.note(k, "sink.serializer", migrate.Lost,
			"penstock has no %s: the record's bytes and a line end are written", kind)
	}
	k.Ignore("batchSize", "sink.batchSize", "sink.pathManager", "sink.pathManager.extension",
		"sink.pathManager.prefix", "sink.serializer.appendNewline")
}

// httpShared are options that all endpoints of an http sink share, with Flume's defaults.
var httpShared = []struct{ key, header, byDefault string }{
	{"contentTypeHeader", "Content-Type", "text/plain"},
	{"acceptHeader", "Accept", "text/plain"},
	{"connectTimeout", "", "5000"},
}

func (c *converter) httpSink(sinks []*part, depth int) {
	sinks = slices.DeleteFunc(slices.Clone(sinks), func(k *part) bool {
		return sinkKind(k) != "http"
	})
	first := sinks[0]
	var endpoints []string
	for _, k := range sinks {
		if e := k.Text("endpoint"); e != "" {
			endpoints = append(endpoints, e)
		} else {
			c.note(k, "endpoint", migrate.Lost, "%s", "is missing: add the URL to endpoints")
		}
		for _, o := range httpShared {
			if cmp.Or(k.Text(o.key), o.byDefault) != cmp.Or(first.Text(o.key), o.byDefault) {
				c.note(k, o.key, migrate.Differs, "the endpoints of the new sink share this "+
					"option, and have the value of sink %s", first.name)
			}
		}
		c.httpRest(k)
	}
	c.Put(depth, "http:")
	c.Put(depth+1, "endpoints: %s", quotes(endpoints))
	c.Put(depth+1, "body: raw")
	var headers []string
	for _, o := range httpShared {
		if v := first.Text(o.key); v != "" && o.header != "" {
			headers = append(headers, o.header+": "+migrate.Quote(v))
		}
	}
	if len(headers) > 0 {
		c.Put(depth+1, "headers: { %s }", strings.Join(headers, ", "))
	}
	if n, err := strconv.Atoi(first.Text("connectTimeout")); err == nil && n > 0 {
		c.Put(depth+1, "connect_timeout: %dms", n)
	}
}

// httpRest handles the remaining options of an HTTP sink. It adds notes about the request timeout
// and the reactions to status codes, which have no exact equivalent. It marks the other known
// options as read, because they need no note.
func (c *converter) httpRest(k *part) {
	k.Ignore("batchSize")
	c.Note(k.Get("requestTimeout"), migrate.Differs, "the timeout adapts to the measured round "+
		"trips; flow.timeout fixes it, and flow.abandon bounds each attempt")
	keys := []string{"defaultBackoff", "defaultRollback", "defaultIncrementMetrics"}
	for _, prefix := range []string{"backoff", "rollback", "incrementMetrics"} {
		keys = append(keys, k.below(prefix)...)
	}
	for _, key := range keys {
		c.Note(k.Get(key), migrate.Differs, statusHandling)
	}
}
