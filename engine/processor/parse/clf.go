//penstock:pure

package parse

import (
	"bytes"
	"encoding/hex"
	"unicode/utf8"

	"github.com/penstock-io/penstock/stream"
)

// clfFields are the fields of the combined log format, in order. The common log format has all but
// the last two. https://httpd.apache.org/docs/2.4/logs.html#accesslog
var clfFields = []stream.SchemaField{
	{Name: "host", Type: stream.TextType},
	{Name: "identity", Type: stream.TextType},
	{Name: "user", Type: stream.TextType},
	{Name: "timestamp", Type: stream.TextType},
	{Name: "method", Type: stream.TextType},
	{Name: "path", Type: stream.TextType},
	{Name: "protocol", Type: stream.TextType},
	{Name: "status", Type: stream.IntegerType},
	{Name: "size", Type: stream.IntegerType},
	{Name: "referrer", Type: stream.TextType},
	{Name: "agent", Type: stream.TextType},
}

// The indexes of fields in clfFields.
const (
	clfHost = iota
	clfIdentity
	clfUser
	clfTimestamp
	clfMethod
	clfPath
	clfProtocol
	clfStatus
	clfSize
	clfReferrer
	clfAgent
)

const clfStampLen = len("17/May/2015:10:05:03 +0000")

// clf splits lines of the common and the combined log format.
type clf struct {
	count int // of fields
	names [clfAgent + 1]uint32
	bad   problem
}

func newCLF(combined bool) *format {
	n := clfSize + 1
	if combined {
		n = clfAgent + 1
	}
	return &format{fields: clfFields[:n], make: func() splitter { return &clf{count: n} }}
}

func (c *clf) begin(b *stream.Batch) {
	for i := range c.count {
		c.names[i] = b.Name(clfFields[i].Name)
	}
	if free := cap(b.Fields) - len(b.Fields); free < c.count*len(b.Records) {
		b.Fields = append(make([]stream.Field, 0, len(b.Fields)+c.count*len(b.Records)),
			b.Fields...)
	}
}

func (c *clf) split(b *stream.Batch, off, n uint32) problem {
	s := b.Data[off : off+n : off+n]
	base := len(b.Fields)
	if cap(b.Fields)-base < len(c.names) {
		b.Fields = append(b.Fields, make([]stream.Field, len(c.names))...)
	}
	b.Fields = b.Fields[:base+len(c.names)]
	f := (*clfRow)(b.Fields[base:])
	escaped := bytes.IndexByte(s, '\\') >= 0
	if !escaped && int(off+n)+word <= len(b.Data) && c.quick(b.Data[off:off+n+word], off, f) {
		b.Fields = b.Fields[:base+c.count]
		return problem{}
	}
	at := c.head(s, off, f)
	if at < 0 {
		return c.bad
	}
	end := closing(s, at)
	if end < 0 {
		return problem{"the request's quote does not close", at - 1}
	}
	c.request(s, off, at, end, f)
	if at = c.numbers(s, off, end+1, f); at < 0 {
		return c.bad
	}
	if c.count > clfReferrer {
		if at = c.tail(s, off, at, f); at < 0 {
			return c.bad
		}
	}
	if at != len(s) {
		return problem{"text after the last field; for a format with more fields use dissect", at}
	}
	b.Fields = b.Fields[:base+c.count]
	if escaped {
		c.unescape(b, b.Fields[base:])
	}
	return problem{}
}

// clfRow has the fields of one record. In the common log format, the last two are unused.
type clfRow [clfAgent + 1]stream.Field

// fail stores the problem and returns -1.
func (c *clf) fail(what string, at int) int {
	c.bad = problem{what, at}
	return -1
}

// put sets field k to s[from:to]. If this text is "-", put sets the field to null.
func (c *clf) put(f *clfRow, k int, s []byte, off uint32, from, to int) {
	if to-from == 1 && s[from] == '-' {
		f[k] = stream.Field{Name: c.names[k], Kind: stream.Null, Off: off + uint32(from)}
		return
	}
	f[k] = stream.Field{Name: c.names[k], Off: off + uint32(from), Len: uint32(to - from)}
}

