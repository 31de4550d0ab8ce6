//penstock:pure

package flume

import (
	"fmt"
	"strconv"
	"strings"
	"unicode/utf16"
)

// maxProperties is the maximum number of properties that are read from a file.
const maxProperties = 100_000

// property is one entry of a Java properties file.
type property struct {
	key, value string
	line       int // its first line, from 1
}

// readProperties parses text like java.util.Properties. Comments begin with # or !. A key ends at
// =, : or white space. A backslash at the end of a line continues the line. Escapes are replaced by
// the characters that they stand for. If a key is repeated, the last value is used.
func readProperties(text string) ([]property, error) {
	var all []property
	at := make(map[string]int)
	lines := strings.Split(strings.NewReplacer("\r\n", "\n", "\r", "\n").Replace(text), "\n")
	for i := 0; i < len(lines); i++ {
		first := i + 1
		line := strings.TrimLeft(lines[i], " \t\f")
		if line == "" || line[0] == '#' || line[0] == '!' {
			continue
		}
		for continues(line) {
			line = line[:len(line)-1]
			if i++; i == len(lines) {
				break
			}
			line += strings.TrimLeft(lines[i], " \t\f")
		}
		rawKey, rawValue := cutProperty(line)
		key, err := unescape(rawKey)
		if err != nil {
			return nil, fmt.Errorf("line %d: %w", first, err)
		}
		value, err := unescape(rawValue)
		if err != nil {
			return nil, fmt.Errorf("line %d: %w", first, err)
		}
		// Flume trims values.
		p := property{key: key, value: strings.TrimSpace(value), line: first}
		if before, twice := at[key]; twice {
			all[before] = p
			continue
		}
		if len(all) == maxProperties {
			return nil, fmt.Errorf("line %d: more than %d properties: this is not a "+
				"configuration of a Flume agent", first, maxProperties)
		}
		at[key] = len(all)
		all = append(all, p)
	}
	return all, nil
}

// continues reports whether a line ends with an odd number of backslashes, so that the next line
// continues it.
func continues(line string) bool {
	return (len(line)-len(strings.TrimRight(line, `\`)))%2 == 1
}

// cutProperty splits a line at the first unescaped =, : or white space.
func cutProperty(line string) (key, value string) {
	end := len(line)
	for i := 0; i < len(line); i++ {
		if line[i] == '\\' {
			i++
			continue
		}
		if strings.IndexByte("=: \t\f", line[i]) >= 0 {
			end = i
			break
		}
	}
	key = line[:end]
	value = strings.TrimLeft(line[end:], " \t\f")
	if value != "" && (value[0] == '=' || value[0] == ':') {
		value = strings.TrimLeft(value[1:], " \t\f")
	}
	return key, value
}

// unescape replaces escapes such as \t and \u0041 by the characters that they stand for. If a
// backslash begins no known escape, only the backslash is removed.
func unescape(s string) (string, error) {
	if strings.IndexByte(s, '\\') < 0 {
		return s, nil
	}
	var b strings.Builder
	var units []uint16 // consecutive hexadecimal escapes; two may be one character
	flush := func() {
		b.WriteString(string(utf16.Decode(units)))
		units = units[:0]
	}
	for i := 0; i < len(s); i++ {
		if s[i] != '\\' || i+1 == len(s) {
			flush()
			b.WriteByte(s[i])
			continue
		}
		i++
		if s[i] == 'u' {
			if i+5 > len(s) {
				return "", fmt.Errorf(`%q ends inside \u and its four hexadecimal digits`, s)
			}
			n, err := strconv.ParseUint(s[i+1:i+5], 16, 16)
			if err != nil {
				return "", fmt.Errorf(`%q: \u%s is not a character; `+
					`\u needs four hexadecimal digits`,
					s, s[i+1:i+5])
			}
			units = append(units, uint16(n))
			i += 4
			continue
		}
		flush()
		if n := strings.IndexByte("tnrf", s[i]); n >= 0 {
			b.WriteByte("\t\n\r\f"[n])
		} else {
			b.WriteByte(s[i])
		}
	}
	flush()
	return b.String(), nil
}
