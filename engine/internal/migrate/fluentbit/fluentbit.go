// Package fluentbit converts a configuration of Fluent Bit (1.9 and newer), in its classic or its
// YAML format, to one of penstock. It converts the input tail, the filters grep, modify and
// record_modifier, and the outputs es, opensearch, loki, http, kafka, file, stdout and null. The
// positions in the database of an input tail become the first checkpoint of the new config.
//
// Options and their defaults are those of the Fluent Bit manual. The database is a SQLite file. Its
// table in_tail_files has name, offset and inode of each file.
package fluentbit

import (
	"cmp"
	"fmt"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/penstock-io/penstock/engine/internal/migrate"
)

// Convert converts a configuration, which was read from file.
func Convert(text, file string) (migrate.Result, error) {
	parsed, err := parse(text)
	if err != nil {
		return migrate.Result{}, err
	}
	c := &converter{migrate.NewBuilder("Fluent Bit's config", "fluent-bit"), parsed}
	for _, v := range c.includes {
		c.NoteIncluded(v, filepath.Dir(file), v.Text(),
			"copy their content into the main file, and import it again")
	}
	c.convert()
	return c.Result("fluent-bit", nil), nil
}

type converter struct {
	*migrate.Builder
	config
}

func (c *converter) convert() {
	for _, v := range c.others {
		c.Note(v, migrate.Lost, "is not read: copy its content into the main file, or convert it "+
			"by hand")
	}
	c.Note(c.service.Get("parsers_file"), migrate.Differs, "parsers are not read from files: see "+
		"docs/processors.md, parse")
	for i, in := range c.inputs {
		c.input(in, i)
	}
	for _, out := range c.outputs {
		c.NoteUnread(out)
	}
	for _, f := range c.filters {
		c.NoteUnread(f)
	}
}

func split(list string) []string {
	return strings.FieldsFunc(list, func(r rune) bool { return r == ',' || r == ' ' })
}

// input converts an input together with the filters and outputs that match its tag.
func (c *converter) input(in *migrate.Value, n int) {
	kind := strings.ToLower(in.Text("name"))
	if kind != "tail" {
		c.NoteLostInput(in, "the input %q is not converted: docs/README.md lists the sources of "+
			"penstock", kind)
		return
	}
	tag := in.Text("tag")
	if tag == "" {
		tag = fmt.Sprintf("tail.%d", n)
	}
	p := migrate.Pipeline{Name: strings.Trim(strings.ReplaceAll(tag, "*", ""), "."),
		Include: split(in.Text("path")), Exclude: split(in.Text("exclude_path")),
		FromEnd: !in.IsTrue("read_from_head"), Symlinks: true}
	if p.Name == "" {
		p.Name = fmt.Sprintf("tail-%d", n)
	}
	if len(p.Include) == 0 {
		c.Note(in, migrate.Lost, "has no path: set include to the files")
	}
	if key := in.Text("path_key"); key != "" {
		p.Extra = append(p.Extra, "meta: { file: "+key+" }")
	}
	if in.Text("offset_key") != "" {
		c.Note(in.Get("offset_key"), migrate.Differs, "is the option meta.offset of the source")
	}
	c.parser(in, &p)
	c.filter(tag, &p)
	p.Routes = c.routes(tag)
	if db := in.Text("db"); db != "" {
		p.Carry = database{db}.carry
	}
	in.Ignore("alias", "refresh_interval", "rotate_wait", "buffer_chunk_size", "buffer_max_size",
		"mem_buf_limit", "skip_long_lines", "skip_empty_lines", "db.sync", "db.locking",
		"db.journal_mode", "db.compare_filename", "storage.type", "inotify_watcher",
		"static_batch_size", "storage.pause_on_chunks_overlimit", "threaded", "log_level",
		"progress_check_interval")
	c.Note(in.Get("ignore_older"), migrate.Lost, "old files are read, too: move them away, or "+
		"narrow path")
	c.NoteUnread(in)
	c.Add(p)
}

// parser converts the options for parsing records.
func (c *converter) parser(in *migrate.Value, p *migrate.Pipeline) {
	switch name := in.Text("multiline.parser"); name {
	case "":
	case "docker", "cri", "java", "python", "go":
		p.Extra = append(p.Extra, "framing: { by: multiline, preset: "+name+" }")
	default:
		c.Note(in.Get("multiline.parser"), migrate.Lost, "the parser %q is not supported: see "+
			"docs/framing.md, multiline", name)
	}
	switch name := in.Text("parser"); name {
	case "":
		key := cmp.Or(in.Text("key"), "log")
		p.Processors = append(p.Processors, "rename: { message: "+migrate.Quote(key)+" }")
	case "json", "docker":
		p.Processors = append(p.Processors, "parse: { format: json, on_error: pass }")
	case "apache2", "nginx":
		p.Processors = append(p.Processors, "parse: { format: combined, on_error: pass }")
		c.Note(in.Get("parser"), migrate.Differs, "the fields have the names of the format "+
			"combined: size, referrer and timestamp differ from that parser's")
	case "apache":
		p.Processors = append(p.Processors, "parse: { format: common, on_error: pass }")
	default:
		c.Note(in.Get("parser"), migrate.Lost, "the parser %q is defined in another file: add a "+
			"parse processor", name)
	}
}

