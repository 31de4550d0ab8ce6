//penstock:pure

package syslog

import (
	"strings"
	"time"
)

// parse3164 parses the part after the priority of a message of RFC 3164. It reports whether the
// message is valid.
//
//	Oct 11 22:14:15 mymachine su[77]: 'su root' failed
//	                hostname  | proc_id
//	                          app_name
//
// Hostname, app_name and proc_id may be missing. There may be several spaces before and after the
// timestamp, and after the hostname.
func (p *parser) parse3164(m *message, text []byte) bool {
	for len(text) > 0 && text[0] == ' ' {
		text = text[1:]
	}
	n := p.setStamp(m, text)
	if n == 0 {
		return false
	}
	text, ok := cutSpaces(text[n:])
	if !ok {
		return false
	}
	if n := hostnameLength(text); n > 0 {
		if rest, ok := cutSpaces(text[n:]); ok {
			m.hostname, text = text[:n], rest
		}
	}
	m.text = m.cutTag(text)
	return isPrintable(text)
}

const stampLayout = "Jan _2 15:04:05"

const months = "JanFebMarAprMayJunJulAugSepOctNovDec"

// setStamp sets m.timestamp from the timestamp at the start of text, and returns the length of the
// timestamp. It returns 0 if text does not begin with a timestamp and a space. The day may have a
// leading zero. Many senders use a timestamp of RFC 3339 instead, so setStamp accepts it, too.
//
// A timestamp of RFC 3164 has no year. setStamp tries the next, the current and the previous year,
// in this order. It takes the first year in which the date exists and is at most a day in the
// future. Example: a message of December that arrives in January gets the previous year. A
// timestamp of February 29 is not valid if the date exists in none of these years.
func (p *parser) setStamp(m *message, text []byte) int {
	if len(text) > 0 && isDigit(text[0]) {
		if n := p.setTimestamp(m, text); n < len(text) && text[n] == ' ' {
			return n
		}
		m.timestamp = nil
		return 0
	}
	if len(text) <= len(stampLayout) || text[3] != ' ' || !hasLayout(text[6:], " 00:00:00 ") ||
		!isDigit(text[5]) || !isDigit(text[4]) && text[4] != ' ' || !isTime(text[7:]) {
		return 0
	}
	month := strings.Index(months, string(text[:3]))
	day := int(text[5] - '0')
	if text[4] != ' ' {
		day = twoDigits(text[4:])
	}
	if month%3 != 0 {
		return 0
	}
	now := p.now()
	next := now.In(p.zone).Year() + 1
	for year := next; year >= next-2; year-- {
		if !isDate(year, month/3+1, day) {
			continue
		}
		t := time.Date(year, time.Month(month/3+1), day,
			twoDigits(text[7:]), twoDigits(text[10:]), twoDigits(text[13:]), 0, p.zone)
		if year > next-2 && t.After(now.Add(24*time.Hour)) {
			continue
		}
		p.time = t.AppendFormat(p.time[:0], time.RFC3339)
		m.timestamp = p.time
		return len(stampLayout)
	}
	return 0
}

// cutSpaces removes the leading spaces from text, but never the last byte of text. ok reports
// whether it has removed any spaces.
func cutSpaces(text []byte) (rest []byte, ok bool) {
	if len(text) < 2 || text[0] != ' ' {
		return nil, false
	}
	for text = text[1:]; len(text) > 1 && text[0] == ' '; {
		text = text[1:]
	}
	return text, true
}

// hostnameLength returns the length of the hostname at the start of text. It returns 0 if there is
// none. A hostname contains no colon, and a space follows it.
func hostnameLength(text []byte) int {
	for i, c := range text[:min(len(text), maxHostname+1)] {
		switch {
		case c == ' ':
			return i
		case !isGraphic(c) || c == ':':
			return 0
		}
	}
	return 0
}

// cutTag sets app_name and proc_id from the tag at the start of text, such as su[77]. A tag without
// brackets must be followed by a colon. If a colon and a space follow the tag, cutTag returns the
// text after them. Otherwise it returns the whole text.
func (m *message) cutTag(text []byte) []byte {
	n := 0
	for n < len(text) && n < maxAppName && isGraphic(text[n]) && text[n] != ':' && text[n] != '[' {
		n++
	}
	if n == 0 || n == len(text) || text[n] != ':' && text[n] != '[' {
		return text
	}
	m.appName = text[:n]
	rest := text[n:]
	if rest[0] == '[' {
		end := 1
		for end < len(rest) && rest[end] != '[' && rest[end] != ']' {
			end++
		}
		if end == len(rest) || rest[end] == '[' || !isPrintable(rest[:end]) {
			return text
		}
		m.procID = rest[1:end]
		rest = rest[end+1:]
	}
	if len(rest) > 2 && rest[0] == ':' && rest[1] == ' ' {
		return rest[2:]
	}
	return text
}

// isPrintable reports whether text has no other control characters than tabs and line ends.
func isPrintable(text []byte) bool {
	for _, c := range text {
		if c < ' ' && c != '\t' && c != '\n' && c != '\r' || c == 0x7F {
			return false
		}
	}
	return true
}
