//penstock:pure

package stream

import (
	"regexp"
	"strings"
)

// Masked replaces a secret in a message.
const Masked = "***"

// MaskURLs returns text with the secrets of its URLs masked: user and password, and every value of
// a query. It does so even in a URL that does not parse. If it is not certain that a part is
// harmless, it masks the part. Masked text does not change when it is masked again. A value that is
// a reference to a variable, such as ${TOKEN}, is not masked.
//
// Messages about URLs, such as errors of net/http and net/url, must pass through MaskURLs before
// they are shown. The engine does this for errors of components, log lines, status and dead
// letters.
func MaskURLs(text string) string {
	at := strings.Index(text, "://")
	if at < 0 {
		return text // the usual case
	}
	var b strings.Builder
	for at >= 0 {
		at += len("://")
		end := at + urlEnd(text[at:], openQuote(text[:at]))
		b.WriteString(text[:at])
		rest := text[at:]
		n := maskURL(&b, rest, end-at)
		text = rest[n:]
		at = strings.Index(text, "://")
	}
	b.WriteString(text)
	return b.String()
}

// openQuote returns the quote directly before the scheme of a URL, or 0 if there is none. text ends
// with this scheme.
func openQuote(text string) byte {
	scheme := strings.TrimRight(strings.TrimSuffix(text, "://"), schemeLetters)
	if scheme == "" || !strings.ContainsRune("\"'`", rune(scheme[len(scheme)-1])) {
		return 0
	}
	return scheme[len(scheme)-1]
}

const schemeLetters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789+.-"

// urlEnd returns the end of a URL in text, which begins after the URL's scheme. If the URL is
// quoted, it ends at the next such quote, backslash or line end. Otherwise (quote is 0) it ends at
// the next white space, quote, backslash, < or >.
func urlEnd(text string, quote byte) int {
	stop := " \t\r\n\"'`<>\\"
	if quote != 0 {
		stop = "\r\n\\" + string(quote)
	}
	if end := strings.IndexAny(text, stop); end >= 0 {
		return end
	}
	return len(text)
}

// hostForm is the part of a URL between user and path: names, addresses or variables, with their
// ports. Text that is not of this form may be a user and a password without a host.
var hostForm = regexp.MustCompile(`^` + oneHost + `(,` + oneHost + `)*[\])},;:.]*$`)

const oneHost = `([\pL\pN._-]|%25|\$\{[^}]*\}|\[[0-9A-Fa-f:.%]*\]|\*\*\*)*(:([0-9]*|port|\$\{[^}]*\}))?`

// maskURL appends a URL to b, with its secrets masked. The URL without its scheme is text[:end].
// maskURL returns the length of the text that it has appended or masked. This may be more than end,
// if a password contains a space or a quote.
func maskURL(b *strings.Builder, text string, end int) int {
	authority := end
	if i := strings.IndexAny(text[:end], "/?#"); i >= 0 {
		authority = i
	}
	from := 0
	line := text
	if i := strings.IndexAny(text, "\r\n"); i >= 0 {
		line = text[:i]
	}
	if i := strings.LastIndexByte(text[:authority], '@'); i >= 0 {
		from = i
	} else if hostForm.MatchString(text[:authority]) {
		from = -1
	} else if i := strings.LastIndexByte(text[:end], '@'); i >= 0 {
		from = i // a slash in the password
	} else if i := strings.IndexByte(line, '@'); i >= 0 && strings.Contains(text[:authority], ":") {
		from = i // a space in the password
	} else if strings.Contains(text[:authority], "://") {
		from = -1 // another URL follows
	} else {
		from = authority
	}
	if from >= 0 {
		b.WriteString(Masked)
		if from >= end {
			return from
		}
		text, end = text[from:], end-from
	}
	return max(from, 0) + maskQuery(b, text[:end])
}

// maskQuery appends the part of a URL after its user to b, with the values of its query masked. If
// another URL follows, it stops before the :// of that URL. It returns the length of the part that
// it has handled.
func maskQuery(b *strings.Builder, text string) int {
	i := strings.IndexAny(text, "?#")
	if i < 0 {
		i = len(text)
	}
	// another URL follows, as in a list without spaces
	if at := strings.Index(text[:i], "://"); at >= 0 {
		b.WriteString(text[:at])
		return at
	}
	b.WriteString(text[:i])
	for rest := text[i:]; rest != ""; {
		n := strings.IndexAny(rest[1:], "?#&;") + 1
		if n == 0 {
			n = len(rest)
		}
		maskParameter(b, rest[:n])
		rest = rest[n:]
	}
	return len(text)
}

var variableForm = regexp.MustCompile(`^\$\{[A-Za-z_][A-Za-z0-9_]*\}[\])}.,:]*$`)

// maskParameter appends one parameter of a query to b, with the separator before it and with its
// value masked. Text without an equals sign is masked like a value, unless it is a fragment (after
// #).
func maskParameter(b *strings.Builder, text string) {
	separator, name, value := text[:1], "", text[1:]
	if i := strings.IndexByte(value, '='); i >= 0 {
		name, value = value[:i+1], value[i+1:]
	} else if separator == "#" {
		name, value = value, ""
	}
	b.WriteString(separator)
	b.WriteString(name)
	if value == "" || variableForm.MatchString(value) {
		b.WriteString(value)
		return
	}
	b.WriteString(Masked)
	// Punctuation of the sentence or list around the URL.
	b.WriteString(value[len(strings.TrimRight(value, "])},:.")):])
}
