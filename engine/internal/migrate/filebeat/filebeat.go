// Package filebeat converts a configuration of Filebeat (7.9 and newer) to one of penstock. It
// converts the inputs filestream, log and container, and the outputs Elasticsearch, Kafka, file and
// console. The positions in Filebeat's registry become the first checkpoint of the new config.
//
// Options and their defaults are those of the Filebeat reference. The registry consists of a
// snapshot NNN.json and a log of later changes, log.json. The file active.dat contains the name of
// the current snapshot.
package filebeat

import (
	"cmp"
	"encoding/base64"
	"fmt"
	"net"
	"net/url"
	"path"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/penstock-io/penstock/engine/internal/migrate"
)

// Convert converts a filebeat.yml, which was read from file. If data is not "", it replaces
// path.data.
func Convert(text, file, data string) (migrate.Result, error) {
	top, err := migrate.ParseYAML(text, true)
	if err != nil {
		return migrate.Result{}, err
	}
	c := &converter{migrate.NewBuilder("Filebeat's config", "filebeat"), top,
		cmp.Or(data, top.Text("path", "data"), "/var/lib/filebeat"),
		cmp.Or(top.Text("path", "config"), filepath.Dir(file))}
	c.convert()
	return c.Result("filebeat", top), nil
}

type converter struct {
	*migrate.Builder
	top    *migrate.Value
	data   string
	folder string // of the config
}

func (c *converter) convert() {
	c.top.Ignore("path", "name", "logging", "setup", "monitoring", "http", "queue", "max_procs",
		"shutdown_timeout")
	routes := c.output()
	c.NoteLost(c.top.Get("processors"), "Filebeat's processors are not converted: see "+
		"docs/processors.md for penstock's")
	for i, in := range c.top.List("filebeat", "inputs") {
		c.input(in, i, routes)
	}
	for _, m := range c.top.List("filebeat", "modules") {
		c.NoteLostInput(m, "penstock has no modules: add an input for the module's files first")
	}
	if v := c.top.Get("filebeat", "autodiscover"); v != nil {
		c.NoteLostInput(v, "penstock does not discover containers: add an input for their "+
			"log files first")
	}
	c.included("inputs", "copy their inputs to filebeat.inputs, and import this file again")
	c.included("modules", "penstock has no modules: add an input for the module's files first")
	c.top.Get("filebeat").Ignore("registry", "shutdown_timeout")
}

// included adds a note about a setting that loads other files. remedy tells how to convert them.
func (c *converter) included(name, remedy string) {
	v := c.top.Get("filebeat", "config", name)
	if v == nil {
		return
	}
	files, on := v.Text("path"), v.Text("enabled")
	v.IgnoreAll()
	if on == "false" {
		c.Note(v, migrate.Unneeded, "is not enabled")
		return
	}
	c.NoteIncluded(v, c.folder, strings.TrimPrefix(files, "${path.config}/"), remedy)
}

// input converts one input.
func (c *converter) input(in *migrate.Value, n int, routes []migrate.Route) {
	kind := in.Text("type")
	if on := in.Text("enabled"); on == "false" {
		in.IgnoreAll()
		c.Note(in, migrate.Unneeded, "is not enabled")
		return
	}
	if kind != "filestream" && kind != "log" && kind != "container" {
		c.NoteLostInput(in, "the input %q is not converted: docs/README.md lists the sources of "+
			"penstock", kind)
		return
	}
	id := in.Text("id")
	p := migrate.Pipeline{Name: id, Routes: routes, Include: in.Texts("paths")}
	if p.Name == "" {
		p.Name = fmt.Sprintf("%s-%d", kind, n+1)
	}
	if len(p.Include) == 0 {
		c.Note(in, migrate.Lost, "has no paths: set include to the files")
	}
	c.names(in, &p)
	c.content(in, &p)
	c.records(in, &p)
	s := stored{kind: kind, id: id, include: p.Include, data: c.data,
		registry: c.top.Text("filebeat", "registry", "path"),
		utf16:    strings.HasPrefix(in.Text("encoding"), "utf-16"), fromEnd: p.FromEnd}
	s.fingerprint(in)
	p.Carry = s.carry
	c.Add(p)
}

