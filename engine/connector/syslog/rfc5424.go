//penstock:pure

package syslog

import "bytes"

// The maximum lengths of the header fields in RFC 5424, in bytes.
const (
	maxHostname = 255
	maxAppName  = 48
	maxProcID   = 128
	maxMsgID    = 32
)

// byteOrderMark precedes a text in UTF-8 (RFC 5424, section 6.4). It is not part of the text.
var byteOrderMark = []byte("\ufeff")

// parse5424 parses the part after the version of a message of RFC 5424. It reports whether the
// message is valid.
func (p *parser) parse5424(m *message, text []byte) (ok bool) {
	if text, ok = p.cutTimestamp(m, text); !ok {
		return false
	}
	if m.hostname, text, ok = cutField(text, maxHostname); !ok {
		return false
	}
	if m.appName, text, ok = cutField(text, maxAppName); !ok {
		return false
	}
	if m.procID, text, ok = cutField(text, maxProcID); !ok {
		return false
	}
	if m.msgID, text, ok = cutField(text, maxMsgID); !ok {
		return false
	}
	if text, ok = p.structured.cut(text); !ok {
		return false
	}
	if len(text) > 0 {
		if text[0] != ' ' {
			return false
		}
		m.text = bytes.TrimPrefix(text[1:], byteOrderMark)
	}
	return true
}

// cutField removes a field and the space after it from text. The field consists of visible ASCII
// characters: at least one, and at most the given number (most).
func cutField(text []byte, most int) (field, rest []byte, ok bool) {
	for i, c := range text {
		if !isGraphic(c) {
			if c != ' ' || i == 0 || i > most {
				break
			}
			return text[:i], text[i+1:], true
		}
	}
	return nil, nil, false
}

// cutTimestamp removes the timestamp and the space after it from text.
func (p *parser) cutTimestamp(m *message, text []byte) (rest []byte, ok bool) {
	n := 1
	if len(text) == 0 {
		return nil, false
	} else if text[0] != '-' {
		if n = p.setTimestamp(m, text); n == 0 {
			return nil, false
		}
	}
	if len(text) == n || text[n] != ' ' {
		return nil, false
	}
	return text[n+1:], true
}

const (
	timeLayout   = "0000-00-00T00:00:00" // without fraction and zone
	maxFraction  = 6                     // maximum number of digits of a fraction of a second
	offsetLength = len("+00:00")
)

// setTimestamp sets m.timestamp from the timestamp at the start of text, and returns the length of
// the timestamp, or 0 if there is none. It removes trailing zeros of the fraction, and writes an
// offset of zero as Z.
func (p *parser) setTimestamp(m *message, text []byte) int {
	if len(text) <= len(timeLayout) || !hasLayout(text, timeLayout) {
		return 0
	}
	year := 100*twoDigits(text) + twoDigits(text[2:])
	if !isDate(year, twoDigits(text[5:]), twoDigits(text[8:])) || !isTime(text[11:]) {
		return 0
	}
	n := len(timeLayout)
	end := n // end of the digits that the record has
	if text[n] == '.' {
		for n++; n < len(text) && isDigit(text[n]); n++ {
			if text[n] != '0' {
				end = n + 1
			}
		}
		if digits := n - len(timeLayout) - 1; digits == 0 || digits > maxFraction {
			return 0
		}
	}
	switch {
	case n < len(text) && text[n] == 'Z':
		n++
		p.time = append(append(p.time[:0], text[:end]...), 'Z')
	case isOffset(text[n:]):
		zone := text[n : n+offsetLength]
		n += offsetLength
		p.time = append(p.time[:0], text[:end]...)
		if twoDigits(zone[1:]) == 0 && twoDigits(zone[4:]) == 0 {
			p.time = append(p.time, 'Z')
		} else {
			p.time = append(p.time, zone...)
		}
	default:
		return 0
	}
	m.timestamp = p.time
	return n
}

// isOffset reports whether text begins with the offset of a time zone, such as +02:00.
func isOffset(text []byte) bool {
	return len(text) >= offsetLength && (text[0] == '+' || text[0] == '-') &&
		hasLayout(text[1:], "00:00") && twoDigits(text[1:]) < 24 && twoDigits(text[4:]) < 60
}

// hasLayout reports whether text begins like layout. A 0 in layout stands for any digit. text must
// be at least as long as layout.
func hasLayout(text []byte, layout string) bool {
	for i := range len(layout) {
		if c := text[i]; c != layout[i] && (layout[i] != '0' || !isDigit(c)) {
			return false
		}
	}
	return true
}

func twoDigits(text []byte) int { return 10*int(text[0]-'0') + int(text[1]-'0') }

// isTime reports whether text is a time of day. text must begin like the layout 00:00:00. Leap
// seconds are not valid.
func isTime(text []byte) bool {
	return twoDigits(text) < 24 && twoDigits(text[3:]) < 60 && twoDigits(text[6:]) < 60
}

// isDate reports whether the date exists.
func isDate(year, month, day int) bool {
	if month < 1 || month > 12 || day < 1 {
		return false
	}
	days := 30 + (month+month/8)%2
	if month == 2 {
		days = 28
		if year%4 == 0 && (year%100 != 0 || year%400 == 0) {
			days = 29
		}
	}
	return day <= days
}
