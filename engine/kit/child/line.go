package child

import (
	"bufio"
	"errors"
	"fmt"
	"io"
)

// QuotedMost is the maximum number of bytes of a line that an error quotes.
const QuotedMost = 200

// lineBuffer is the size in bytes of the buffer for reading a child's output.
const lineBuffer = 64 << 10

// Quoted returns the beginning of line, for an error that quotes it.
func Quoted(line []byte) []byte { return line[:min(len(line), QuotedMost)] }

// ServeLines implements [Session.Serve] for a protocol of lines. It calls take with each line of
// the child's output, until the child ends. If [ReadLine] reports a line as too long, or take
// returns an error, ServeLines kills the child and returns the error. At the end of the output it
// returns nil, because the exit status describes the end of the child better than an error of the
// pipe.
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

// ReadLine returns the next line of a child's output without its line end ("\n" or "\r\n"). The
// line is in newly allocated memory. At the end of the output, ReadLine returns io.EOF; it ignores
// a last line without a line end. For a line of more than most bytes, ReadLine returns an error
// that quotes its beginning. ReadLine checks this limit only when the buffer of in is full, so it
// may return a line that exceeds most by less than the size of this buffer.
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