// matches reports whether the filter or output v gets the records with a tag. The configured tag of
// an input may have a star, which Fluent Bit replaces by the path of the file.
func matches(v *migrate.Value, tag string) bool {
	tag = strings.ReplaceAll(tag, "*", "x")
	if pattern := v.Text("match_regex"); pattern != "" {
		re, err := regexp.Compile(pattern)
		return err == nil && re.MatchString(tag)
	}
	glob := v.Text("match")
	re := regexp.MustCompile("^" + strings.ReplaceAll(regexp.QuoteMeta(glob), `\*`, ".*") + "$")
	return re.MatchString(tag)
}

// filter converts the filters that get the records with a tag, in order.
func (c *converter) filter(tag string, p *migrate.Pipeline) {
	for _, f := range c.filters {
		if !matches(f, tag) {
			continue
		}
		switch kind := strings.ToLower(f.Text("name")); kind {
		case "grep":
			c.grep(f, p)
		case "modify", "record_modifier":
			c.modify(f, p)
		default:
			c.NoteLost(f, "penstock has no filter %q: see docs/processors.md", kind)
		}
	}
}

func (c *converter) grep(f *migrate.Value, p *migrate.Pipeline) {
	for _, rule := range []struct{ name, not string }{{"regex", ""}, {"exclude", "not "}} {
		for _, text := range f.Texts(rule.name) {
			field, pattern, _ := strings.Cut(text, " ")
			p.Processors = append(p.Processors, "where: "+migrate.Quote(fmt.Sprintf(
				"%s(string(%s ?? \"\") matches %s)", rule.not, value(field),
				strconv.Quote(strings.TrimSpace(pattern)))))
		}
	}
	if op := f.Get("logical_op"); op != nil && !strings.EqualFold(op.Text(), "legacy") {
		c.Note(op, migrate.Differs, "these conditions are applied one after the other: combine "+
			"them in one where")
	}
}

var identifier = regexp.MustCompile(`^[A-Za-z_]\w*$`)

// value returns the expression for the value of a field. In Fluent Bit, a name that begins with $
// is a path to a member of a field, such as $kubernetes['labels'].
func value(field string) string {
	if member, ok := strings.CutPrefix(field, "$"); ok {
		return member
	}
	if identifier.MatchString(field) {
		return field
	}
	return "$env[" + strconv.Quote(field) + "]"
}

// flat returns the name of a field for the processors set, drop and rename. In their options, an
// unquoted name with dots is a path to a member of an object. A name of Fluent Bit with dots is not
// a path, so flat puts quotes around it.
func flat(field string) string {
	if strings.Contains(field, ".") {
		field = strconv.Quote(field)
	}
	return migrate.Quote(field)
}

// modify converts the filters modify and record_modifier. The rules of a filter modify are applied
// in their order in the file. A filter record_modifier removes fields before it adds others.
func (c *converter) modify(f *migrate.Value, p *migrate.Pipeline) {
	var rules []*migrate.Value
	names := make(map[*migrate.Value]string)
	for _, name := range []string{
		"remove_key", "record", "add", "set", "remove", "rename", "hard_rename",
	} {
		for _, rule := range f.List(name) {
			rules = append(rules, rule)
			names[rule] = name
		}
	}
	if strings.EqualFold(f.Text("name"), "modify") {
		slices.SortStableFunc(rules, func(a, b *migrate.Value) int { return a.Line - b.Line })
	}
	for _, rule := range rules {
		field, text, _ := strings.Cut(rule.Text(), " ")
		text = strings.TrimSpace(text)
		line := ""
		switch names[rule] {
		case "remove", "remove_key":
			line = "drop: [" + flat(field) + "]"
		case "rename", "hard_rename":
			if names[rule] == "rename" {
				c.Note(rule, migrate.Differs, "an existing field %s is replaced; Fluent Bit "+
					"would not rename %s then", text, field)
			}
			line = fmt.Sprintf("rename: { %s: %s }", flat(field), flat(text))
		case "add": // only if the record has no such field
			line = "set: { " + flat(field) + ": " + c.added(rule, field, text, p) + " }"
		default:
			line = fmt.Sprintf("set: { %s: %s }", flat(field),
				migrate.QuoteVariables(strconv.Quote(text)))
		}
		p.Processors = append(p.Processors, line)
	}
}

// added returns the value of the rule `Add FIELD TEXT`. In Fluent Bit, the rule has no effect on a
// record that already has the field. If a parser of the format json may have made the field, the
// value is therefore an expression: the field if the record has it, else the text. Otherwise the
// value is the text alone.
func (c *converter) added(rule *migrate.Value, field, text string, p *migrate.Pipeline) string {
	parsed := strings.Join(p.Processors, "\n")
	switch {
	case strings.Contains(parsed, "parse: { format: json,"):
		return migrate.QuoteVariables(value(field) + " ?? " + strconv.Quote(text))
	case strings.Contains(parsed, "parse: "):
		c.Note(rule, migrate.Differs, "an existing field %s is overwritten; Fluent Bit would "+
			"keep it", field)
	}
	return migrate.QuoteVariables(strconv.Quote(text))
}
