//penstock:pure

package framing

import (
	"bytes"

	"github.com/penstock-io/penstock/engine/kit/lines"
)

// joins finds the records of container logs. The container runtime splits a long record into
// several lines, called pieces. Pieces of stdout and stderr may alternate:
//
//	stdout P one half     piece of a record
//	stderr F an error     a whole record
//	stdout F the other    end of the first record
//
// These three lines are a group: a sequence of lines after which neither stream has an incomplete
// record. A group that reaches a limit ends earlier, and its incomplete records end with it. All
// records of a group have the same position, the end of the group, because no position within the
// group separates whole records.
type joins struct {
	parse    func(line []byte) piece
	most     int // maximum number of lines of a group
	maxBytes int // maximum size in bytes of a group of several lines
}

// piece is a parsed line of a container log. Its ranges are offsets in this line.
type piece struct {
	ok       bool // the line was parsed
	partial  bool // more pieces follow
	stream   [2]int
	text     [2]int // range of the container's output
	tag      int    // cri: offset of the tag P or F
	at, size int    // position of the line in the group, without its line end
}

// joined are the presets that join records from pieces.
var joined = map[string]func(line []byte) piece{"docker": dockerPiece, "cri": criPiece}

// Exact implements lines.Framing.
func (joins) Exact() bool { return false }

// Next implements lines.Framing.
func (j joins) Next(data []byte, last bool) lines.Frame {
	var open [][]byte // streams with an incomplete record
	at := 0
	for n := 0; ; n++ {
		if at == len(data) {
			if last && n > 0 {
				return frameOf(data, at)
			}
			return lines.Frame{}
		}
		i := bytes.IndexByte(data[at:], '\n')
		if i < 0 && !last && (n == 0 || len(data) <= j.maxBytes) {
			return lines.Frame{}
		}
		end := at + i + 1
		if i < 0 {
			end = len(data)
		}
		if n > 0 && (n >= j.most || len(text(data[:end])) > j.maxBytes) {
			return frameOf(data, at)
		}
		line := text(data[at:end])
		p := j.parse(line)
		at = end
		if p.ok {
			open = mark(open, line[p.stream[0]:p.stream[1]], p.partial)
		}
		if len(open) == 0 {
			return frameOf(data, at)
		}
	}
}

// mark updates open, the list of streams (stdout, stderr) with an incomplete record. It adds stream
// if the last piece of this stream was partial, and removes it otherwise.
func mark(open [][]byte, stream []byte, partial bool) [][]byte {
	for i, s := range open {
		if bytes.Equal(s, stream) {
			if !partial {
				open = append(open[:i], open[i+1:]...)
			}
			return open
		}
	}
	if partial {
		open = append(open, stream)
	}
	return open
}

// Write implements lines.Writer. A record of several pieces is written as one line: the line of its
// first piece, with the text of all its pieces.
func (j joins) Write(dst []byte, ends []int, data []byte,
	frame lines.Frame) ([]byte, []int, error) {
	group := data[:frame.Size]
	if i := bytes.IndexByte(group, '\n'); i < 0 || i == len(group)-1 {
		dst = append(dst, group[:frame.To]...)
		return dst, append(ends, len(dst)), nil
	}
	var pieces []piece
	for at := 0; at < len(group); {
		end := len(group)
		if i := bytes.IndexByte(group[at:], '\n'); i >= 0 {
			end = at + i + 1
		}
		line := text(group[at:end])
		p := j.parse(line)
		p.at, p.size = at, len(line)
		pieces = append(pieces, p)
		at = end
	}
	used := make([]bool, len(pieces))
	write := func(to int) {
		dst = j.join(dst, group, pieces, used, to)
		ends = append(ends, len(dst))
	}
	for i, p := range pieces {
		if !p.ok || !p.partial {
			write(i)
		}
	}
	for i := len(pieces) - 1; i >= 0; i-- { // records that are incomplete at the group's end
		if !used[i] {
			write(i)
		}
	}
	return dst, ends, nil
}

