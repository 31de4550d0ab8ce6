package child

import (
	"bufio"
	"errors"
	"fmt"
	"io"
)

// QuotedMost is how many bytes of what a child wrote an error quotes.
const QuotedMost = 200

// lineBuffer is how much is read from a child at once, in bytes.
const lineBuffer = 64 << 10

// Quoted is the beginning of what a child wrote, for an error that quotes it.
func Quoted(line []byte) []byte { return line[:min(len(line), QuotedMost)] }

// ServeLines is a [Session] of lines: it gives take each line that p writes, as ReadLine returns
// it, until the child has ended, which is no error here: how it died says more. A line that is too
// long, or that take refuses, ends the child.
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

// ReadLine returns the next line that a child wrote, without its end ("\n" or "\r\n"), in memory of
// its own. io.EOF: there is none; what follows the last end of a line is none either. One of more
// than most bytes, which has to be more than QuotedMost, is an error with its beginning; the rest
// of it is not read.
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
			return nil, fmt.Errorf("it has written a line of more than %d bytes, which begins with %q", most, Quoted(line))
		}
	}
}
