//penstock:pure

package framing

import (
	"bytes"
	"regexp"

	"github.com/penstock-io/penstock/engine/kit/lines"
)

// joinRule reports whether line belongs to the same record as the lines before it. first is the
// first line of this record. before is the line directly before line. The lines have no line ends.
type joinRule func(first, before, line []byte) bool

// multiline joins several lines into one record. A record ends before a line that does not belong
// to it. It also ends after a line that matches the regular expression in the field last.
type multiline struct {
	belongs joinRule
	last    *regexp.Regexp // nil: no line ends a record
	most    int            // maximum number of lines of a record
}

// Exact implements lines.Framing.
func (m multiline) Exact() bool { return true }

// Next implements lines.Framing.
func (m multiline) Next(data []byte, last bool) lines.Frame {
	var first, before []byte
	at := 0
	for n := 0; ; n++ {
		i := bytes.IndexByte(data[at:], '\n')
		if i < 0 && !last {
			return lines.Frame{}
		}
		end := at + i + 1
		if i < 0 {
			end = len(data)
		}
		line := text(data[at:end])
		switch {
		case at == len(data): // only when last: nothing follows
			return frameOf(data, at)
		case n == 0:
			first = line
		case n >= m.most || !m.belongs(first, before, line):
			return frameOf(data, at)
		}
		if m.last != nil && m.last.Match(line) {
			return frameOf(data, end)
		}
		before, at = line, end
	}
}

// frameOf returns the frame of a record with the first n bytes of data. These bytes must be whole
// lines.
func frameOf(data []byte, n int) lines.Frame {
	return lines.Frame{Size: n, To: len(text(data[:n]))}
}

// text returns a line without its line end.
func text(line []byte) []byte {
	if n := len(line); n > 0 && line[n-1] == '\n' {
		line = line[:n-1]
		if n > 1 && line[n-2] == '\r' {
			line = line[:n-2]
		}
	}
	return line
}

// presets has the rules for stack traces of language runtimes, by the values of the option
// `preset`.
var presets = map[string]joinRule{"java": javaTrace, "python": pythonTrace, "go": goTrace}

func indented(line []byte) bool { return len(line) > 0 && (line[0] == ' ' || line[0] == '\t') }

var javaThrowable = regexp.MustCompile(`^(\w+\.)+[A-Z][\w$]*(Exception|Error|Throwable)(: |$)`)

// javaTrace reports whether line continues the output of Throwable.printStackTrace. This output has
// the class of the exception with its message, frames ("\tat ..."), and the number of frames left
// out ("\t... 3 more"). The lines of a cause begin with "Caused by: ", and those of a suppressed
// exception with "Suppressed: ".
func javaTrace(_, _, line []byte) bool {
	return indented(line) || javaThrowable.Match(line) ||
		bytes.HasPrefix(line, []byte("Caused by: ")) ||
		bytes.HasPrefix(line, []byte("Suppressed: "))
}

var pythonBetween = [][]byte{
	[]byte("Traceback (most recent call last):"),
	[]byte("During handling of the above exception, another exception occurred:"),
	[]byte("The above exception was the direct cause of the following exception:"),
}

// pythonTrace reports whether line continues a Python traceback. A traceback consists of the
// header, the indented frames, and the exception after them. Lines that link several tracebacks
// also continue it.
func pythonTrace(_, before, line []byte) bool {
	for _, p := range pythonBetween {
		if bytes.HasPrefix(line, p) {
			return true
		}
	}
	switch {
	case indented(line):
		return true
	case len(line) == 0: // before and after a line that links two tracebacks
		return len(before) > 0 && !indented(before)
	case indented(before): // the exception itself
		return true
	}
	return false
}

var goBegins = regexp.MustCompile(`(^|\s)(panic: |fatal error: |goroutine \d+ \[)`)

var goFrame = regexp.MustCompile(
	`^(goroutine \d+ \[|created by |\[signal |exit status |\S+\(.*\)$|\.\.\.additional frames elided)`)

// goTrace reports whether line continues the output of a Go crash, which begins with first, such as
// "panic: ...". This output consists of goroutines with their frames, and the empty lines between
// them.
func goTrace(first, _, line []byte) bool {
	return goBegins.Match(first) && (len(line) == 0 || indented(line) || goFrame.Match(line))
}
