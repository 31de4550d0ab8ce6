package syslog

import (
	"bytes"
	"maps"
	"slices"
	"strconv"
	"time"

	golang "github.com/leodido/go-syslog/v4"
	"github.com/leodido/go-syslog/v4/rfc3164"
	"github.com/leodido/go-syslog/v4/rfc5424"

	"github.com/penstock-io/penstock/engine/kit/ndjson"
	"github.com/penstock-io/penstock/stream"
)

// fields lists the fields of every record.
var fields = []stream.SchemaField{
	{Name: "timestamp", Type: stream.TextType}, {Name: "hostname", Type: stream.TextType},
	{Name: "app_name", Type: stream.TextType}, {Name: "proc_id", Type: stream.TextType},
	{Name: "msg_id", Type: stream.TextType}, {Name: "facility", Type: stream.TextType},
	{Name: "facility_code", Type: stream.IntegerType}, {Name: "severity", Type: stream.TextType},
	{Name: "severity_code", Type: stream.IntegerType}, {Name: "message", Type: stream.TextType},
	{Name: "structured_data", Type: stream.JSONType}, {Name: "peer", Type: stream.TextType},
}

var severities = []string{"emerg", "alert", "crit", "err", "warning", "notice", "info", "debug"}

var facilities = []string{
	"kern", "user", "mail", "daemon", "auth", "syslog", "lpr", "news", "uucp", "cron", "authpriv",
	"ftp", "ntp", "security",
	"console", "solaris-cron", "local0", "local1", "local2", "local3", "local4", "local5", "local6", "local7",
}

// parser converts messages to JSON objects. It belongs to one goroutine.
type parser struct {
	modern, old golang.Machine
	now         func() time.Time
	out         []byte
}

func newParser(zone *time.Location, now func() time.Time) *parser {
	return &parser{
		modern: rfc5424.NewMachine(rfc5424.WithBestEffort()),
		old: rfc3164.NewMachine(rfc3164.WithBestEffort(), rfc3164.WithYear(rfc3164.CurrentYear{}),
			rfc3164.WithLocaleTimezone(zone), rfc3164.WithLenientDay(), rfc3164.WithEmbeddedNewlines()),
		now: now,
	}
}

// parse returns the record of a message, which is valid until the next call. ok reports whether the
// message has one of the two formats. Otherwise the whole text is the message.
func (p *parser) parse(text []byte, peer string) (record []byte, ok bool) {
	var base golang.Base
	var data map[string]map[string]string
	machine := p.old
	if isModern(text) {
		machine = p.modern
	}
	m, err := machine.Parse(text)
	switch m := m.(type) {
	case *rfc5424.SyslogMessage:
		base = m.Base
		if m.StructuredData != nil {
			data = *m.StructuredData
		}
	case *rfc3164.SyslogMessage:
		base = m.Base
		p.fixYear(base.Timestamp)
	}
	if err != nil && !hasPriority(text) {
		base, data = golang.Base{}, nil // the parser mistook a part of a number for a priority
	}
	if err != nil && base.Message == nil {
		whole := string(text)
		base.Message = &whole
	}
	p.out = p.append(p.out[:0], &base, data, peer)
	return p.out, err == nil
}

// isModern reports whether a message has a version after its priority, as in RFC 5424.
func isModern(text []byte) bool {
	end := bytes.IndexByte(text[:min(len(text), 6)], '>')
	return end > 0 && len(text) > end+2 && text[end+1] >= '1' && text[end+1] <= '9' &&
		(text[end+2] == ' ' || text[end+2] >= '0' && text[end+2] <= '9' && len(text) > end+3 && text[end+3] == ' ')
}

// hasPriority reports whether a message begins with a valid priority, such as <34>.
func hasPriority(text []byte) bool {
	end := bytes.IndexByte(text[:min(len(text), 5)], '>')
	if end < 2 || text[0] != '<' {
		return false
	}
	n, err := strconv.ParseUint(string(text[1:end]), 10, 8)
	return err == nil && n < 192
}

// fixYear moves a time without a year back by a year if it is more than a day in the future. An
// example is a message of December that arrives in January.
func (p *parser) fixYear(t *time.Time) {
	if t != nil && t.After(p.now().Add(24*time.Hour)) {
		*t = t.AddDate(-1, 0, 0)
	}
}

func (p *parser) append(dst []byte, m *golang.Base, data map[string]map[string]string, peer string) []byte {
	dst = append(dst, `{"timestamp":`...)
	if m.Timestamp == nil {
		dst = append(dst, "null"...)
	} else {
		dst = append(m.Timestamp.AppendFormat(append(dst, '"'), time.RFC3339Nano), '"')
	}
	dst = appendText(append(dst, `,"hostname":`...), m.Hostname)
	dst = appendText(append(dst, `,"app_name":`...), m.Appname)
	dst = appendText(append(dst, `,"proc_id":`...), m.ProcID)
	dst = appendText(append(dst, `,"msg_id":`...), m.MsgID)
	dst = appendCode(append(dst, `,"facility":`...), `,"facility_code":`, m.Facility, facilities)
	dst = appendCode(append(dst, `,"severity":`...), `,"severity_code":`, m.Severity, severities)
	dst = appendText(append(dst, `,"message":`...), m.Message)
	dst = append(dst, `,"structured_data":{`...)
	if len(data) > 0 {
		dst = appendStructured(dst, data)
	}
	dst = ndjson.AppendString(append(dst, `},"peer":`...), peer)
	return append(dst, '}')
}

// appendStructured appends structured data, sorted by name.
func appendStructured(dst []byte, data map[string]map[string]string) []byte {
	for i, id := range slices.Sorted(maps.Keys(data)) {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = append(ndjson.AppendString(dst, id), ":{"...)
		for k, name := range slices.Sorted(maps.Keys(data[id])) {
			if k > 0 {
				dst = append(dst, ',')
			}
			dst = ndjson.AppendString(append(ndjson.AppendString(dst, name), ':'), data[id][name])
		}
		dst = append(dst, '}')
	}
	return dst
}

func appendText(dst []byte, text *string) []byte {
	if text == nil {
		return append(dst, "null"...)
	}
	return ndjson.AppendString(dst, *text)
}

// appendCode appends the name of a code, then label, then the code.
func appendCode(dst []byte, label string, code *uint8, names []string) []byte {
	if code == nil || int(*code) >= len(names) {
		return append(append(append(dst, "null"...), label...), "null"...)
	}
	dst = append(ndjson.AppendString(dst, names[*code]), label...)
	return strconv.AppendUint(dst, uint64(*code), 10)
}