// names converts the options that select files.
func (c *converter) names(in *migrate.Value, p *migrate.Pipeline) {
	list := append(in.List("exclude_files"), in.List("prospector", "scanner", "exclude_files")...)
	for _, v := range list {
		glob, ok := suffixGlob(v.Text())
		if !ok {
			c.Note(v, migrate.Lost, "%q is not a suffix, and cannot be converted to a glob: add "+
				"an exclude", v.Text())
			continue
		}
		p.Exclude = append(p.Exclude, glob)
	}
	if v := in.Get("prospector", "scanner", "include_files"); v != nil {
		c.Note(v, migrate.Lost, "penstock has no expressions over paths: narrow include")
		v.List()
	}
	p.FromEnd = in.IsTrue("tail_files")
	p.Symlinks = in.IsTrue("symlinks") || in.IsTrue("prospector", "scanner", "symlinks") ||
		in.Text("type") == "container"
	c.Note(in.Get("ignore_older"), migrate.Lost, "old files are read, too: move them away, or "+
		"narrow include")
	if v := in.Get("stream"); v != nil && v.Text() != "all" {
		c.Note(v, migrate.Lost, "records of both streams are delivered: select them by a where")
	}
	in.Ignore("scan_frequency", "close", "close_inactive", "close_renamed", "close_removed",
		"close_eof", "close_timeout", "clean_inactive", "clean_removed", "harvester_limit",
		"harvester_buffer_size", "backoff", "max_backoff", "backoff_factor", "file_identity",
		"buffer_size", "allow_deprecated_use", "prospector", "recursive_glob", "take_over",
		"rotation")
}

// suffixGlob converts an exclude_files pattern of the usual form `\.gz$` to a glob such as `*.gz`.
// ok is false for other patterns.
func suffixGlob(pattern string) (glob string, ok bool) {
	rest, anchored := strings.CutSuffix(pattern, "$")
	rest = strings.TrimPrefix(strings.TrimPrefix(rest, "^"), ".*")
	rest = strings.ReplaceAll(rest, `\.`, ".")
	if !anchored || rest == "" || strings.ContainsAny(rest, `\*+?()[]{}|^`) ||
		strings.Count(pattern, ".") != strings.Count(pattern, `\.`)+strings.Count(pattern, ".*") {
		return "", false
	}
	return "*" + rest, true
}

// content converts the options for the bytes of files.
func (c *converter) content(in *migrate.Value, p *migrate.Pipeline) {
	switch e := in.Text("encoding"); e {
	case "", "plain", "utf-8":
	case "latin1", "iso8859-1":
		p.Extra = append(p.Extra, "encoding: latin-1")
	case "windows-1252":
		p.Extra = append(p.Extra, "encoding: windows-1252")
	case "utf-16be-bom", "utf-16le-bom":
		p.Extra = append(p.Extra, "encoding: utf-16")
	case "utf-16be", "utf-16le":
		p.Extra = append(p.Extra, "encoding: "+e)
	default:
		c.Note(in.Get("encoding"), migrate.Lost, "%s is not decoded: the bytes are delivered "+
			"unchanged", e)
	}
	limit := in.Get("message_max_bytes")
	if limit == nil {
		limit = in.Get("max_bytes")
	}
	if n := limit.Positive(); n > 0 {
		p.Extra = append(p.Extra, fmt.Sprintf("max_record: %dB", n))
	}
	if in.Text("type") == "container" {
		format := in.Text("format")
		if format != "docker" {
			format = "cri"
		}
		p.Extra = append(p.Extra, "framing: { by: multiline, preset: "+format+" }")
		c.Note(in, migrate.Differs, "lines keep the container runtime's format (preset %s joins "+
			"partial lines): a parse processor can split it", format)
	}
	if v := in.Get("multiline"); v != nil {
		c.multiline(v, p)
	}
}

