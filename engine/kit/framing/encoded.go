package framing

import (
	"fmt"
	"slices"
	"sync"

	"github.com/penstock-io/penstock/engine/kit/lines"
	"github.com/penstock-io/penstock/stream"
)

// encoded finds records in a file and writes them as valid UTF-8. The file has another encoding
// than UTF-8, or is UTF-8 with bytes that may be invalid. Offsets are those in the file, not in the
// decoded text.
type encoded struct {
	in    charset
	inner lines.Framing // finds records in the decoded text, or in the raw bytes if bytes is set
	// bytes means that the framing inner finds records in the raw bytes, without decoding them
	// first. This is possible in two cases: the delimiters have the same bytes in this encoding as
	// in UTF-8, or inner searches for encoded delimiters.
	bytes bool
	lines bool // inner finds lines
	onBad bad
	name  string
	text  *sync.Pool // memory for decoded text, as *[]byte
}

// stretch is the number of bytes that are decoded at first to find a record's end. If these bytes
// do not contain the end, the number is doubled.
const stretch = 4096

// Exact implements lines.Framing.
func (e *encoded) Exact() bool { return false }

// Next implements lines.Framing.
func (e *encoded) Next(data []byte, last bool) lines.Frame {
	mark := e.in.mark(data)
	if mark > 0 && mark == len(data) {
		if !last {
			return lines.Frame{}
		}
		return lines.Frame{Size: mark, None: true}
	}
	frame := e.next(data[mark:], last)
	if frame.Size > 0 {
		frame.Size, frame.From, frame.To = frame.Size+mark, frame.From+mark, frame.To+mark
	}
	return frame
}

func (e *encoded) next(data []byte, last bool) lines.Frame {
	switch {
	case e.bytes:
		return e.inner.Next(data, last)
	case e.lines:
		return e.line(data, last)
	}
	buf := e.text.Get().(*[]byte)
	defer e.text.Put(buf)
	for n := stretch; ; n *= 2 {
		part := data[:min(n, len(data))]
		all := len(part) == len(data)
		if !last || !all {
			part = part[:e.in.whole(part)]
		}
		*buf, _ = e.in.decode((*buf)[:0], part, replaceBad)
		frame := e.inner.Next(*buf, last && all)
		if frame.Size > 0 {
			return e.inFile(part, frame)
		}
		if all {
			return lines.Frame{}
		}
	}
}

// line returns the frame of the first line in data, which is UTF-16 text. If data has no line end
// and last is false, the frame has size 0.
func (e *encoded) line(data []byte, last bool) lines.Frame {
	size, to := 0, len(data)
	if i := e.in.lineEnd(data, 0); i >= 0 {
		size, to = i+2, i
	} else if last {
		size = len(data)
	}
	if size > to && to >= 2 && e.in.unit(data[to-2:]) == '\r' {
		to -= 2
	}
	return lines.Frame{Size: size, To: to}
}

// inFile converts the offsets of a frame in the decoded text to offsets in data.
func (e *encoded) inFile(data []byte, frame lines.Frame) lines.Frame {
	at, text := 0, 0
	until := func(to int) int {
		for text < to && at < len(data) {
			r, size, ok := e.in.next(data[at:])
			if !ok {
				r = 0xfffd
			}
			at += size
			text += len(string(r))
		}
		return at
	}
	from := until(frame.From)
	to := until(max(frame.To, frame.From))
	return lines.Frame{Size: until(frame.Size), From: from, To: to, None: frame.None}
}

// Write implements lines.Writer.
func (e *encoded) Write(dst []byte, ends []int, data []byte,
	frame lines.Frame) ([]byte, []int, error) {
	if w, ok := e.inner.(lines.Writer); ok {
		return e.rewrite(w, dst, ends, data, frame)
	}
	dst, err := e.write(dst, data[frame.From:frame.To])
	return dst, append(ends, len(dst)), err
}

// write appends the text of one record to dst as UTF-8. If the text has invalid bytes and
// `decode_error` is dead_letter or fail, write also returns a *lines.TextError.
func (e *encoded) write(dst, text []byte) ([]byte, error) {
	dst, at := e.in.decode(dst, text, e.onBad)
	if at >= 0 && e.onBad >= deadLetterBad {
		bytes := text[at:min(at+4, len(text))]
		return dst, &lines.TextError{Encoding: e.name, At: at, Bytes: slices.Clone(bytes),
			DeadLetter: e.onBad == deadLetterBad}
	}
	return dst, nil
}