// null sets field k to null.
func (c *clf) null(f *clfRow, k int, off uint32, at int) {
	f[k] = stream.Field{Name: c.names[k], Kind: stream.Null, Off: off + uint32(at)}
}

// head parses host, identity, user and time. It returns the position after the opening quote of the
// request. If one of these fields is missing, head stores the problem in c.bad and returns -1.
func (c *clf) head(s []byte, off uint32, f *clfRow) int {
	i := space(s, 0)
	if i <= 0 {
		return c.fail("a host and a space are missing", 0)
	}
	c.put(f, clfHost, s, off, 0, i)
	from := i + 1
	if i = space(s, from); i <= from {
		return c.fail("an identity and a space are missing", from)
	}
	c.put(f, clfIdentity, s, off, from, i)
	from = i + 1
	// the user name may contain spaces
	if i = space(s, from); i <= from || i+1 >= len(s) || s[i+1] != '[' {
		rest := bytes.Index(s[min(from, len(s)):], []byte(" ["))
		if rest <= 0 {
			return c.fail("a user and a time in brackets are missing", from)
		}
		i = from + rest
	}
	c.put(f, clfUser, s, off, from, i)
	from = i + 2
	if i = from + clfStampLen; i >= len(s) || s[i] != ']' {
		rest := bytes.IndexByte(s[from:], ']')
		if rest < 0 {
			return c.fail("the time's bracket does not close", from-1)
		}
		i = from + rest
	}
	c.put(f, clfTimestamp, s, off, from, i)
	if i+2 >= len(s) || s[i+1] != ' ' || s[i+2] != '"' {
		return c.fail("a request in quotes is missing", min(i+1, len(s)))
	}
	return i + 3
}

// space returns the index of the first space of s at or after i, or -1. It uses a loop, which is
// faster than bytes.IndexByte for short fields.
func space(s []byte, i int) int {
	for ; i < len(s); i++ {
		if s[i] == ' ' {
			return i
		}
	}
	return -1
}

// closing returns the end of the quoted text that begins at i: the position of its closing quote,
// or -1. A quote after an odd number of backslashes does not close the text.
func closing(s []byte, i int) int {
	for from := i; ; {
		n := bytes.IndexByte(s[from:], '"')
		if n < 0 {
			return -1
		}
		end := from + n
		slashes := 0
		for k := end - 1; k >= i && s[k] == '\\'; k-- {
			slashes++
		}
		if slashes%2 == 0 {
			return end
		}
		from = end + 1
	}
}

// request splits `METHOD TARGET PROTOCOL`. The target may contain spaces. If there is no protocol,
// as in HTTP/0.9, the field protocol is null. If the text has another form, such as the TLS bytes
// of a client at a port without TLS, the whole text becomes the path, so that nothing is lost.
func (c *clf) request(s []byte, off uint32, from, to int, f *clfRow) {
	i := from
	for i < to && s[i] >= 'A' && s[i] <= 'Z' {
		i++
	}
	if i == from || i >= to-1 || s[i] != ' ' {
		for i < to && token[s[i]] {
			i++
		}
	}
	if i == from || i >= to-1 || s[i] != ' ' {
		c.null(f, clfMethod, off, from)
		c.null(f, clfProtocol, off, to)
		c.put(f, clfPath, s, off, from, to)
		return
	}
	c.put(f, clfMethod, s, off, from, i)
	last := to - 1
	for last > i && s[last] != ' ' {
		last--
	}
	if last == i || to-last <= len(" HTTP/") || string(s[last+1:last+6]) != "HTTP/" {
		c.null(f, clfProtocol, off, to)
		c.put(f, clfPath, s, off, i+1, to)
		return
	}
	c.put(f, clfPath, s, off, i+1, last)
	c.put(f, clfProtocol, s, off, last+1, to)
}

// token has the bytes that are allowed in a method (RFC 9110, section 5.6.2).
var token = func() (t [256]bool) {
	for _, c := range []byte(
		"!#$%&'*+-.^_`|~0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz") {
		t[c] = true
	}
	return t
}()

