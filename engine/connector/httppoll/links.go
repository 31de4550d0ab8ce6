//penstock:pure

package httppoll

import "strings"

// parseLinks parses Link headers (RFC 8288). It returns a map from each relation, such as "next",
// to the URL of its link. If several links have the same relation, the first one is used.
func parseLinks(lines []string) map[string]string {
	links := make(map[string]string)
	for _, line := range lines {
		for {
			_, rest, found := strings.Cut(line, "<")
			target, rest, closed := strings.Cut(rest, ">")
			if !found || !closed {
				break
			}
			var relations string
			relations, line = parameters(rest)
			for rel := range strings.FieldsSeq(strings.ToLower(relations)) {
				if _, known := links[rel]; !known {
					links[rel] = target
				}
			}
		}
	}
	return links
}

// parameters parses the parameters of one link, up to a comma or the end of s. It returns the value
// of the parameter rel, and the text after the comma.
func parameters(s string) (rel, rest string) {
	quoted, from := false, 0
	take := func(part string) {
		name, value, _ := strings.Cut(part, "=")
		if rel == "" && strings.EqualFold(strings.TrimSpace(name), "rel") {
			rel = strings.Trim(strings.TrimSpace(value), `"`)
		}
	}
	for i := 0; i < len(s); i++ {
		switch {
		case quoted && s[i] == '\\':
			i++
		case s[i] == '"':
			quoted = !quoted
		case !quoted && s[i] == ';':
			take(s[from:i])
			from = i + 1
		case !quoted && s[i] == ',':
			take(s[from:i])
			return rel, s[i+1:]
		}
	}
	take(s[from:])
	return rel, ""
}
