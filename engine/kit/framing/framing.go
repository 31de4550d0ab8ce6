// Package framing finds records in files where a record is not just one line: records with other
// delimiters, records of several lines, CSV with line ends inside quotes, and JSON values in
// sequence or in an array. It also decodes files that are not in UTF-8. File sources use it.
//
// A framing ([lines.Framing]) has no state: in the same bytes, it always finds the same records. A
// frame ([lines.Frame]) is the place of one or more records in the data. So a restarted source can
// continue at the end of any frame. The package does no I/O.
package framing

import (
	"regexp"
	"strings"
	"time"

	"github.com/penstock-io/penstock/engine/kit/lines"
	"github.com/penstock-io/penstock/stream"
)

// The values of Options.By.
const (
	ByLine      = "line"
	ByDelimiter = "delimiter"
	ByMultiline = "multiline"
	ByCSV       = "csv"
	ByJSON      = "json"
)

// Options holds the key `framing` of a file source.
type Options struct {
	By        string        `yaml:"by" enum:"line,delimiter,multiline,csv,json" doc:"how records are delimited"`
	Delimiter string        `yaml:"delimiter" doc:"by: delimiter: delimiter after each record, such as \"\\0\""`
	Preset    string        `yaml:"preset" enum:"java,python,go,docker,cri" doc:"by: multiline: format of stack traces or partial lines"`
	Start     string        `yaml:"start" doc:"by: multiline: regular expression of a record's first line"`
	Continue  string        `yaml:"continue" doc:"by: multiline: regular expression of continuation lines"`
	End       string        `yaml:"end" doc:"by: multiline: regular expression of a record's last line"`
	MaxLines  int           `yaml:"max_lines" doc:"by: multiline: maximum lines of a record"`
	Wait      time.Duration `yaml:"wait" doc:"by: multiline, tail: time without growth until the last record is complete; see partial_wait"`
}

// Defaults returns the default options: each line is a record.
func Defaults() Options { return Options{By: ByLine, MaxLines: 1000, Wait: 5 * time.Second} }

// maxDelimiter is the maximum size of a delimiter in bytes. A longer one is probably a mistake.
const maxDelimiter = 64

// Validate returns an error if a key below `framing` is invalid by itself, or in combination with
// another key or with longRecord, the value of the option `long_record`. The error names the key.
func (o Options) Validate(longRecord string) error {
	if _, err := o.New(1); err != nil {
		return err
	}
	if o.By != ByLine && longRecord != "cut" {
		return stream.OptionErrorf("framing.by", "is %s, whose long records can only be cut; "+
			"write long_record: cut", o.By)
	}
	return nil
}

// New returns the framing, or nil if records are lines. maxRecord bounds the bytes of lines that
// the presets docker and cri join.
func (o Options) New(maxRecord int) (lines.Framing, error) {
	if err := o.misplaced(); err != nil {
		return nil, err
	}
	switch o.By {
	case ByLine:
		return nil, nil
	case ByDelimiter:
		switch {
		case o.Delimiter == "":
			return nil, stream.OptionErrorf("framing.delimiter", "is missing: by: delimiter "+
				"needs what stands behind each record")
		case len(o.Delimiter) > maxDelimiter:
			return nil, stream.OptionErrorf("framing.delimiter", "has %d bytes, at most %d",
				len(o.Delimiter), maxDelimiter)
		}
		return delimited(o.Delimiter), nil
	case ByMultiline:
		return o.multiline(maxRecord)
	case ByCSV:
		return csv{}, nil
	case ByJSON:
		return values{}, nil
	}
	return nil, stream.OptionErrorf("framing.by", "is %q, want line, delimiter, multiline, csv "+
		"or json", o.By)
}

// misplaced returns an error if a key other than by is set, but has no effect with the value of By.
func (o Options) misplaced() error {
	defaults := Defaults()
	for _, k := range []struct {
		key string
		set bool
		by  string
	}{
		{"delimiter", o.Delimiter != "", ByDelimiter}, {"preset", o.Preset != "", ByMultiline},
		{"start", o.Start != "", ByMultiline}, {"continue", o.Continue != "", ByMultiline},
		{"end", o.End != "", ByMultiline},
		{"max_lines", o.MaxLines != 0 && o.MaxLines != defaults.MaxLines, ByMultiline},
		{"wait", o.Wait != 0 && o.Wait != defaults.Wait, ByMultiline},
	} {
		if k.set && o.By != k.by {
			return stream.OptionErrorf("framing."+k.key, "has no meaning with by: %s; write by: "+
				"%s, or take it out", o.By, k.by)
		}
	}
	return nil
}

func (o Options) multiline(maxRecord int) (lines.Framing, error) {
	ways := 0
	for _, s := range []string{o.Preset, o.Start, o.Continue, o.End} {
		if s != "" {
			ways++
		}
	}
	switch {
	case ways == 0:
		return nil, stream.OptionErrorf("framing.by", "is multiline: say which lines belong "+
			"together, by preset, start, continue or end")
	case ways > 1:
		return nil, stream.OptionErrorf("framing.by", "is multiline, and more than one of "+
			"preset, start, continue and end is given; one says which lines belong together")
	case o.MaxLines < 1:
		return nil, stream.OptionErrorf("framing.max_lines", "is %d, want 1 or more", o.MaxLines)
	case o.Wait <= 0:
		return nil, stream.OptionErrorf("framing.wait", "is %v, want more than 0: the last "+
			"record of a file would never be whole", o.Wait)
	}
	if parse := joined[o.Preset]; parse != nil {
		return joins{parse: parse, most: o.MaxLines, maxBytes: maxRecord}, nil
	}
	m := multiline{most: o.MaxLines}
	key, expr := "", ""
	switch {
	case o.Preset != "":
		if m.belongs = presets[o.Preset]; m.belongs == nil {
			return nil, stream.OptionErrorf("framing.preset", "is %q, want java, python, go, "+
				"docker or cri", o.Preset)
		}
		return m, nil
	case o.Start != "":
		key, expr = "start", o.Start
	case o.Continue != "":
		key, expr = "continue", o.Continue
	case o.End != "":
		key, expr = "end", o.End
	}
	re, err := regexp.Compile(expr)
	if err != nil {
		why := strings.TrimPrefix(err.Error(), "error parsing regexp: ")
		return nil, stream.OptionErrorf("framing."+key, "%q is not a regular expression: %s",
			expr, why)
	}
	switch key {
	case "start":
		m.belongs = func(_, _, line []byte) bool { return !re.Match(line) }
	case "continue":
		m.belongs = func(_, _, line []byte) bool { return re.Match(line) }
	case "end":
		m.belongs, m.last = func(_, before, _ []byte) bool { return !re.Match(before) }, re
	}
	return m, nil
}
