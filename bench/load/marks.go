// Package load makes the input of workloads and checks their output. The input is log lines with a
// number in each line. The files are complete from the start, or grow while they are read. The
// package counts missing and repeated numbers in the output.
package load

import (
	"bytes"
	"io"
	"math/bits"
	"sync/atomic"
	"time"
)

// Every line contains one mark with its number, such as ~000000123456~. If lines are written while
// they are read, the mark also contains the time of writing, in microseconds since 1970:
// ~000000123456~1763736000123456~. No line contains another tilde, and no output format escapes a
// tilde. Marks begin with a tilde because a tilde can be found quickly (memchr).
const (
	tilde       = '~'
	numberWidth = 12
	timeWidth   = 16
)

// Marks is the set of numbers that were received. It is safe for concurrent use.
type Marks struct {
	words    []atomic.Uint64
	limit    uint64
	repeated atomic.Int64
	unknown  atomic.Int64
	delays   Delays
}

// NewMarks returns a set for the expected numbers 0 to records-1.
func NewMarks(records int64) *Marks {
	return &Marks{words: make([]atomic.Uint64, (records+63)/64), limit: uint64(records)}
}

// Add adds the marks in text. It returns the number of new marks, which are those whose numbers
// were expected and not added before. text must consist of whole lines, in any format.
func (m *Marks) Add(text []byte) (unique int64) {
	for {
		i := bytes.IndexByte(text, tilde)
		if i < 0 {
			return unique
		}
		text = text[i+1:]
		number, ok := digits(text, numberWidth)
		if !ok {
			continue
		}
		if m.note(number) {
			unique++
		}
		text = text[numberWidth+1:]
		if written, ok := digits(text, timeWidth); ok {
			m.delays.Add(time.Since(time.UnixMicro(int64(written))))
			text = text[timeWidth+1:]
		}
	}
}

// note adds a number, and reports whether it was expected and not received before.
func (m *Marks) note(number uint64) (unique bool) {
	if number >= m.limit {
		m.unknown.Add(1)
		return false
	}
	bit := uint64(1) << (number % 64)
	if m.words[number/64].Or(bit)&bit != 0 {
		m.repeated.Add(1)
		return false
	}
	return true
}

// digits parses a number at the start of text, with the given number of digits and a tilde after
// it. ok is false if text does not begin with such a number.
func digits(text []byte, width int) (n uint64, ok bool) {
	if len(text) <= width || text[width] != tilde {
		return 0, false
	}
	for _, c := range text[:width] {
		if c -= '0'; c > 9 {
			return 0, false
		}
		n = n*10 + uint64(c)
	}
	return n, true
}

// AddFrom reads r to its end and adds all marks in it. The lines in r must end with \n, except for
// the last one.
func (m *Marks) AddFrom(r io.Reader) error {
	buf, kept := make([]byte, 1<<20), 0
	for {
		n, err := r.Read(buf[kept:])
		n += kept
		whole := bytes.LastIndexByte(buf[:n], '\n') + 1
		if err != nil || whole == 0 && n == len(buf) {
			whole = n
		}
		m.Add(buf[:whole])
		kept = copy(buf, buf[whole:n])
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

// Unique returns the number of different expected numbers received.
func (m *Marks) Unique() (n int64) {
	for i := range m.words {
		n += int64(bits.OnesCount64(m.words[i].Load()))
	}
	return n
}

// Lost returns the number of expected numbers that were not received.
func (m *Marks) Lost() int64 { return int64(m.limit) - m.Unique() }

// Repeated returns how many numbers were received again.
func (m *Marks) Repeated() int64 { return m.repeated.Load() }

// Unknown returns the number of received numbers that were not expected.
func (m *Marks) Unknown() int64 { return m.unknown.Load() }

// Delay returns a quantile of the times from the writing of a line to its arrival. If the marks
// contain no time, it returns 0.
func (m *Marks) Delay(quantile float64) time.Duration { return m.delays.Quantile(quantile) }
