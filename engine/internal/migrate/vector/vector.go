// Package vector converts a configuration of Vector (0.20 and newer), in YAML or TOML, to one of
// penstock. It converts the source file, transforms that only parse JSON, and the sinks
// elasticsearch, loki, http, kafka, clickhouse, file, console and blackhole. The checkpoints of
// Vector's file sources become the first checkpoint of the new config.
//
// Options and their defaults are those of Vector's reference. A checkpoint identifies a file by the
// CRC-64 of its first lines, or by device and inode.
package vector

import (
	"cmp"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/penstock-io/penstock/engine/internal/migrate"
)

// Convert converts a configuration, which is TOML if isTOML is set and YAML otherwise. If data is
// not "", it replaces the option data_dir.
func Convert(text string, isTOML bool, data string) (migrate.Result, error) {
	var top *migrate.Value
	var err error
	if isTOML {
		top, err = migrate.ParseTOML(text)
	} else {
		top, err = migrate.ParseYAML(text, false)
	}
	if err != nil {
		return migrate.Result{}, err
	}
	c := &converter{migrate.NewBuilder("Vector's config", "vector"), top,
		cmp.Or(data, top.Text("data_dir"), "/var/lib/vector")}
	c.convert()
	return c.Result("vector", top), nil
}

type converter struct {
	*migrate.Builder
	top  *migrate.Value
	data string
}

func (c *converter) convert() {
	c.top.Ignore("data_dir", "api", "timezone", "log_schema", "acknowledgements", "healthchecks",
		"proxy", "schema", "secret", "enrichment_tables", "tests", "expire_metrics_secs")
	sources := c.top.Get("sources")
	for _, name := range sources.Names() {
		c.source(name, sources.Get(name))
	}
	transforms := c.top.Get("transforms")
	for _, name := range transforms.Names() {
		transforms.Ignore(name) // used ones have notes of their own, and unused ones have no effect
	}
	c.top.Ignore("sinks") // notes about sinks are added for each source that reaches them
}

// source converts a source and the sinks that receive its data.
func (c *converter) source(name string, v *migrate.Value) {
	if kind := v.Text("type"); kind != "file" {
		c.NoteLostInput(v, "the source %q is not converted: docs/README.md lists the sources of "+
			"penstock", kind)
		return
	}
	p := migrate.Pipeline{Name: name, Include: v.Texts("include"), Exclude: v.Texts("exclude"),
		FromEnd: v.Text("read_from") == "end", Symlinks: true}
	if len(p.Include) == 0 {
		c.Note(v, migrate.Lost, "has no include: set it to the files")
	}
	if key := v.Text("file_key"); key != "" {
		p.Extra = append(p.Extra, "meta: { file: "+migrate.Quote(key)+" }")
	}
	limit := cmp.Or(v.Positive("max_line_bytes"), 100<<10)
	p.Extra = append(p.Extra,
		fmt.Sprintf("max_record: %dB # longer lines are split, not dropped", limit))
	c.multiline(v.Get("multiline"), &p)
	if d := v.Text("line_delimiter"); d != "" && d != "\n" {
		p.Extra = append(p.Extra, "framing: { by: delimiter, delimiter: "+strconv.Quote(d)+" }")
	}
	for _, key := range []string{
		"ignore_older_secs", "ignore_older", "remove_after_secs", "encoding",
	} {
		c.NoteLost(v.Get(key), "has no equivalent in the source tail: see docs/tail.md")
	}
	v.Ignore("glob_minimum_cooldown_ms", "ignored_header_bytes", "max_read_bytes", "oldest_first",
		"rotate_wait_secs", "offset_key", "host_key", "ignore_checkpoints", "ignore_not_found",
		"acknowledgements", "internal_metrics", "start_at_beginning")
	c.Note(v, migrate.Differs, "a record has only the fields of its line; file, host, "+
		"source_type and timestamp are not added (the option meta adds file, offset and host)")
	s := stored{name: name, include: p.Include, exclude: p.Exclude, data: c.data,
		maxLine: min(limit, migrate.MaxStored)}
	if dir := v.Text("data_dir"); dir != "" {
		s.data = dir
	}
	s.fingerprint(v.Get("fingerprint"))
	p.Carry = s.carry
	p.Routes = c.routes(name, nil, 0)
	c.Add(p)
}

func (c *converter) multiline(v *migrate.Value, p *migrate.Pipeline) {
	if v == nil {
		return
	}
	start, mode, condition := v.Text("start_pattern"), v.Text("mode"), v.Text("condition_pattern")
	v.Ignore("timeout_ms")
	way := ""
	switch {
	case mode == "halt_before" && start == condition:
		way = "start: " + migrate.Quote(start)
	case mode == "continue_through":
		way = "continue: " + migrate.Quote(condition)
	case mode == "halt_with":
		way = "end: " + migrate.Quote(condition)
	default:
		c.Note(v, migrate.Lost, "this way of joining lines is not supported: see docs/framing.md")
		return
	}
	p.Extra = append(p.Extra, "framing: { by: multiline, "+way+" }")
	c.Note(v, migrate.Differs, "lines are joined by one expression: check the framing")
}

const maxDepth = 32 // maximum number of transforms in a row

// routes returns the routes from a component to sinks, through transforms.
func (c *converter) routes(from string, before []string, depth int) (out []migrate.Route) {
	if depth > maxDepth {
		return nil
	}
	transforms := c.top.Get("transforms")
	for _, name := range transforms.Names() {
		if t := transforms.Get(name); takes(t, from) {
			steps := append(slices.Clone(before), c.transform(t)...)
			out = append(out, c.routes(name, steps, depth+1)...)
		}
	}
	sinks := c.top.Get("sinks")
	for _, name := range sinks.Names() {
		if s := sinks.Get(name); takes(s, from) {
			kind := s.Text("type")
			out = append(out, migrate.Route{Name: name, Processors: before, Sink: c.sink(s, kind),
				Missing: "the sink " + kind})
		}
	}
	return out
}

// takes reports whether an input of v is the given component, or one of that component's outputs
// such as parse.dropped.
func takes(v *migrate.Value, from string) bool {
	for _, in := range v.Texts("inputs") {
		glob := regexp.MustCompile("^" + strings.ReplaceAll(regexp.QuoteMeta(in), `\*`, ".*") + "$")
		if glob.MatchString(from) || strings.HasPrefix(in, from+".") {
			return true
		}
	}
	return false
}

// parsesJSON matches the usual program of a remap transform that only parses JSON.
var parsesJSON = regexp.MustCompile(
	`^\.\s*=\s*parse_json!?\(\s*(string!?\(\s*)?\.message\s*\)?\s*\)(\s*\?\?\s*\.)?$`)

func (c *converter) transform(t *migrate.Value) []string {
	kind, source := t.Text("type"), t.Text("source")
	if kind == "remap" && parsesJSON.MatchString(strings.TrimSpace(source)) {
		return []string{"parse: { format: json, on_error: pass }"}
	}
	c.Note(t, migrate.Lost, "penstock has neither a transform %q nor VRL: records pass "+
		"unchanged; see docs/processors.md", kind)
	return nil
}