// join appends the record that ends with the piece pieces[to]. The record consists of this piece
// and all earlier pieces of the same stream that are not used yet. join sets the elements of used
// for these pieces.
func (j joins) join(dst, group []byte, pieces []piece, used []bool, to int) []byte {
	last := pieces[to]
	used[to] = true
	if !last.ok {
		return append(dst, group[last.at:last.at+last.size]...)
	}
	of := func(p piece, r [2]int) []byte { return group[p.at+r[0] : p.at+r[1]] }
	first := to
	for i := to - 1; i >= 0; i-- {
		if p := pieces[i]; p.ok && !used[i] && bytes.Equal(of(p, p.stream), of(last, last.stream)) {
			first = i
		}
	}
	head := pieces[first]
	dst = append(dst, group[head.at:head.at+head.text[0]]...)
	if !last.partial && head.tag > 0 {
		dst[len(dst)-(head.text[0]-head.tag)] = 'F'
	}
	for i := first; i <= to; i++ {
		if p := pieces[i]; p.ok && (i == to || !used[i]) &&
			bytes.Equal(of(p, p.stream), of(last, last.stream)) {
			dst = append(dst, of(p, p.text)...)
			used[i] = true
		}
	}
	return append(dst, group[head.at+head.text[1]:head.at+head.size]...)
}

// Whole implements lines.Writer.
func (joins) Whole(data []byte, n int) int { return max(1, utf8Bytes.whole(data[:n])) }

// criPiece parses a line of a CRI log, such as
//
//	2016-10-06T00:17:09.669794202Z stdout P the output
//
// The word after the stream is a list of tags with colons between them. The first tag is P
// (partial) or F (full).
func criPiece(line []byte) (p piece) {
	time := bytes.IndexByte(line, ' ')
	if time <= 0 {
		return p
	}
	stream := bytes.IndexByte(line[time+1:], ' ')
	if stream <= 0 {
		return p
	}
	p.stream = [2]int{time + 1, time + 1 + stream}
	p.tag = p.stream[1] + 1
	rest := line[p.tag:]
	if len(rest) == 0 || rest[0] != 'P' && rest[0] != 'F' {
		return piece{}
	}
	tags := bytes.IndexByte(rest, ' ')
	if tags < 0 {
		tags = len(rest)
	}
	if tags > 1 && rest[1] != ':' {
		return piece{}
	}
	p.ok, p.partial = true, rest[0] == 'P'
	p.text = [2]int{min(p.tag+tags+1, len(line)), len(line)}
	return p
}

// dockerPiece parses a line of a Docker log, such as
//
//	{"log":"the output\n","stream":"stdout","time":"2016-10-06T00:17:09.669794202Z"}
//
// If the text of log does not end with a line end, more pieces follow.
func dockerPiece(line []byte) (p piece) {
	at := skipSpace(line, 0)
	if at >= len(line) || line[at] != '{' {
		return p
	}
	found := 0
	for at = skipSpace(line, at+1); at < len(line) && line[at] == '"'; {
		end := stringEnd(line, at)
		if end < 0 {
			return piece{}
		}
		key := line[at+1 : end-1]
		if at = skipSpace(line, end); at >= len(line) || line[at] != ':' {
			return piece{}
		}
		if at = skipSpace(line, at+1); at >= len(line) {
			return piece{}
		}
		if end = value(line, at); end < 0 || end > len(line) {
			return piece{}
		}
		switch {
		case line[at] != '"':
		case string(key) == "log":
			p.text = [2]int{at + 1, end - 1}
			found |= 1
		case string(key) == "stream":
			p.stream = [2]int{at + 1, end - 1}
			found |= 2
		}
		if at = skipSpace(line, end); at < len(line) && line[at] == ',' {
			at = skipSpace(line, at+1)
		}
	}
	p.ok = found == 3 && at < len(line) && line[at] == '}'
	p.partial = p.ok && !endsLine(line[p.text[0]:p.text[1]])
	return p
}

// endsLine reports whether a JSON string's text ends with an escaped line end.
func endsLine(s []byte) bool {
	if !bytes.HasSuffix(s, []byte(`\n`)) {
		return false
	}
	slashes := 0
	for i := len(s) - 2; i >= 0 && s[i] == '\\'; i-- {
		slashes++
	}
	return slashes%2 == 1
}

func skipSpace(line []byte, at int) int {
	for at < len(line) && (line[at] == ' ' || line[at] == '\t' || line[at] == '\r') {
		at++
	}
	return at
}
