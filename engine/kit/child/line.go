package child

import (
	"bufio"
	"errors"
	"fmt"
	"io"
)

// QuotedMost is the number of bytes of a child's output that errors quote.
const QuotedMost = 200

// lineBuffer is the size of the read buffer in bytes.
const lineBuffer = 64 << 10

// Quoted returns the beginning of a child's output, for an error that quotes it.
func Quoted(line []byte) []byte { return line[:min(len(line), QuotedMost)] }

// ServeLines implements Serve of a [Session] for a line-based protocol. It calls take with each
// line that ReadLine returns, until the child ends. The end of the child is not an error here,
// because the exit status describes it better. A line that is too long, or for which take returns
// an error, kills the child.
func ServeLines(p *Process, most int, take func(line []byte) error) error {
	in := bufio.NewReaderSize(p, lineBuffer)
	for {
		line, err := ReadLine(in, most)
		if err == nil {
			err = take(line)
		}
		switch {
		case err == io.EOF:
			return nil
		case err != nil:
			p.Kill(err)
			return err
		}
	}
}

// ReadLine returns the next line of a child's output, without its line end ("\n" or "\r\n"), in
// newly allocated memory. It returns io.EOF at the end and ignores an unterminated last line. A
// line that exceeds the length limit (most) is an error that quotes the beginning of the line; the
// rest is not read. The limit must exceed QuotedMost.
func ReadLine(in *bufio.Reader, most int) ([]byte, error) {
	var line []byte
	for {
		part, err := in.ReadSlice('\n')
		line = append(line, part...)
		switch {
		case err == nil:
			line = line[:len(line)-1]
			if n := len(line); n > 0 && line[n-1] == '\r' {
				line = line[:n-1]
			}
			return line, nil
		case !errors.Is(err, bufio.ErrBufferFull):
			return nil, io.EOF
		case len(line) > most:
			return nil, fmt.Errorf("it has written a line of more than %d bytes, which begins "+
				"with %q",
				most, Quoted(line))
		}
	}
}
