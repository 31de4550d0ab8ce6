//penstock:pure

package syslog

import (
	"fmt"
	"time"

	"github.com/penstock-io/penstock/engine/kit/ndjson"
	"github.com/penstock-io/penstock/stream"
)

// fields lists the fields that every record of this source has.
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

// maxPriority is the highest priority: 8 times the highest facility, plus the highest severity.
const maxPriority = 191

// codes has, for each priority, the members of the record that describe facility and severity, as
// JSON text.
var codes = func() (codes [maxPriority + 1]string) {
	for i := range codes {
		codes[i] = fmt.Sprintf(
			`,"facility":%q,"facility_code":%d,"severity":%q,"severity_code":%d`,
			facilities[i/8], i/8, severities[i%8], i%8)
	}
	return codes
}()

const noCodes = `,"facility":null,"facility_code":null,"severity":null,"severity_code":null`

// message is a parsed message. A field of type []byte is nil if it is missing. All of these fields
// but timestamp are parts of the received text.
type message struct {
	codes             string // the members facility and severity of the record
	timestamp         []byte // in the format of RFC 3339
	hostname, appName []byte
	procID, msgID     []byte
	text              []byte
}

// parser converts messages to JSON objects. It must be used by one goroutine.
type parser struct {
	zone *time.Location // zone of times without a zone
	now  func() time.Time

	// buffers of the current message
	out, time  []byte
	structured structured
}

func newParser(zone *time.Location, now func() time.Time) *parser {
	return &parser{zone: zone, now: now}
}

// parse returns the record of a message. The record is valid until the next call. ok reports
// whether the message has one of the two formats. If it has neither, the record has the whole text
// as its field `message`, and the fields that precede the first mistake.
func (p *parser) parse(text []byte, peer string) (record []byte, ok bool) {
	m := message{codes: noCodes}
	p.structured.reset()
	if code, rest, valid := cutPriority(text); valid {
		m.codes = codes[code]
		if body, modern := cutVersion(rest); modern {
			ok = p.parse5424(&m, body)
		} else {
			ok = p.parse3164(&m, rest)
		}
	}
	if !ok {
		m.text = text
	}
	p.out = p.append(p.out[:0], &m, peer, ok)
	return p.out, ok
}

// cutPriority removes the priority, such as <34>, from the start of a message. A priority has no
// leading zeros and is at most maxPriority.
func cutPriority(text []byte) (code int, rest []byte, ok bool) {
	if len(text) < 3 || text[0] != '<' {
		return 0, nil, false
	}
	for i, c := range text[1:min(len(text), 5)] {
		switch {
		case c == '>' && i > 0:
			return code, text[i+2:], code <= maxPriority
		case !isDigit(c) || i > 0 && code == 0:
			return 0, nil, false
		}
		code = 10*code + int(c-'0')
	}
	return 0, nil, false
}

// cutVersion removes the version number of RFC 5424 and the space after it from text. It accepts
// the versions 1 to 99. text begins after the priority.
func cutVersion(text []byte) (rest []byte, ok bool) {
	if len(text) < 2 || !isDigit(text[0]) || text[0] == '0' {
		return nil, false
	}
	n := 1
	if isDigit(text[1]) {
		n = 2
	}
	if len(text) == n || text[n] != ' ' {
		return nil, false
	}
	return text[n+1:], true
}

func isDigit(c byte) bool { return c-'0' <= 9 }

// isGraphic reports whether c is a visible ASCII character.
func isGraphic(c byte) bool { return c > ' ' && c <= '~' }

func (p *parser) append(dst []byte, m *message, peer string, parsed bool) []byte {
	if m.timestamp == nil {
		dst = append(dst, `{"timestamp":null`...)
	} else {
		dst = append(append(append(dst, `{"timestamp":"`...), m.timestamp...), '"')
	}
	dst = appendField(append(dst, `,"hostname":`...), m.hostname)
	dst = appendField(append(dst, `,"app_name":`...), m.appName)
	dst = appendField(append(dst, `,"proc_id":`...), m.procID)
	dst = appendField(append(dst, `,"msg_id":`...), m.msgID)
	dst = append(append(dst, m.codes...), `,"message":`...)
	if parsed && len(m.text) == 0 {
		dst = append(dst, "null"...)
	} else {
		dst = ndjson.AppendString(dst, m.text)
	}
	dst = p.structured.append(append(dst, `,"structured_data":`...))
	dst = ndjson.AppendString(append(dst, `,"peer":`...), peer)
	return append(dst, '}')
}

// appendField appends a header field as a JSON value. If the field is missing, or is "-" (the
// NILVALUE of RFC 5424), it appends null.
func appendField(dst, text []byte) []byte {
	if len(text) == 0 || len(text) == 1 && text[0] == '-' {
		return append(dst, "null"...)
	}
	return ndjson.AppendString(dst, text)
}