// multiline converts a multiline parser.
func (c *converter) multiline(v *migrate.Value, p *migrate.Pipeline) {
	pattern, after := v.Text("pattern"), v.Text("match") == "after"
	negate := v.IsTrue("negate")
	kind := cmp.Or(v.Text("type"), "pattern")
	way := ""
	switch {
	case pattern == "" || kind != "pattern":
	case after && negate:
		way = "start"
	case after:
		way = "continue"
	case negate:
		way = "end"
	}
	if way == "" {
		v.Ignore("max_lines", "timeout", "flush_pattern", "count_lines", "skip_newline")
		c.Note(v, migrate.Lost, "this way of joining lines is not supported: see "+
			"docs/framing.md, multiline")
		return
	}
	framing := "framing: { by: multiline, " + way + ": " + migrate.Quote(pattern)
	if n := v.Positive("max_lines"); n > 0 {
		framing += fmt.Sprintf(", max_lines: %d", n)
	}
	if d, err := time.ParseDuration(v.Text("timeout")); err == nil && d > 0 {
		framing += ", wait: " + d.String()
	}
	p.Extra = append(p.Extra, framing+" }")
}

// records converts the options for single records.
func (c *converter) records(in *migrate.Value, p *migrate.Pipeline) {
	for _, v := range in.List("parsers") {
		for _, name := range v.Names() {
			switch part := v.Get(name); name {
			case "ndjson":
				part.IgnoreAll()
				p.Processors = append(p.Processors, "parse: { format: json, on_error: pass }")
			case "multiline":
				c.multiline(part, p)
			default:
				c.NoteLost(part, "this parser is not supported")
			}
		}
	}
	if v := in.Get("json"); v != nil {
		v.IgnoreAll()
		p.Processors = append(p.Processors, "parse: { format: json, on_error: pass }")
	}
	c.lines(in, "include_lines", "", p)
	c.lines(in, "exclude_lines", "not ", p)
	fields := in.Get("fields")
	for _, name := range fields.Names() {
		p.Processors = append(p.Processors, fmt.Sprintf("set: { %s: %s }", migrate.Quote(name),
			migrate.QuoteVariables(strconv.Quote(fields.Text(name)))))
	}
	if fields != nil && !in.IsTrue("fields_under_root") {
		c.Note(fields, migrate.Differs, "fields are added at the top level of the record, not "+
			"below `fields`")
	}
	for _, key := range []string{"tags", "processors", "pipeline", "index"} {
		c.NoteLost(in.Get(key), "has no equivalent for one input")
	}
	in.Ignore("enabled", "keep_null", "publisher_pipeline")
}

func (c *converter) lines(in *migrate.Value, key, not string, p *migrate.Pipeline) {
	var any []string
	for _, pattern := range in.Texts(key) {
		any = append(any, "message matches "+strconv.Quote(pattern))
	}
	if len(any) > 0 {
		p.Processors = append(p.Processors,
			"where: "+migrate.Quote(not+"("+strings.Join(any, " or ")+")"))
	}
}

// output converts the output. Filebeat has only one.
func (c *converter) output() []migrate.Route {
	out := c.top.Get("output")
	for _, kind := range out.Names() {
		v := out.Get(kind)
		if v.Text("enabled") == "false" {
			v.IgnoreAll()
			continue
		}
		r := migrate.Route{Name: "main", Missing: "the output " + kind}
		switch kind {
		case "elasticsearch":
			r.Sink = c.elasticsearch(v)
		case "kafka":
			r.Sink = c.kafka(v)
		case "file":
			r.Sink = migrate.Sink{Kind: "file", Format: "ndjson",
				Path: path.Join(v.Text("path"), cmp.Or(v.Text("filename"), "filebeat"))}
			v.Ignore("rotate_every_kb", "number_of_files", "permissions", "rotate_on_startup",
				"codec")
			c.Note(v, migrate.Differs, "files are not rotated by number; see the option rotate")
		case "console":
			r.Sink = migrate.Sink{Kind: "stdout", Format: "ndjson"}
			v.Ignore("codec", "pretty")
		default:
			c.NoteLost(v, "the output %q is not converted: docs/README.md lists the sinks of "+
				"penstock", kind)
		}
		if r.Sink.Kind != "" {
			c.Note(v, migrate.Differs, "a record has only the fields of its line; @timestamp, "+
				"agent, ecs, host, input and log are not added (the source option meta adds "+
				"file, offset and host)")
		}
		return []migrate.Route{r}
	}
	return nil
}