// numbers parses status and size. It returns the end of the size.
func (c *clf) numbers(s []byte, off uint32, at int, f *clfRow) int {
	if at >= len(s) || s[at] != ' ' {
		return c.fail("a space and a status are missing after the request", at)
	}
	end := c.integer(s, off, at+1, f, clfStatus)
	if end < 0 {
		return end
	}
	if end >= len(s) || s[end] != ' ' {
		return c.fail("a space and a size are missing after the status", end)
	}
	return c.integer(s, off, end+1, f, clfSize)
}

// longestInteger is a number of digits with which an integer always fits into 64 bits.
const longestInteger = 18

// integer sets field k to the digits at i, or to null if there is a "-", and returns their end. It
// omits leading zeros, because JSON does not allow them.
func (c *clf) integer(s []byte, off uint32, i int, f *clfRow, k int) int {
	from := i
	for i < len(s) && s[i]-'0' <= 9 {
		i++
	}
	switch {
	case i > from:
		for from < i-1 && s[from] == '0' {
			from++
		}
		if i-from > longestInteger {
			return c.fail("a number of more than 18 digits", from)
		}
		f[k] = stream.Field{Name: c.names[k], Kind: stream.Number, Off: off + uint32(from),
			Len: uint32(i - from)}
		return i
	case i < len(s) && s[i] == '-':
		c.null(f, k, off, i)
		return i + 1
	}
	return c.fail("neither a number nor a -", i)
}

// tail parses referrer and agent. It returns the end of the agent.
func (c *clf) tail(s []byte, off uint32, at int, f *clfRow) int {
	for k := clfReferrer; k <= clfAgent; k++ {
		if at+1 >= len(s) || s[at] != ' ' || s[at+1] != '"' {
			if k == clfReferrer && at == len(s) {
				return c.fail("a referrer and an agent are missing; "+
					"without them the format is common", at)
			}
			return c.fail("a referrer and an agent in quotes are missing", at)
		}
		end := closing(s, at+2)
		if end < 0 && k == clfReferrer {
			return c.fail("the referrer's quote does not close", at+1)
		}
		if end < 0 { // the server has truncated the line: the rest is the agent
			c.put(f, k, s, off, at+2, len(s))
			return len(s)
		}
		c.put(f, k, s, off, at+2, end)
		at = end + 1
	}
	return at
}

// unescape decodes the escapes in quoted fields. The decoded text is appended to the batch's data.
// If the text would not be printable UTF-8, the field keeps its escapes, because servers escape
// hostile input in this way.
func (c *clf) unescape(b *stream.Batch, f []stream.Field) {
	for k := clfMethod; k < c.count; k++ {
		if f[k].Kind != stream.Text || bytes.IndexByte(b.Value(f[k]), '\\') < 0 {
			continue
		}
		off := len(b.Data)
		b.Data = appendUnescaped(b.Data, b.Value(f[k]))
		if !printable(b.Data[off:]) {
			b.Data = b.Data[:off]
			continue
		}
		f[k].Off, f[k].Len = uint32(off), uint32(len(b.Data)-off)
	}
}

func printable(s []byte) bool {
	for _, c := range s {
		if c < ' ' && c != '\t' || c == 0x7F {
			return false
		}
	}
	return utf8.Valid(s)
}

// appendUnescaped appends s with the escapes of Apache and nginx decoded: \" \\ \n \r \t \b \v and
// \xhh. Any other backslash stays.
func appendUnescaped(dst, s []byte) []byte {
	for i := 0; i < len(s); i++ {
		if s[i] != '\\' || i+1 == len(s) {
			dst = append(dst, s[i])
			continue
		}
		i++
		switch c := s[i]; {
		case c == '"' || c == '\\':
			dst = append(dst, c)
		case c == 'x' && i+2 < len(s):
			decoded, err := hex.AppendDecode(dst, s[i+1:i+3])
			if err == nil {
				dst = decoded
				i += 2
			} else {
				dst = append(dst, '\\', c)
			}
		default:
			if k := bytes.IndexByte([]byte("nrtbv"), c); k >= 0 {
				dst = append(dst, "\n\r\t\b\v"[k])
			} else {
				dst = append(dst, '\\', c)
			}
		}
	}
	return dst
}
