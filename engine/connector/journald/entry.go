//penstock:pure

package journald

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/penstock-io/penstock/engine/kit/ndjson"
	"github.com/penstock-io/penstock/stream"
)

// fields lists the fields of a record, which the source makes from a journal entry. A field without
// a value in the entry is omitted. The last field, journal, is an object with the other fields of
// the entry, except those that only locate it.
var fields = []stream.SchemaField{
	{Name: "timestamp", Type: stream.TextType}, {Name: "hostname", Type: stream.TextType},
	{Name: "unit", Type: stream.TextType}, {Name: "app_name", Type: stream.TextType},
	{Name: "proc_id", Type: stream.TextType}, {Name: "facility", Type: stream.TextType},
	{Name: "facility_code", Type: stream.IntegerType}, {Name: "severity", Type: stream.TextType},
	{Name: "severity_code", Type: stream.IntegerType}, {Name: "message", Type: stream.TextType},
	{Name: "journal", Type: stream.JSONType},
}

// texts lists fields of the journal with text values, and the fields of the record to which the
// text is copied.
var texts = []struct{ from, to string }{
	{"_HOSTNAME", "hostname"}, {"_SYSTEMD_UNIT", "unit"}, {"SYSLOG_IDENTIFIER", "app_name"},
	{"_PID", "proc_id"}, {"MESSAGE", "message"},
}

// codes lists fields of the journal with numbers, and the names of these numbers. Each number
// becomes two fields of the record: its name, and the number itself. Example: PRIORITY 3 becomes
// severity "err" and severity_code 3. A number without a name becomes only the second field.
var codes = []struct {
	from, name, code string
	names            []string
}{
	{"SYSLOG_FACILITY", "facility", "facility_code", []string{
		"kern", "user", "mail", "daemon", "auth", "syslog", "lpr", "news", "uucp", "cron", "authpriv",
		"ftp", "ntp", "security", "console", "solaris-cron", "local0", "local1", "local2", "local3",
		"local4", "local5", "local6", "local7",
	}},
	{"PRIORITY", "severity", "severity_code", []string{
		"emerg", "alert", "crit", "err", "warning", "notice", "info", "debug",
	}},
}

// entry is one entry of the journal.
type entry struct {
	at     stream.Position // position after the entry
	record []byte          // a JSON object on one line; nil if only the position is needed
}

// parse parses a line of `journalctl -o json`. before is the position of the preceding entry. The
// position of an entry consists of a number and a key: the entry's time in microseconds and its
// cursor. If this time is not greater than before.Num, the number is before.Num+1. So positions
// always grow.
func parse(line []byte, before stream.Position) (entry, error) {
	var all map[string]json.RawMessage
	if err := json.Unmarshal(line, &all); err != nil {
		return entry{}, fmt.Errorf("the line is not a JSON object: %w", err)
	}
	cursor, micros := textOf(all["__CURSOR"]), textOf(all["__REALTIME_TIMESTAMP"])
	at, err := strconv.ParseInt(micros, 10, 64)
	switch {
	case cursor == "":
		return entry{}, errors.New("the entry has no __CURSOR")
	case len(cursor) > maxCursor:
		return entry{}, fmt.Errorf("its cursor has %d bytes, want at most %d", len(cursor), maxCursor)
	case err != nil || at < 1:
		return entry{}, fmt.Errorf("its __REALTIME_TIMESTAMP is %q", micros)
	}
	e := entry{at: stream.Position{Num: max(at, before.Num+1), Key: cursor}}
	out := append([]byte(`{"timestamp":`), '"')
	out = time.UnixMicro(at).UTC().AppendFormat(out, "2006-01-02T15:04:05.000000Z07:00")
	out = append(out, '"')
	for _, f := range texts {
		if value, ok := all[f.from]; ok {
			out = append(out, `,"`+f.to+`":`...)
			out = ndjson.AppendString(out, textOf(value))
			delete(all, f.from)
		}
	}
	for _, f := range codes {
		code, err := strconv.Atoi(textOf(all[f.from]))
		if err != nil || code < 0 {
			continue // the field is kept as a member of journal
		}
		if code < len(f.names) {
			out = fmt.Appendf(out, `,%q:%q`, f.name, f.names[code])
		}
		out = fmt.Appendf(out, `,%q:%d`, f.code, code)
		delete(all, f.from)
	}
	e.record = appendRest(out, all)
	return e, nil
}

// maxCursor is the maximum length of a cursor in bytes. The cursor is a part of positions and ids.
const maxCursor = 512

// appendRest appends the field journal, and the end of the record's JSON object. The field has a
// member for each key of the map (all), except keys that only locate the entry, such as __CURSOR. A
// field without members is omitted.
func appendRest(out []byte, all map[string]json.RawMessage) []byte {
	maps.DeleteFunc(all, func(name string, _ json.RawMessage) bool {
		return strings.HasPrefix(name, "__")
	})
	for i, name := range slices.Sorted(maps.Keys(all)) {
		if i == 0 {
			out = append(out, `,"journal":{`...)
		} else {
			out = append(out, ',')
		}
		out = append(ndjson.AppendString(out, name), ':')
		out = ndjson.AppendString(out, textOf(all[name]))
	}
	if len(all) > 0 {
		out = append(out, '}')
	}
	return append(out, '}')
}

// textOf returns a value as text. journalctl writes bytes that are not text as an array of numbers.
// It writes a field that occurs several times as an array of values, which textOf joins with line
// ends.
func textOf(value json.RawMessage) string {
	if text, ok := scalar(value); ok {
		return text
	}
	var several []json.RawMessage
	if json.Unmarshal(value, &several) != nil {
		return ""
	}
	parts := make([]string, len(several))
	for i, one := range several {
		parts[i], _ = scalar(one) // ignores other values than scalars
	}
	return strings.Join(parts, "\n")
}

// scalar returns a string or an array of bytes as text.
func scalar(value json.RawMessage) (text string, ok bool) {
	if json.Unmarshal(value, &text) == nil {
		return text, true
	}
	var raw []uint8 // an array of numbers; a string would be base64
	if json.Unmarshal(value, &raw) == nil && len(raw) > 0 {
		return strings.ToValidUTF8(string(raw), "\ufffd"), true
	}
	return "", false
}