func (c *converter) elasticsearch(v *migrate.Value) migrate.Sink {
	s := migrate.Sink{Kind: "elasticsearch", User: v.Text("username"), Password: v.Text("password"),
		Gzip: v.Text("compression_level") != "0"}
	for _, host := range v.Texts("hosts") {
		s.Endpoints = append(s.Endpoints, endpoint(host, v.Text("protocol"), v.Text("path"),
			v.Text("pipeline")))
	}
	s.Index = v.Text("index")
	if s.Index == "" || strings.Contains(s.Index, "%{") {
		c.Note(v, migrate.Differs, "Filebeat writes the index %q by version and date; the index "+
			"is %q here: set your own "+
			"name", cmp.Or(s.Index, "filebeat-%{[agent.version]}"), "filebeat")
		s.Index = "filebeat"
	}
	for _, name := range v.Get("headers").Names() {
		s.SetHeader(name, v.Text("headers", name))
	}
	if key := v.Text("api_key"); key != "" {
		if strings.Contains(key, "${") {
			c.Note(v.Get("api_key"), migrate.Differs, "the header needs the encoded key: base64 of "+
				"id:key, not %q", key)
		} else if strings.Contains(key, ":") {
			key = base64.StdEncoding.EncodeToString([]byte(key))
		}
		s.SetHeader("Authorization", "ApiKey "+key)
	}
	c.tls(v.Get("ssl"), &s)
	for _, key := range []string{"indices", "pipelines"} {
		c.NoteLost(v.Get(key), "conditions of the output are not supported: add a route for each")
	}
	v.Ignore("worker", "workers", "loadbalance", "bulk_max_size", "max_retries", "backoff",
		"timeout", "enabled", "preset", "allow_older_versions", "idle_connection_timeout", "queue")
	return s
}

// endpoint returns the URL of an Elasticsearch host.
func endpoint(host, protocol, prefix, pipeline string) string {
	if strings.Contains(host, "${") && !strings.Contains(host, "://") {
		return host // a variable may contain a whole URL
	}
	if !strings.Contains(host, "://") {
		host = cmp.Or(protocol, "http") + "://" + host
	}
	u, err := url.Parse(host)
	if err != nil {
		return host
	}
	if u.Port() == "" {
		u.Host = net.JoinHostPort(u.Hostname(), "9200")
	}
	u.Path = path.Join("/", u.Path, prefix, "_bulk")
	if pipeline != "" {
		u.RawQuery = url.Values{"pipeline": {pipeline}}.Encode()
	}
	return u.String()
}

func (c *converter) kafka(v *migrate.Value) migrate.Sink {
	s := migrate.Sink{Kind: "kafka", Brokers: v.Texts("hosts"), Topic: v.Text("topic"),
		Format: "json", Compression: cmp.Or(v.Text("compression"), "gzip")}
	if strings.Contains(s.Topic, "%{") {
		c.Note(v.Get("topic"), migrate.Differs, "format strings are expressions in penstock: "+
			"write %q as one", s.Topic)
	}
	c.tls(v.Get("ssl"), &s)
	for _, key := range []string{"username", "sasl", "topics", "key", "partition", "headers"} {
		c.NoteLost(v.Get(key), "is not converted: see docs/kafka.md")
	}
	v.Ignore("password", "required_acks", "client_id", "version", "metadata", "worker",
		"max_retries", "backoff", "bulk_max_size", "timeout", "broker_timeout",
		"channel_buffer_size", "keep_alive", "max_message_bytes", "compression_level", "enabled",
		"codec", "queue")
	return s
}

func (c *converter) tls(v *migrate.Value, s *migrate.Sink) {
	if v == nil {
		return
	}
	authorities := v.Texts("certificate_authorities")
	if len(authorities) > 0 {
		s.CA = authorities[0]
	}
	if len(authorities) > 1 {
		c.Note(v.Get("certificate_authorities"), migrate.Differs,
			"penstock reads one file of authorities: put all of them into %s", s.CA)
	}
	s.Cert, s.Key = v.Text("certificate"), v.Text("key")
	if mode := v.Text("verification_mode"); mode != "" && mode != "full" && mode != "strict" {
		c.NoteVerified(v.Get("verification_mode"))
	}
	v.Ignore("enabled", "supported_protocols", "cipher_suites", "curve_types", "renegotiation")
}