// rewrite lets w write the records of the frame, and then appends their text to dst as valid UTF-8.
func (e *encoded) rewrite(w lines.Writer, dst []byte, ends []int, data []byte,
	frame lines.Frame) ([]byte, []int, error) {
	texts, stops, err := w.Write(nil, nil, data, frame)
	if err != nil {
		return dst, ends, err
	}
	from := 0
	var first error
	for _, to := range stops {
		var err error
		if dst, err = e.write(dst, texts[from:to]); err != nil && first == nil {
			first = err
		}
		ends = append(ends, len(dst))
		from = to
	}
	return dst, ends, first
}

// Whole implements lines.Writer.
func (e *encoded) Whole(data []byte, n int) int {
	if n = e.in.whole(data[:n]); n > 0 {
		return n
	}
	_, size, _ := e.in.next(data)
	return size
}

// Unit implements lines.UnitFraming.
func (e *encoded) Unit() int {
	if e.in.wide() {
		return 2
	}
	return 1
}

// LineStart implements lines.UnitFraming.
func (e *encoded) LineStart(data []byte) int {
	for start, at := -1, 0; ; at = start {
		i := e.in.lineEnd(data, at)
		if i < 0 {
			return start
		}
		start = i + e.Unit()
	}
}

// Text holds the keys `encoding` and `decode_error` of a file source.
type Text struct {
	Encoding    string // utf-8, utf-16le, utf-16be, utf-16, latin-1, windows-1252
	DecodeError string // keep, replace, drop, dead_letter, fail
}

// Validate returns an error if a key of t is invalid by itself, or in combination with o or
// longRecord. o is the framing, and longRecord is the value of the option `long_record`. The error
// names the key.
func (t Text) Validate(o Options, longRecord string) error {
	in, ok := charsets[t.Encoding]
	if !ok {
		return stream.OptionErrorf("encoding", "is %q, want utf-8, utf-16le, utf-16be, utf-16, "+
			"latin-1 or windows-1252", t.Encoding)
	}
	onBad, ok := bads[t.DecodeError]
	switch _, joins := joined[o.Preset]; {
	case !ok:
		return stream.OptionErrorf("decode_error", "is %q, want keep, replace, drop, dead_letter "+
			"or fail", t.DecodeError)
	case joins && in != utf8Bytes:
		return stream.OptionErrorf("encoding", "is %s, but logs of containers (preset: %s) are "+
			"UTF-8", t.Encoding, o.Preset)
	case in != utf8Bytes && longRecord != "cut":
		return stream.OptionErrorf("encoding", "is %s, where long records can only be cut; write "+
			"long_record: cut", t.Encoding)
	case onBad != keepBad && longRecord != "cut":
		return stream.OptionErrorf("decode_error", "is %s, where long records can only be cut; "+
			"write long_record: cut", t.DecodeError)
	}
	return nil
}

// In returns the framing of files with the encoding t, or nil if records are lines of raw bytes.
// The encoding may depend on a file's first bytes. In this case, In also returns byHead, a function
// that returns the framing of a file, given these bytes.
func (o Options) In(t Text,
	maxRecord int) (framed lines.Framing, byHead func(head []byte) lines.Framing, err error) {
	inner, err := o.New(maxRecord)
	if err != nil {
		return nil, nil, err
	}
	in, onBad := charsets[t.Encoding], bads[t.DecodeError]
	if in == utf8Bytes && onBad == keepBad {
		return inner, nil, nil
	}
	e := encoded{
		in: in, inner: inner, lines: o.By == ByLine, onBad: onBad, name: t.Encoding,
		text: &sync.Pool{New: func() any { return new([]byte) }},
	}
	e.bytes = in == utf8Bytes || !in.wide() && o.By != ByMultiline
	if e.lines {
		e.inner = delimitedLine{}
	}
	if o.By == ByDelimiter && !in.wide() && in != utf8Bytes {
		if e.inner, err = encodedDelimiter(in, o.Delimiter); err != nil {
			return nil, nil, stream.OptionErrorf("framing.delimiter", "%w", err)
		}
	}
	if in != utf16Mark {
		return &e, nil, nil
	}
	marked := map[charset]*encoded{}
	for _, c := range []charset{utf16LE, utf16BE} {
		of := e
		of.in = c
		marked[c] = &of
	}
	return marked[utf16BE], func(head []byte) lines.Framing {
		return marked[utf16Of(head)]
	}, nil
}

// encodedDelimiter converts a delimiter from UTF-8 to an encoding with one byte per character.
func encodedDelimiter(in charset, text string) (delimited, error) {
	var out []byte
	for _, r := range text {
		b := -1
		for i := range 256 {
			if got, _, ok := in.next([]byte{byte(i)}); ok && got == r {
				b = i
				break
			}
		}
		if b < 0 {
			return "", fmt.Errorf("has %q, which the encoding does not have", r)
		}
		out = append(out, byte(b))
	}
	return delimited(out), nil
}
